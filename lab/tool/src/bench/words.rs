//! A volatile map that supports words only.

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
