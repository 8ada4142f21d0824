//! `fjall`: a log-structured merge tree.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};

use super::key_locks::KeyLocks;
use super::together::{Together, word};
use super::{ByteStore, Class, Refused, When};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    class: Class,
    locks: KeyLocks,
}

/// Opens or creates it.
pub fn open(folder: &Path, class: Class) -> Refused<Box<dyn ByteStore>> {
    let database = Database::builder(folder).open()?;
    let keyspace = database.keyspace("bench", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { database, keyspace, class, locks: KeyLocks::new() }))
}

impl Fjall {
    /// Makes a write durable according to its class. The journal is already written to the system.
    fn persist(&self) -> Refused<()> {
        match self.class {
            Class::Process => Ok(()),
            Class::Power => Ok(self.database.persist(PersistMode::SyncAll)?),
        }
    }
}

impl ByteStore for Fjall {
    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }

    /// Reads before it writes, in two steps.
    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool> {
        if when != When::Always && self.keyspace.contains_key(key)? != (when == When::Present) {
            return Ok(false);
        }
        self.keyspace.insert(key, value)?;
        self.persist()?;
        Ok(true)
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool> {
        Ok(self.keyspace.get(key)?.map(|value| look(&value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Refused<bool> {
        let found = self.keyspace.contains_key(key)?;
        if found {
            self.keyspace.remove(key)?;
            self.persist()?;
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize> {
        let mut seen = 0;
        for entry in self.keyspace.range(from..).take(length) {
            let (key, value) = entry.into_inner()?;
            each(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        for (key, value) in entries {
            self.keyspace.insert(key, value)?;
        }
        self.persist()
    }
}

impl Together for Fjall {
    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()> {
        let mut batch = self.database.batch();
        for (key, value) in entries {
            batch.insert(&self.keyspace, key.to_be_bytes(), value.to_be_bytes());
        }
        batch.commit()?;
        self.persist()
    }

    /// Its batches do not read: the keys are locked here.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool> {
        self.locks.transfer(self, from, to, amount)
    }

    fn sum(&self) -> Refused<(u64, u64)> {
        let view = self.database.snapshot();
        let mut entries = view.iter(&self.keyspace);
        entries.try_fold((0, 0), |(count, sum), entry| Ok((count + 1, sum + word(&entry.into_inner()?.1)?)))
    }
}
