//! LMDB, through `heed`: a copy-on-write B+-tree in a mapped file, written by one thread at a time.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, PutFlags};

use super::together::{Together, moved, word};
use super::{ByteStore, Class, Refused, When};

struct Lmdb {
    environment: Env,
    database: Database<Bytes, Bytes>,
}

/// Opens or creates it.
pub fn open(folder: &Path, class: Class, max_bytes: u64) -> Refused<Box<dyn ByteStore>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(max_bytes.next_multiple_of(1 << 20) as usize).max_readers(1 << 12);
    if class == Class::Process {
        // SAFETY: the flag omits fsync; nothing else writes the file, and it is deleted afterwards.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the folder is this run's own, and no other process changes its files while they are mapped.
    let environment = unsafe { options.open(folder)? };
    let mut writing = environment.write_txn()?;
    let database = environment.create_database(&mut writing, None)?;
    writing.commit()?;
    Ok(Box::new(Lmdb { environment, database }))
}

impl ByteStore for Lmdb {
    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }

    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool> {
        let mut writing = self.environment.write_txn()?;
        match when {
            When::Always => self.database.put(&mut writing, key, value)?,
            When::Present => {
                if self.database.get(&writing, key)?.is_none() {
                    return Ok(false);
                }
                self.database.put(&mut writing, key, value)?;
            }
            When::Absent => {
                match self.database.put_with_flags(&mut writing, PutFlags::NO_OVERWRITE, key, value) {
                    Err(heed::Error::Mdb(MdbError::KeyExist)) => return Ok(false),
                    put => put?,
                }
            }
        }
        writing.commit()?;
        Ok(true)
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool> {
        let reading = self.environment.read_txn()?;
        Ok(self.database.get(&reading, key)?.map(look).is_some())
    }

    fn remove(&self, key: &[u8]) -> Refused<bool> {
        let mut writing = self.environment.write_txn()?;
        let found = self.database.delete(&mut writing, key)?;
        writing.commit()?;
        Ok(found)
    }

    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize> {
        let reading = self.environment.read_txn()?;
        let mut seen = 0;
        // It has no empty keys, and rejects lookups of one.
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        for entry in self.database.range(&reading, &(from, Bound::Unbounded))?.take(length) {
            let (key, value) = entry?;
            each(key, value);
            seen += 1;
        }
        Ok(seen)
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        let mut writing = self.environment.write_txn()?;
        for (key, value) in entries {
            self.database.put(&mut writing, &key, &value)?;
        }
        Ok(writing.commit()?)
    }
}

impl Together for Lmdb {
    /// Its writers are serialized.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool> {
        let mut writing = self.environment.write_txn()?;
        let keys = [from, to].map(u64::to_be_bytes);
        let mut held = [0; 2];
        for (held, key) in held.iter_mut().zip(&keys) {
            *held = self.database.get(&writing, key)?.map_or(Ok(0), word)?;
        }
        for (value, key) in moved(held, amount).iter().zip(&keys) {
            self.database.put(&mut writing, key, &value.to_be_bytes())?;
        }
        writing.commit()?;
        Ok(true)
    }

    fn sum(&self) -> Refused<(u64, u64)> {
        let reading = self.environment.read_txn()?;
        let mut entries = self.database.iter(&reading)?;
        entries.try_fold((0, 0), |(count, sum), entry| Ok((count + 1, sum + word(entry?.1)?)))
    }
}
