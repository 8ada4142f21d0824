//! `redb`: a copy-on-write B+-tree in a file.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::together::{Together, moved, word};
use super::{ByteStore, Refused, When};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

struct Redb(Database);

/// Opens or creates it.
pub fn open(folder: &Path) -> Refused<Box<dyn ByteStore>> {
    let database = Database::create(folder.join("bench.redb"))?;
    let writing = database.begin_write()?;
    // Otherwise readers find no table.
    drop(writing.open_table(TABLE)?);
    writing.commit()?;
    Ok(Box::new(Redb(database)))
}

impl ByteStore for Redb {
    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }

    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool> {
        let writing = self.0.begin_write()?;
        {
            let mut table = writing.open_table(TABLE)?;
            if when != When::Always && table.get(key)?.is_some() != (when == When::Present) {
                return Ok(false);
            }
            table.insert(key, value)?;
        }
        writing.commit()?;
        Ok(true)
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| look(value.value())).is_some())
    }

    fn remove(&self, key: &[u8]) -> Refused<bool> {
        let writing = self.0.begin_write()?;
        let found = writing.open_table(TABLE)?.remove(key)?.is_some();
        writing.commit()?;
        Ok(found)
    }

    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut seen = 0;
        for entry in table.range(from..)?.take(length) {
            let (key, value) = entry?;
            each(key.value(), value.value());
            seen += 1;
        }
        Ok(seen)
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        let writing = self.0.begin_write()?;
        {
            let mut table = writing.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(writing.commit()?)
    }
}

impl Together for Redb {
    /// Its writers are serialized.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool> {
        let writing = self.0.begin_write()?;
        {
            let mut table = writing.open_table(TABLE)?;
            let keys = [from, to].map(u64::to_be_bytes);
            let mut held = [0; 2];
            for (held, key) in held.iter_mut().zip(&keys) {
                *held = table.get(key.as_slice())?.map_or(Ok(0), |value| word(value.value()))?;
            }
            for (value, key) in moved(held, amount).iter().zip(&keys) {
                table.insert(key.as_slice(), value.to_be_bytes().as_slice())?;
            }
        }
        writing.commit()?;
        Ok(true)
    }

    fn sum(&self) -> Refused<(u64, u64)> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        table.iter()?.try_fold((0, 0), |(count, sum), entry| Ok((count + 1, sum + word(entry?.1.value())?)))
    }
}
