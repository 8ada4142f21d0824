//! Volatile maps that support words only.

#[cfg(feature = "rivals")]
use std::hint::black_box;

use bristlecone::Error;
use congee::{Congee, epoch};

use super::subject::Subject;

/// `congee::Congee`, of words only.
#[derive(Default)]
pub struct Art(Congee<usize, usize>);

/// It panics inside the crate if an allocation fails, like every volatile map.
const MEMORY: &str = "memory for congee";

impl Subject<u64, u64> for Art {
    #[inline]
    fn upsert(&self, key: u64, value: u64) -> Result<(), Error> {
        self.0.insert(key as usize, value as usize, &epoch::pin()).expect(MEMORY);
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Error> {
        let found =
            self.0.compute_or_insert(key as usize, |found| found.unwrap_or(value as usize), &epoch::pin());
        Ok(found.expect(MEMORY).is_none())
    }

    #[inline]
    fn update(&self, key: u64, value: u64) -> Result<bool, Error> {
        Ok(self.0.compute_if_present(&(key as usize), |_| Some(value as usize), &epoch::pin()).is_some())
    }

    #[inline]
    fn get<R>(&self, key: u64, look: impl Fn(u64) -> R) -> Result<Option<R>, Error> {
        Ok(self.0.get(&(key as usize), &epoch::pin()).map(|value| look(value as u64)))
    }

    #[inline]
    fn remove(&self, key: u64) -> Result<bool, Error> {
        Ok(self.0.remove(&(key as usize), &epoch::pin()).is_some())
    }

    #[inline]
    fn scan(&self, from: u64, length: usize, mut each: impl FnMut(u64, u64)) -> Result<usize, Error> {
        let mut found = [(0, 0); 128];
        let (mut from, mut seen) = (from as usize, 0);
        // The range excludes its end: the largest word is not in it.
        while seen < length {
            let asked = (length - seen).min(found.len());
            let got = self.0.range(&from, &usize::MAX, &mut found[..asked], &epoch::pin());
            found[..got].iter().for_each(|(key, value)| each(*key as u64, *value as u64));
            seen += got;
            if got < asked {
                break;
            }
            from = found[got - 1].0 + 1;
        }
        Ok(seen)
    }
}

/// `bplustree::BPlusTree`, of words only. Reads, then replaces by `insert`, because it has no
/// update.
#[cfg(feature = "rivals")]
pub struct Bplustree(bplustree::BPlusTree<u64, u64>);

#[cfg(feature = "rivals")]
impl Default for Bplustree {
    fn default() -> Self {
        Self(bplustree::BPlusTree::new())
    }
}

#[cfg(feature = "rivals")]
impl Subject<u64, u64> for Bplustree {
    #[inline]
    fn upsert(&self, key: u64, value: u64) -> Result<(), Error> {
        black_box(self.0.insert(key, value));
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Error> {
        let is_new = self.0.lookup(&key, |_| ()).is_none();
        if is_new {
            self.upsert(key, value)?;
        }
        Ok(is_new)
    }

    #[inline]
    fn update(&self, key: u64, value: u64) -> Result<bool, Error> {
        let found = self.0.lookup(&key, |_| ()).is_some();
        if found {
            self.upsert(key, value)?;
        }
        Ok(found)
    }

    #[inline]
    fn get<R>(&self, key: u64, look: impl Fn(u64) -> R) -> Result<Option<R>, Error> {
        Ok(self.0.lookup(&key, |value| look(*value)))
    }

    #[inline]
    fn remove(&self, key: u64) -> Result<bool, Error> {
        Ok(self.0.remove(&key).is_some())
    }

    #[inline]
    fn scan(&self, from: u64, length: usize, mut each: impl FnMut(u64, u64)) -> Result<usize, Error> {
        let mut entries = self.0.raw_iter();
        entries.seek(&from);
        let mut seen = 0;
        while seen < length
            && let Some((key, value)) = entries.next()
        {
            each(*key, *value);
            seen += 1;
        }
        Ok(seen)
    }
}
