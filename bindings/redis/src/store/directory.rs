//! Which key has which map: the entries of the directory, and when they are written.

use std::collections::HashMap;

use bristlecone::Result;

use super::{Garbage, ID_BYTES, Note, Of, Step, Store, damaged, item_key, lock, number};

/// A map as the directory has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The database.
    pub db: i32,
    /// The space that the database is stored as.
    pub space: u64,
    /// The map's id.
    pub id: u64,
    /// When it expires, in milliseconds since 1970, or [`FOREVER`].
    pub expires: i64,
    /// The Redis key.
    pub name: Vec<u8>,
}

/// Returns the key of an entry.
pub(super) fn place(space: u64, id: u64) -> Vec<u8> {
    item_key(space, &id.to_be_bytes())
}

/// Lengths that values of the directory have, so that names need few sizes of slots: each size has a chunk of its own.
const ENTRY_BYTES: [usize; 4] = [48, 240, 2032, 16_368];

/// Returns what the directory has of a map: time to live, length of the name, the name, and zeros.
pub(super) fn entry_value(expires: i64, name: &[u8]) -> Vec<u8> {
    let mut value =
        [expires.to_be_bytes().as_slice(), (name.len() as u32).to_be_bytes().as_slice(), name].concat();
    if let Some(len) = ENTRY_BYTES.into_iter().find(|len| *len >= value.len()) {
        value.resize(len, 0);
    }
    value
}

/// Returns the time to live and the name.
pub(super) fn entry_of(value: &[u8]) -> Option<(i64, &[u8])> {
    let (expires, rest) = value.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    Some((i64::from_be_bytes(*expires), rest.get(..u32::from_be_bytes(*len) as usize)?))
}

fn remove_in(step: &mut Step<'_>, gone: &[(u64, u64)]) {
    for (id, space) in gone {
        step.remove(Of::Directory, &place(*space, *id));
        step.insert(Of::Meta, &Note::Unattached(*id).key(), b"");
        step.remove(Of::Meta, &Note::Covered(*id).key());
    }
}

impl Store {
    /// Writes the directory's entry of a map that was in space `from`, or in none. Returns the space.
    pub fn attach(&self, id: u64, from: Option<u64>, db: i32, expires: i64, name: &[u8]) -> Result<u64> {
        let space = self.with_reserve(|| self.space_of(db))?;
        let value = entry_value(expires, name);
        let in_one_step = self.commit(self.was_freed(name), |step| {
            match from {
                Some(from) if from == space => {}
                Some(from) => step.remove(Of::Directory, &place(from, id)),
                None => step.remove(Of::Meta, &Note::Unattached(id).key()),
            }
            step.insert(Of::Directory, &place(space, id), &value);
        });
        match in_one_step {
            Err(error) if error.is_no_room() => self.attach_by_steps(id, from, space, &value)?,
            done => done?,
        }
        Ok(space)
    }

    /// Removes a map that no key has any more: its entry with the next write or [`settle`](Self::settle), its items in the
    /// background. What covers a map with another is one step so.
    pub fn detach(&self, id: u64, space: Option<u64>) {
        match space {
            // What is in a space that no database has goes with it.
            Some(space) if !self.is_live(space) => {}
            Some(space) => lock(&self.detached).push((id, space)),
            None => self.discard([Garbage::Map(id)]),
        }
    }

    /// Removes the entries of maps that no key has any more.
    ///
    /// # Errors
    ///
    /// Those of a write, if not even the entries could be removed. They are removed later.
    pub fn settle(&self) -> Result<()> {
        self.set_covered_aside();
        self.remove_in_one_step(false, &mut lock(&self.detached))
    }

    /// Removes them inside a command that may remove values of other types, too.
    pub fn settle_within(&self) -> Result<()> {
        self.set_covered_aside();
        self.remove_in_one_step(true, &mut lock(&self.detached))
    }

    /// Removes entries of maps that no key has any more; those that could not be removed stay in the list.
    pub fn remove_entries(&self, gone: &mut Vec<(u64, u64)>) -> Result<()> {
        self.remove_in_one_step(false, gone)
    }

    fn remove_in_one_step(&self, asked: bool, gone: &mut Vec<(u64, u64)>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        match self.in_one_step(asked, |step| remove_in(step, gone)) {
            Err(error) if error.is_no_room() => self.remove_by_steps(gone),
            Err(error) => Err(error),
            Ok(()) => {
                self.discard(gone.drain(..).map(|(id, _)| Garbage::Map(id)));
                Ok(())
            }
        }
    }

    /// Commits what `fill` puts into a step, together with the removal of what is detached. `asked`: see
    /// [`has_journal`](Self::has_journal).
    pub(super) fn commit(&self, asked: bool, fill: impl Fn(&mut Step<'_>)) -> Result<()> {
        self.set_covered_aside();
        let mut detached = lock(&self.detached);
        self.in_one_step(asked, |step| {
            remove_in(step, &detached);
            fill(step);
        })?;
        self.discard(detached.drain(..).map(|(id, _)| Garbage::Map(id)));
        Ok(())
    }

    /// Returns the maps that keys have, spaces and ids ascending.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let dbs: HashMap<u64, i32> =
            lock(&self.spaces).of_db.iter().map(|(db, space)| (*space, *db)).collect();
        let mut entries = Vec::new();
        for entry in self.directory.range(..) {
            let (key, value) = entry?;
            let space = number(key.get(..ID_BYTES).unwrap_or_default())?;
            let Some(db) = dbs.get(&space) else { continue };
            let (expires, name) = entry_of(&value).ok_or_else(|| damaged("a short entry"))?;
            entries.push(Entry {
                db: *db,
                space,
                id: number(&key[ID_BYTES..])?,
                expires,
                name: name.to_vec(),
            });
        }
        Ok(entries)
    }
}
