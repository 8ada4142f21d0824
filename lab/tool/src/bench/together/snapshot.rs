//! The preset `snapshot`: overhead of batches and snapshots for other operations, on one thread.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use bristlecone::{Pool, Tree};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_random::{GOLDEN_RATIO, Generator, mix};
use serde_json::{Value, json};

use super::kept::Kept;
use crate::bench::report::median;
use crate::bench::run;

/// One key in this many is changed after the snapshot was taken.
const CHANGED: u64 = 100;
/// Compared work is divided into this many pieces, run alternately.
const PIECES: u64 = 8;

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Keys.
    pub records: u64,
    /// Updates and lookups of each kind.
    pub operations: u64,
    /// The seed of the drawn keys.
    pub seed: u64,
}

/// Nanoseconds per operation in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// An update before the first batch or snapshot.
    pub update: f64,
    /// An update after the first batch.
    pub update_after_batch: f64,
    /// An update concurrent with a snapshot that has retained the key's value already, or must
    /// retain it.
    pub update_beside_snapshot: f64,
    /// A lookup, and a lookup on a snapshot, while one key in a hundred has changed.
    pub get: f64,
    pub snapshot_get: f64,
    /// A key of a scan of everything, and a key of a scan of a snapshot.
    pub scan: f64,
    pub snapshot_scan: f64,
    /// Keys for which the snapshot returned wrong values.
    pub wrong: u64,
}

/// Keys that were drawn.
struct Drawn(Vec<u64>);

impl Drawn {
    /// Calls `each` with every key; returns nanoseconds per key.
    fn time(&self, mut each: impl FnMut(u64) -> Outcome) -> Outcome<f64> {
        let begun = Instant::now();
        self.0.iter().try_for_each(|key| each(*key))?;
        Ok(begun.elapsed().as_nanos() as f64 / self.0.len().max(1) as f64)
    }
}

impl Sizes {
    fn key(&self, number: u64) -> u64 {
        mix((number + 1).wrapping_mul(GOLDEN_RATIO) ^ self.seed)
    }

    fn draw(&self, count: u64, noise: &mut Generator) -> Drawn {
        Drawn((0..count.max(1)).map(|_| self.key(noise.below(self.records))).collect())
    }

    /// Runs one round on a design.
    ///
    /// # Errors
    ///
    /// Those of the pool, and for stores other than the library's designs.
    pub fn round(&self, store: &Kept, number: u64) -> Outcome<Round> {
        run::pin(run::processors().first().copied());
        let (pool, tree) = store.create_tree()?;
        let mut noise = Generator::new(self.seed ^ number << 32);
        (0..self.records).try_for_each(|at| tree.upsert(self.key(at), at))?;
        let mut updates = || {
            let drawn = self.draw(self.operations, &mut noise);
            drawn.time(|key| Ok(tree.upsert(key, key)?))
        };
        updates()?;
        let update = updates()?;
        let mut first = pool.batch();
        first.insert(&tree, self.key(0), 0);
        first.commit()?;
        let update_after_batch = updates()?;
        interrupt::check("the bench is not finished")?;
        let mut round = self.reads(&pool, &tree, &mut noise)?;
        let snapshot = pool.snapshot()?;
        let drawn = self.draw(self.operations, &mut noise);
        round.update_beside_snapshot = drawn.time(|key| Ok(tree.upsert(key, 0)?))?;
        drop(snapshot);
        Ok(Round { update, update_after_batch, ..round })
    }

    /// Compares reads of the tree with those of a snapshot that differs in one key of a hundred.
    fn reads(&self, pool: &Pool, tree: &Tree<u64, u64>, noise: &mut Generator) -> Outcome<Round> {
        let snapshot = pool.snapshot()?;
        let then = snapshot.tree(tree);
        let changed = self.draw(self.records / CHANGED, noise);
        let mut before = HashMap::new();
        for key in &changed.0 {
            if let Some(old) = tree.update(*key, u64::MAX)? {
                before.entry(*key).or_insert(old);
            }
        }
        let mut round = Round::default();
        for _ in 0..PIECES {
            interrupt::check("the bench is not finished")?;
            let drawn = self.draw(self.operations / PIECES, noise);
            let of = |time: f64| time / PIECES as f64;
            round.get += of(drawn.time(|key| Ok(_ = black_box(tree.get(key)?)))?);
            round.snapshot_get += of(drawn.time(|key| Ok(_ = black_box(then.get(key)?)))?);
            round.scan += of(time_scan(tree.iter())?);
            round.snapshot_scan += of(time_scan(then.iter())?);
        }
        for (key, old) in &before {
            round.wrong += u64::from(then.get(*key)? != Some(*old));
        }
        round.wrong += then.len()?.abs_diff(self.records);
        Ok(round)
    }
}

/// Returns nanoseconds per item.
fn time_scan(mut items: impl Iterator<Item = bristlecone::Result<(u64, u64)>>) -> Outcome<f64> {
    let begun = Instant::now();
    let mut count = 0_u64;
    let sum = items.try_fold(0, |sum: u64, item| {
        count += 1;
        item.map(|(key, value)| sum ^ key ^ value)
    })?;
    black_box(sum);
    Ok(begun.elapsed().as_nanos() as f64 / count.max(1) as f64)
}

/// Returns the results of one design, as JSON.
pub fn json(store: &Kept, rounds: &[Round]) -> Value {
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    json!({
        "name": store.name(),
        "durability": store.durability(),
        "update_ns": of(|round| round.update),
        "update_after_batch_ns": of(|round| round.update_after_batch),
        "update_beside_snapshot_ns": of(|round| round.update_beside_snapshot),
        "get_ns": of(|round| round.get),
        "snapshot_get_ns": of(|round| round.snapshot_get),
        "scan_ns": of(|round| round.scan),
        "snapshot_scan_ns": of(|round| round.snapshot_scan),
        "update_after_batch": of(|round| round.update_after_batch / round.update),
        "update_beside_snapshot": of(|round| round.update_beside_snapshot / round.update),
        "snapshot_get": of(|round| round.snapshot_get / round.get),
        "snapshot_scan": of(|round| round.snapshot_scan / round.scan),
        "lost": rounds.iter().map(|round| round.wrong).sum::<u64>(),
    })
}
