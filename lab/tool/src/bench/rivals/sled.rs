//! `sled`: a log-structured B-link tree.

use std::path::Path;

use sled::Db;

use super::{ByteStore, Refused, When};

struct Sled(Db);

/// Opens or creates it.
pub fn open(folder: &Path) -> Refused<Box<dyn ByteStore>> {
    Ok(Box::new(Sled(sled::open(folder)?)))
}

impl ByteStore for Sled {
    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool> {
        let written = match when {
            When::Always => {
                self.0.insert(key, value)?;
                true
            }
            When::Absent => self.0.compare_and_swap(key, None::<&[u8]>, Some(value))?.is_ok(),
            When::Present => self.0.fetch_and_update(key, |old| old.map(|_| value.to_vec()))?.is_some(),
        };
        if written {
            self.0.flush()?;
        }
        Ok(written)
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool> {
        Ok(self.0.get(key)?.map(|value| look(&value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Refused<bool> {
        let found = self.0.remove(key)?.is_some();
        if found {
            self.0.flush()?;
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize> {
        let mut seen = 0;
        for entry in self.0.range(from..).take(length) {
            let (key, value) = entry?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        for (key, value) in entries {
            self.0.insert(key, value)?;
        }
        self.0.flush()?;
        Ok(())
    }
}
