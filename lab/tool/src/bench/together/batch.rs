//! The preset `batch`: new words written one by one, an equal number in batches, and for trees in calls of many keys.
//! Where a sync of a disk is part of a commit, the rate of bare syncs of the same disk stands beside it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_random::{GOLDEN_RATIO, mix};
use serde_json::{Value, json};

use super::kept::Kept;
use super::ledger::Ledger;
use crate::bench::report::median;
use crate::bench::rivals::Refused;
use crate::bench::run;

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of existing words.
    pub records: u64,
    /// Number of words written one by one, and again in batches.
    pub words: u64,
    /// Number of words of a batch.
    pub group: u64,
    /// Number of threads that write them.
    pub threads: usize,
    /// The seed of keys.
    pub seed: u64,
}

/// Results of one store in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// Words per second, one by one.
    pub alone: f64,
    /// Words per second, in batches.
    pub together: f64,
    /// Words per second, in calls of many keys; `None` for stores without one.
    pub many: Option<f64>,
    /// Bare syncs of the disk per second, one after the other; `None` if a commit needs none.
    pub syncs: Option<f64>,
    /// Words missing at the end.
    pub lost: u64,
}

/// Method of writing words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    Together,
    Many,
}

/// Number of bare syncs that are timed.
const SYNCS: u64 = 100;
/// Bytes of each: a page.
const SYNC_BYTES: usize = 4096;

/// Returns how many syncs of a page a second the disk of a folder does.
fn bare_syncs(path: &Path) -> Outcome<f64> {
    let path = path.with_extension("bare");
    let timed = || -> std::io::Result<f64> {
        let file = std::fs::File::create(&path)?;
        // As a journal does: written zeros, so that a sync writes no metadata.
        file.write_all_at(&vec![0; SYNC_BYTES * SYNCS as usize], 0)?;
        file.sync_all()?;
        let begun = Instant::now();
        for page in 0..SYNCS {
            file.write_all_at(&[1; SYNC_BYTES], page * SYNC_BYTES as u64)?;
            file.sync_data()?;
        }
        Ok(SYNCS as f64 / begun.elapsed().as_secs_f64())
    };
    let timed = timed().map_err(|error| Failure::io(path.display(), &error));
    let _ = std::fs::remove_file(&path);
    timed
}

impl Sizes {
    fn key(&self, number: u64) -> u64 {
        mix((number + 1).wrapping_mul(GOLDEN_RATIO) ^ self.seed)
    }

    /// Runs one round on a store.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn round(&self, store: &Kept) -> Outcome<Round> {
        let failed = |error| store.failed(error);
        let syncs = store.syncs_a_disk().map(bare_syncs).transpose()?;
        let ledger = store.create()?;
        ledger.load(&mut (0..self.records).map(|at| (self.key(at), 1))).map_err(failed)?;
        let alone = self.write(&*ledger, Way::Alone).map_err(failed)?;
        interrupt::check("the bench is not finished")?;
        let together = self.write(&*ledger, Way::Together).map_err(failed)?;
        interrupt::check("the bench is not finished")?;
        let many = match ledger.has_many() {
            true => Some(self.write(&*ledger, Way::Many).map_err(failed)?),
            false => None,
        };
        let (count, sum) = ledger.sum().map_err(failed)?;
        let wanted = self.records + (2 + u64::from(many.is_some())) * self.words;
        Ok(Round { alone, together, many, syncs, lost: wanted.abs_diff(count).max(wanted.abs_diff(sum)) })
    }

    /// Writes all words with one method, and returns words per second.
    fn write(&self, ledger: &dyn Ledger, way: Way) -> Refused<f64> {
        let first = self.records + self.words * way as u64;
        let (barrier, processors) = (Barrier::new(self.threads + 1), run::processors());
        let refused = Mutex::new(None);
        let begun = std::thread::scope(|scope| {
            for thread in 0..self.threads as u64 {
                let (barrier, processors, refused) = (&barrier, &processors, &refused);
                scope.spawn(move || {
                    run::pin(processors.get(thread as usize % processors.len().max(1)).copied());
                    let mut keys =
                        (thread..self.words).step_by(self.threads).map(|at| (self.key(first + at), 1));
                    barrier.wait();
                    let written = match way {
                        Way::Alone => keys.try_for_each(|(key, value)| ledger.write(key, value)),
                        Way::Together | Way::Many => self.in_groups(ledger, way, &mut keys),
                    };
                    if let Err(error) = written {
                        *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                });
            }
            barrier.wait();
            Instant::now()
        });
        let seconds = begun.elapsed().as_secs_f64();
        match refused.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(self.words as f64 / seconds),
        }
    }

    fn in_groups(
        &self,
        ledger: &dyn Ledger,
        way: Way,
        keys: &mut dyn Iterator<Item = (u64, u64)>,
    ) -> Refused<()> {
        loop {
            let group: Vec<_> = keys.take(self.group as usize).collect();
            if group.is_empty() {
                return Ok(());
            }
            match way {
                Way::Many => ledger.write_many(&group)?,
                _ => ledger.write_together(&group)?,
            }
        }
    }
}

/// Returns the results of one store, as JSON.
pub fn json(store: &Kept, rounds: &[Round]) -> Value {
    let of = |rate: fn(&Round) -> f64| rounds.iter().map(rate).collect::<Vec<f64>>();
    json!({
        "name": store.name(),
        "durability": store.durability(),
        "inserts_per_second": median(of(|round| round.alone)),
        "inserts_per_second_rounds": of(|round| round.alone),
        "batched_per_second": median(of(|round| round.together)),
        "batched_per_second_rounds": of(|round| round.together),
        "many_per_second": rounds.iter().all(|round| round.many.is_some()).then(|| median(of(|round| round.many.unwrap_or(0.0)))),
        "bare_syncs_per_second": rounds.iter().all(|round| round.syncs.is_some()).then(|| median(of(|round| round.syncs.unwrap_or(0.0)))),
        "speedup": median(of(|round| round.together / round.alone)),
        "lost": rounds.iter().map(|round| round.lost).sum::<u64>(),
    })
}
