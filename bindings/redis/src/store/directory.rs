//! Which key has which map: the entries of the directory, and when they are written.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bristlecone::Result;

use super::{Garbage, ID_BYTES, Note, Of, Step, Store, damaged, item_key, lock, number};
use crate::map::{Large, Map, Owned, Small};

/// A map as the directory has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The database.
    pub db: i32,
    /// The map.
    pub place: Place,
    /// When it expires, in milliseconds since 1970, or [`FOREVER`].
    pub expires: i64,
    /// The Redis key.
    pub name: Vec<u8>,
    /// It has no field. Large maps do not say.
    pub is_empty: bool,
}

/// Where a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its space; 0 is none.
    pub space: u64,
    /// Its id.
    pub id: u64,
    /// All of it is in its entry.
    pub is_small: bool,
}

impl From<Small> for Place {
    fn from(small: Small) -> Self {
        Self { space: small.space(), id: small.id(), is_small: true }
    }
}

impl From<Place> for Owned {
    fn from(place: Place) -> Self {
        match place.small() {
            Some(small) => Self::Small(small),
            None => Self::Large(Box::new(Large::new(place.id, Some(place.space)))),
        }
    }
}

impl Place {
    /// Returns where a map is that has an entry.
    pub(super) fn of(map: Map<'_>) -> Option<Self> {
        match map {
            Map::Placeholder => None,
            Map::Small(small) => Some(small.into()),
            Map::Large(large) => Some(Self { space: large.space()?, id: large.id(), is_small: false }),
        }
    }

    /// Returns the tree of the entry, and its key.
    fn entry(&self) -> (Of, Vec<u8>) {
        match self.small() {
            Some(small) => (Of::Small, small.word().to_be_bytes().to_vec()),
            None => (Of::Directory, place(self.space, self.id)),
        }
    }

    fn small(&self) -> Option<Small> {
        Small::new(self.space, self.id).filter(|_| self.is_small)
    }
}

/// Returns the key of an entry of a large map.
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

/// Removes entries in a step; what is left of large maps is noted.
fn remove_in(step: &mut Step<'_>, gone: &[Place]) {
    for place in gone {
        let (of, key) = place.entry();
        step.remove(of, &key);
        if !place.is_small {
            step.insert(Of::Meta, &Note::Unattached(place.id).key(), b"");
        }
    }
}

/// Returns what is left of maps whose entries are removed.
fn left_of(gone: &mut Vec<Place>) -> impl Iterator<Item = Garbage> {
    gone.drain(..).filter(|place| !place.is_small).map(|place| Garbage::Map(place.id))
}

impl Store {
    /// Writes the entry of a map as its key is called and expires now. Returns what the key is to hold instead, if that is another.
    pub fn attach(&self, map: Map<'_>, db: i32, expires: i64, name: &[u8]) -> Result<Option<Owned>> {
        match map {
            Map::Placeholder => Ok(None),
            Map::Small(small) => self.attach_small(small, db, expires, name),
            Map::Large(large) => {
                let space = self.attach_large(large.id(), large.space(), db, expires, name)?;
                large.set_space(space);
                Ok(None)
            }
        }
    }

    fn attach_small(&self, small: Small, db: i32, expires: i64, name: &[u8]) -> Result<Option<Owned>> {
        let space = self.with_reserve(|| self.space_of(db))?;
        let grow = || Ok(Some(Owned::Large(Box::new(self.grow_to(small, space, expires, name)?))));
        let Some(to) = Small::new(space, small.id()) else { return grow() };
        let Some(value) = self.renamed(small, expires, name)? else { return grow() };
        let in_one_step = if to == small {
            self.write_small(self.was_freed(name), to, &value)
        } else {
            self.commit(self.was_freed(name), |step| {
                step.remove(Of::Small, &small.word().to_be_bytes());
                step.insert(Of::Small, &to.word().to_be_bytes(), &value);
            })
        };
        match in_one_step {
            Err(error) if error.is_no_room() => self.attach_small_by_steps(small, to, &value)?,
            done => done?,
        }
        Ok((to != small).then_some(Owned::Small(to)))
    }

    /// Writes the directory's entry of a large map that was in space `from`, or in none. Returns the space.
    fn attach_large(&self, id: u64, from: Option<u64>, db: i32, expires: i64, name: &[u8]) -> Result<u64> {
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
    pub fn detach(&self, map: &Owned) {
        let place = match map {
            Owned::Placeholder => return,
            Owned::Small(small) => Place::from(*small),
            Owned::Large(large) => match large.space() {
                Some(space) => Place { space, id: large.id(), is_small: false },
                None => return self.discard([Garbage::Map(large.id())]),
            },
        };
        // What is in a space that no database has goes with it. A small map that no key had yet is in space 0.
        if place.space == 0 || self.is_live(place.space) {
            self.add_detached([place]);
        }
    }

    /// Removes the entries of maps that no key has any more.
    ///
    /// # Errors
    ///
    /// Those of a write, if not even the entries could be removed. They are removed later.
    pub fn settle(&self) -> Result<()> {
        if !self.unsettled.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.set_covered_aside();
        let mut detached = lock(&self.detached);
        self.remove_in_one_step(false, &mut detached)?;
        if detached.is_empty() && lock(&self.covered).is_empty() {
            self.unsettled.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds to what is detached.
    pub(super) fn add_detached(&self, places: impl IntoIterator<Item = Place>) {
        let mut detached = lock(&self.detached);
        detached.extend(places);
        // While the list is locked: `settle` looks at both.
        self.unsettled.store(true, Ordering::Relaxed);
    }

    /// Removes them inside a command that may remove values of other types, too.
    pub fn settle_within(&self) -> Result<()> {
        self.set_covered_aside();
        self.remove_in_one_step(true, &mut lock(&self.detached))
    }

    /// Removes entries of maps that were covered, with their notes; those that could not be removed stay in the list.
    pub fn remove_covered(&self, gone: &mut Vec<Place>) -> Result<()> {
        let notes: Vec<u64> = gone.iter().map(|place| place.id).collect();
        self.remove_in_one_step(false, gone)?;
        // A note without a map is forgotten by the next start.
        notes.into_iter().try_for_each(|id| self.meta.remove(&Note::Covered(id).key()).map(drop))
    }

    fn remove_in_one_step(&self, asked: bool, gone: &mut Vec<Place>) -> Result<()> {
        match &gone[..] {
            [] => return Ok(()),
            [alone] if alone.is_small && !self.has_journal(asked) => {
                let (of, key) = alone.entry();
                let fields = self.fields_in(gone);
                self.set_in(of, &key, None)?;
                self.forget_fields(fields);
                gone.clear();
                return Ok(());
            }
            _ => {}
        }
        let fields = self.fields_in(gone);
        match self.in_one_step(asked, |step| remove_in(step, gone)) {
            Err(error) if error.is_no_room() => self.remove_by_steps(gone),
            Err(error) => Err(error),
            Ok(()) => {
                self.forget_fields(fields);
                self.discard(left_of(gone));
                Ok(())
            }
        }
    }

    /// Removes entries of maps that no key has one by one: a full pool has room for that. If there is none for a note, the items
    /// stay after a crash that comes before they are removed.
    pub(super) fn remove_by_steps(&self, gone: &mut Vec<Place>) -> Result<()> {
        while let Some(place) = gone.last().copied() {
            if !place.is_small {
                // Recovery takes no notice of it while there is an entry.
                _ = self.with_reserve(|| self.meta.upsert(&Note::Unattached(place.id).key(), b""));
            }
            let (of, key) = place.entry();
            let fields = self.fields_in(&[place]);
            self.set_in(of, &key, None)?;
            self.forget_fields(fields);
            gone.pop();
            if !place.is_small {
                lock(&self.garbage).push(Garbage::Map(place.id));
            }
        }
        Ok(())
    }

    /// Commits what `fill` puts into a step, together with the removal of what is detached. `asked`: see
    /// [`has_journal`](Self::has_journal).
    pub(super) fn commit(&self, asked: bool, fill: impl Fn(&mut Step<'_>)) -> Result<()> {
        self.set_covered_aside();
        let mut detached = lock(&self.detached);
        let fields = self.fields_in(&detached);
        self.in_one_step(asked, |step| {
            remove_in(step, &detached);
            fill(step);
        })?;
        self.forget_fields(fields);
        self.discard(left_of(&mut detached));
        Ok(())
    }

    /// Returns the database and the Redis key of a large map, if a key has it.
    pub fn key_of_large(&self, id: u64) -> Result<Option<(i32, Vec<u8>)>> {
        for (space, db) in self.dbs() {
            if let Some(entry) = self.directory.get(&place(space, id))? {
                let (_, name) = entry_of(&entry).ok_or_else(|| damaged("a short entry"))?;
                return Ok(Some((db, name.to_vec())));
            }
        }
        Ok(None)
    }

    /// Returns the Redis key of a map as the pool has it.
    pub(super) fn name_of(&self, place: Place) -> Option<Vec<u8>> {
        match place.small() {
            Some(small) => self.with_small(small, |entry| entry.name.to_vec()).ok(),
            None => {
                let entry = self.directory.get(&super::place(place.space, place.id)).ok().flatten();
                entry.as_deref().and_then(entry_of).map(|(_, name)| name.to_vec())
            }
        }
    }

    /// Returns how many fields small maps have that are to be removed. What is not there has none.
    fn fields_in(&self, gone: &[Place]) -> i64 {
        let len = |small| self.with_small(small, |entry| entry.len() as i64).unwrap_or(0);
        gone.iter().filter_map(Place::small).map(len).sum()
    }

    fn forget_fields(&self, fields: i64) {
        self.small_fields.fetch_sub(fields, Ordering::Relaxed);
    }

    /// Returns whether a map has a field.
    pub fn has_any(&self, entry: &Entry) -> Result<bool> {
        // A copy whose fields are still to come has some.
        match entry.place {
            Place { is_small: true, .. } => Ok(!entry.is_empty),
            Place { id, .. } => Ok(self.job_of(id).is_some() || self.has_fields(id)?),
        }
    }

    /// Returns which database each space is.
    fn dbs(&self) -> HashMap<u64, i32> {
        lock(&self.spaces).of_db.iter().map(|(db, space)| (*space, *db)).collect()
    }

    /// Returns the maps that keys have: the large ones, and then the small ones, whose fields are counted.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let dbs = self.dbs();
        let mut entries = Vec::new();
        for entry in self.directory.range(..) {
            let (key, value) = entry?;
            let space = number(key.get(..ID_BYTES).unwrap_or_default())?;
            let Some(db) = dbs.get(&space) else { continue };
            let (expires, name) = entry_of(&value).ok_or_else(|| damaged("a short entry"))?;
            let place = Place { space, id: number(&key[ID_BYTES..])?, is_small: false };
            entries.push(Entry { db: *db, place, expires, name: name.to_vec(), is_empty: false });
        }
        self.without_sweeping(|| {
            let mut fields = 0;
            self.each_small(None, |small, entry| {
                fields += entry.len() as i64;
                if let Some(db) = dbs.get(&small.space()) {
                    let (expires, name) = (entry.expires, entry.name.to_vec());
                    let is_empty = entry.len() == 0;
                    entries.push(Entry { db: *db, place: small.into(), expires, name, is_empty });
                }
                ControlFlow::Continue(())
            })?;
            self.small_fields.store(fields, Ordering::Relaxed);
            Result::Ok(())
        })?;
        Ok(entries)
    }
}
