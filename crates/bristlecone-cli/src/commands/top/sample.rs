//! Figures of a pool that is followed, sampled at each refresh.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bristlecone::dynamic::Tree;
use bristlecone::{Error, Pool, Result};

use crate::datum::Datum;

/// Number of keys that are looked up, from the beginning of a tree.
const KEYS: usize = 250;
/// Number of timed lookups, which cycle through the keys.
const LOOKUPS: usize = 500;

/// Sampled figures of a tree; in a pool without trees, of the pool.
pub struct Figures {
    pub tree: Option<String>,
    /// `None`: the writer does not have the tree open.
    pub entries: Option<u64>,
    /// Change of the number of entries per second since the last sample; `None` in the first
    /// sample.
    pub change: Option<f64>,
    /// `None` for a tree without entries.
    pub latency: Option<Latency>,
    pub space: Space,
}

/// Space of the pool's file.
#[derive(Clone, Copy)]
pub struct Space {
    pub file_bytes: u64,
    pub chunks: u64,
    pub chunks_free: u64,
}

/// Duration of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    pub lookups: usize,
    pub median: Duration,
    pub p99: Duration,
}

/// Samples a pool repeatedly.
#[derive(Default)]
pub struct Sampler {
    trees: HashMap<String, Watched>,
}

/// A tree that the writer has open.
struct Watched {
    tree: Tree,
    /// Time and number of entries of the last sample.
    last: Option<(Instant, u64)>,
}

impl Sampler {
    /// Takes one sample.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] if the writer has exited; [`Error::Corrupted`].
    pub fn look(&mut self, pool: &Pool) -> Result<Vec<Figures>> {
        let mut names: Vec<String> = pool.trees()?.into_iter().map(|entry| entry.spec.name).collect();
        names.sort();
        let info = pool.info();
        let space = Space { file_bytes: info.file_bytes, chunks: info.chunks, chunks_free: info.chunks_free };
        if names.is_empty() {
            return Ok(vec![Figures { tree: None, entries: None, change: None, latency: None, space }]);
        }
        self.trees.retain(|name, _| names.contains(name));
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let (entries, change, latency) = match self.tree(pool, &name) {
                Ok((entries, change, latency)) => (Some(entries), change, latency),
                Err(Error::NoWriter { .. } | Error::NoSuchTree { .. } | Error::Mismatch { .. }) => {
                    // The tree was closed or replaced, unless the writer has exited.
                    pool.trees()?;
                    self.trees.remove(&name);
                    (None, None, None)
                }
                Err(error) => return Err(error),
            };
            all.push(Figures { tree: Some(name), entries, change, latency, space });
        }
        Ok(all)
    }

    fn tree(&mut self, pool: &Pool, name: &str) -> Result<(u64, Option<f64>, Option<Latency>)> {
        if !self.trees.contains_key(name) {
            let tree = pool.dynamic_tree(name)?;
            self.trees.insert(name.to_owned(), Watched { tree, last: None });
        }
        let watched = self.trees.get_mut(name).expect("it was inserted");
        let (entries, now) = (watched.tree.len()?, Instant::now());
        let change = watched.last.map(|(then, before)| {
            (entries as f64 - before as f64) / (now - then).as_secs_f64().max(f64::MIN_POSITIVE)
        });
        watched.last = Some((now, entries));
        Ok((entries, change, latency(&watched.tree)?))
    }
}

/// Times lookups of keys found by a short scan.
fn latency(tree: &Tree) -> Result<Option<Latency>> {
    let keys = tree.range(..).take(KEYS).map(|item| item.map(|(key, _)| key));
    let keys = keys.collect::<Result<Vec<Datum>>>()?;
    let mut times = Vec::with_capacity(LOOKUPS);
    for key in keys.iter().cycle().take(LOOKUPS) {
        let begun = Instant::now();
        black_box(tree.get(key)?);
        times.push(begun.elapsed());
    }
    Ok(summed_up(times))
}

/// Returns the median and the 99th percentile.
fn summed_up(mut times: Vec<Duration>) -> Option<Latency> {
    times.sort_unstable();
    let rank = |percent: usize| times.get((times.len() * percent).div_ceil(100).checked_sub(1)?).copied();
    Some(Latency { lookups: times.len(), median: rank(50)?, p99: rank(99)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sorted_times() {
        let times = (1..=200).rev().map(Duration::from_micros).collect();
        let latency =
            Latency { lookups: 200, median: Duration::from_micros(100), p99: Duration::from_micros(198) };
        assert_eq!(summed_up(times), Some(latency));
        let one = Duration::from_micros(7);
        assert_eq!(summed_up(vec![one]), Some(Latency { lookups: 1, median: one, p99: one }));
        assert_eq!(summed_up(Vec::new()), None);
    }
}
