//! What databases are stored as: spaces, which are flushed and exchanged in one step.

use bristlecone::Result;

use super::{Garbage, Note, Of, Spaces, Store, lock};
use crate::map::SPACES;

impl Store {
    /// Returns the space of a database, which gets one if it has none.
    pub fn space_of(&self, db: i32) -> Result<u64> {
        let mut spaces = lock(&self.spaces);
        if let Some(space) = spaces.of_db.get(&db) {
            return Ok(*space);
        }
        let space = self.free_space(&spaces)?;
        // In this order a crash costs a number at most.
        self.meta.upsert(&Note::NextSpace.key(), &(space + 1).to_be_bytes())?;
        self.meta.upsert(&Note::Space(db).key(), &space.to_be_bytes())?;
        spaces.next = space + 1;
        spaces.of_db.insert(db, space);
        Ok(space)
    }

    /// Returns a number that no space has. Small maps know few: numbers come again, as late as possible.
    fn free_space(&self, spaces: &Spaces) -> Result<u64> {
        let later = (spaces.next.max(1)..SPACES).chain(1..SPACES);
        for space in later {
            let is_used = spaces.of_db.values().any(|used| *used == space)
                || self.meta.contains_key(&Note::Flushed(space).key())?;
            if !is_used {
                return Ok(space);
            }
        }
        // No number is free: the maps of this database are all large.
        Ok(spaces.next.max(spaces.of_db.values().max().map_or(SPACES, |last| last + 1)))
    }

    pub(super) fn is_live(&self, space: u64) -> bool {
        lock(&self.spaces).of_db.values().any(|of_db| *of_db == space)
    }

    /// Removes all maps of a database, or of all databases: immediately from the directory, in the background from the pool.
    pub fn flush(&self, db: Option<i32>) -> Result<()> {
        self.settle()?;
        match self.flush_spaces(db, true) {
            Err(error) if error.is_no_room() => self.with_reserve(|| self.flush_spaces(db, false)),
            flushed => flushed,
        }
    }

    fn flush_spaces(&self, db: Option<i32>, in_one_step: bool) -> Result<()> {
        let mut spaces = lock(&self.spaces);
        let flushed: Vec<(i32, u64)> = spaces
            .of_db
            .iter()
            .map(|(db, space)| (*db, *space))
            .filter(|(of, _)| db.is_none_or(|db| db == *of))
            .collect();
        if flushed.is_empty() {
            return Ok(());
        }
        if in_one_step {
            self.in_one_step(true, |step| {
                for (db, space) in &flushed {
                    step.remove(Of::Meta, &Note::Space(*db).key());
                    step.insert(Of::Meta, &Note::Flushed(*space).key(), b"");
                }
            })?;
        } else {
            // Recovery finishes what has begun.
            for (db, space) in &flushed {
                self.meta.upsert(&Note::Flushed(*space).key(), b"")?;
                self.meta.remove(&Note::Space(*db).key())?;
            }
        }
        for (db, space) in flushed {
            spaces.of_db.remove(&db);
            self.discard([Garbage::Space(space)]);
        }
        Ok(())
    }

    /// Exchanges two databases.
    pub fn swap(&self, one: i32, other: i32) -> Result<()> {
        self.settle()?;
        self.with_reserve(|| self.swap_spaces(one, other))
    }

    fn swap_spaces(&self, one: i32, other: i32) -> Result<()> {
        let mut spaces = lock(&self.spaces);
        let (had_one, had_other) = (spaces.of_db.get(&one).copied(), spaces.of_db.get(&other).copied());
        if had_one.or(had_other).is_none() {
            return Ok(());
        }
        self.in_one_step(true, |step| {
            for (db, space) in [(one, had_other), (other, had_one)] {
                match space {
                    Some(space) => step.insert(Of::Meta, &Note::Space(db).key(), &space.to_be_bytes()),
                    None => step.remove(Of::Meta, &Note::Space(db).key()),
                }
            }
        })?;
        for (db, space) in [(one, had_other), (other, had_one)] {
            match space {
                Some(space) => spaces.of_db.insert(db, space),
                None => spaces.of_db.remove(&db),
            };
        }
        Ok(())
    }
}
