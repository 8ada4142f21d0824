//! RocksDB: a log-structured merge tree.

use std::path::Path;

use rocksdb::{DB, Direction, IteratorMode, Options, WriteBatch, WriteOptions};

use super::key_locks::KeyLocks;
use super::together::{Together, word};
use super::{ByteStore, Class, Refused, When};

struct Rocksdb {
    database: DB,
    class: Class,
    locks: KeyLocks,
}

/// Opens or creates it.
pub fn open(folder: &Path, class: Class) -> Refused<Box<dyn ByteStore>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    Ok(Box::new(Rocksdb { database: DB::open(&options, folder)?, class, locks: KeyLocks::new() }))
}

impl Rocksdb {
    fn options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.class == Class::Power);
        options
    }
}

impl ByteStore for Rocksdb {
    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }

    /// Reads before it writes, in two steps.
    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool> {
        if when != When::Always && self.database.get_pinned(key)?.is_some() != (when == When::Present) {
            return Ok(false);
        }
        self.database.put_opt(key, value, &self.options())?;
        Ok(true)
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool> {
        Ok(self.database.get_pinned(key)?.map(|value| look(&value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Refused<bool> {
        let found = self.database.get_pinned(key)?.is_some();
        if found {
            self.database.delete_opt(key, &self.options())?;
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize> {
        let mut seen = 0;
        for entry in self.database.iterator(IteratorMode::From(from, Direction::Forward)).take(length) {
            let (key, value) = entry?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        loop {
            let mut batch = WriteBatch::default();
            entries.take(1 << 10).for_each(|(key, value)| batch.put(key, value));
            if batch.is_empty() {
                return Ok(());
            }
            self.database.write_opt(batch, &self.options())?;
        }
    }
}

impl Together for Rocksdb {
    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()> {
        let mut batch = WriteBatch::default();
        entries.iter().for_each(|(key, value)| batch.put(key.to_be_bytes(), value.to_be_bytes()));
        Ok(self.database.write_opt(batch, &self.options())?)
    }

    /// Its batches do not read: the keys are locked here.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool> {
        self.locks.transfer(self, from, to, amount)
    }

    fn sum(&self) -> Refused<(u64, u64)> {
        let view = self.database.snapshot();
        let mut entries = view.iterator(IteratorMode::Start);
        entries.try_fold((0, 0), |(count, sum), entry| Ok((count + 1, sum + word(&entry?.1)?)))
    }
}
