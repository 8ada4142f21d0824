//! Where the maps are: trees of one pool, and what a crash may find there.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `redis.items` | map id, field | value |
//! | `redis.directory` | space, map id | time to live, Redis key |
//! | `redis.small` | space and map id in one word | all of a small map: see [`small`] |
//! | `redis.meta` | see [`Note`] | |
//! | `redis.expiries` | map id, field | when the field expires: see [`expiries`] |
//!
//! Beside them `redis.reserve` keeps room: see [`reserve`]. How changes of a group are undone after a crash: see [`journal`].
//!
//! A *space* is what a database of Redis is stored as. `SWAPDB` exchanges the spaces of two databases, and flushing
//! one gives it a new space: both are one batch, however many maps there are. What is in a space that no database
//! has is removed in the background, and so are the items of a map that is noted as *unattached*. Such a map is one
//! that is being loaded, or one that was deleted; so whatever a crash interrupts, the next start finds every item
//! either in a map of the directory or noted for removal.

mod cover;
mod directory;
mod expiries;
mod garbage;
mod journal;
mod long;
mod open;
mod read;
mod reserve;
mod small;
mod spaces;

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bristlecone::{Error, Pool, Result, Tree};

use cover::Covered;
pub use directory::Place;
use directory::{entry_value, place};
use expiries::Times;
pub use expiries::{Entry as TimeEntry, Expiries, Live, NO_TIME, Time, as_item, is_over};
pub use garbage::Garbage;
use journal::{Journal, Of, Step};
pub use long::{Job, Task, Unfinished};
pub use open::Options;
pub use read::{Bounds, Item, is_damage};
pub use small::Entry as SmallEntry;
use small::Words;

use crate::map::{Large, Map, Owned, Small};

/// A tree of byte strings.
pub type Bytes = Tree<Vec<u8>, Vec<u8>>;

/// What a field gets; `None`: it is removed.
pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Time to live of a map that has none.
pub const FOREVER: i64 = -1;

/// Bytes of a map's id, before its fields.
pub const ID_BYTES: usize = 8;

/// The keys of `redis.meta`.
enum Note {
    /// The pool holds all that it should: what other files say about maps is skipped.
    Ready,
    /// The space of a database.
    Space(i32),
    /// The number that the next space gets.
    NextSpace,
    /// A space whose maps are removed.
    Flushed(u64),
    /// A map whose items are removed, unless it is attached to a key before.
    Unattached(u64),
    /// A map whose name another type of the server has, unless the server's append-only file does not have that yet.
    Covered(u64),
    /// A map that gets from one space to another: both spaces.
    Moving(u64),
    /// A map from which fields are removed: the first one and the last one. See [`long`].
    Removing(u64),
    /// A map that is a copy, and of which map. See [`long`].
    Copying(u64),
    /// The server has written all that it has into its own file, and has ended since.
    Saved,
    /// The append-only file has all maps, and the server has ended since.
    Complete,
}

impl Note {
    fn key(&self) -> Vec<u8> {
        match self {
            Self::Ready => b"ready".to_vec(),
            Self::Space(db) => [b"space:".as_slice(), &db.to_be_bytes()].concat(),
            Self::NextSpace => b"next".to_vec(),
            Self::Flushed(space) => [b"flushed:".as_slice(), &space.to_be_bytes()].concat(),
            Self::Unattached(id) => [b"unattached:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Covered(id) => [b"covered:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Moving(id) => [b"moving:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Removing(id) => [b"removing:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Copying(id) => [b"copying:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Saved => b"saved".to_vec(),
            Self::Complete => b"complete".to_vec(),
        }
    }
}

#[derive(Default)]
struct Spaces {
    of_db: HashMap<i32, u64>,
    next: u64,
}

/// The pool and its trees.
pub struct Store {
    pool: Pool,
    items: Bytes,
    directory: Bytes,
    small: Words,
    /// Fields of small maps, those of maps that no key has any more included.
    small_fields: AtomicI64,
    meta: Bytes,
    times: Times,
    next_id: AtomicU64,
    spaces: Mutex<Spaces>,
    garbage: Mutex<Vec<Garbage>>,
    /// Maps that no key has any more, of which the pool does not know yet.
    detached: Mutex<Vec<Place>>,
    /// Whether `detached` or `covered` may have any.
    unsettled: AtomicBool,
    /// Those of them whose names have values of other types: see [`cover`].
    covered: Mutex<Vec<Covered>>,
    /// Which maps a crash left covered.
    left_covered: Mutex<HashSet<u64>>,
    journal: Mutex<Journal>,
    /// Changes that threads make, and have not ended.
    jobs: Mutex<Vec<Arc<Job>>>,
    /// Held while the reserve is filled or released.
    reserve: Mutex<()>,
    reserved: AtomicBool,
    /// Bytes to which the pool may grow.
    limit: AtomicU64,
    /// The maximum of the pool, and the bytes of its header. To ask the pool for them takes milliseconds.
    sizes: (u64, u64),
    was_saved: bool,
    was_complete: bool,
    /// Held while something is removed in the background.
    sweeping: Mutex<()>,
    path: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(bytes: &[u8]) -> Result<u64> {
    let array = bytes.try_into().map_err(|_| damaged("a number of another length than eight bytes"))?;
    Ok(u64::from_be_bytes(array))
}

fn damaged(what: &str) -> Error {
    Error::Corrupted { what: what.to_owned(), location: "the trees of Redis' maps".to_owned() }
}

/// Returns the key of an item.
pub fn item_key(id: u64, field: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(ID_BYTES + field.len());
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(field);
    key
}

/// Longest key that is put together on the stack.
const STACK_BYTES: usize = 128;

/// Calls `with` with the key of an item.
#[inline]
pub fn with_item_key<R>(id: u64, field: &[u8], with: impl FnOnce(&[u8]) -> R) -> R {
    let mut buffer = [0; STACK_BYTES];
    let Some(key) = buffer.get_mut(..ID_BYTES + field.len()) else { return with(&item_key(id, field)) };
    key[..ID_BYTES].copy_from_slice(&id.to_be_bytes());
    key[ID_BYTES..].copy_from_slice(field);
    with(key)
}

/// Returns bounds of all keys that begin with a number.
pub fn all_of(number: u64) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end =
        number.checked_add(1).map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_be_bytes().to_vec()));
    (Bound::Included(number.to_be_bytes().to_vec()), end)
}

/// Returns the same bounds, borrowed as the trees ask for them.
pub fn borrowed(bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}

fn change(step: &mut Step<'_>, id: u64, changes: &[Change<'_>]) {
    for (field, value) in changes {
        let key = item_key(id, field);
        match value {
            Some(value) => step.insert(Of::Items, &key, value),
            None => step.remove(Of::Items, &key),
        }
    }
}

impl Store {
    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the pool's path.
    pub fn name(&self) -> &str {
        &self.path
    }

    /// Returns the tree of items.
    pub fn items(&self) -> &Bytes {
        &self.items
    }

    /// Returns the directory, for what counts or verifies it.
    pub fn directory(&self) -> &Bytes {
        &self.directory
    }

    /// Returns whether the pool has maps.
    pub fn has_maps(&self) -> Result<bool> {
        Ok(!self.directory.is_empty()? || !self.small.is_empty()?)
    }

    /// Returns the tree of notes, for what verifies it.
    pub fn notes(&self) -> &Bytes {
        &self.meta
    }

    /// Returns whether the pool holds all that it should. A note that cannot be read counts: the maps of the pool are not
    /// given up for it.
    pub fn is_ready(&self) -> bool {
        self.meta.contains_key(&Note::Ready.key()).unwrap_or(true)
    }

    /// Notes durably whether the pool holds all that it should.
    pub fn set_ready(&self, ready: bool) -> Result<()> {
        let key = Note::Ready.key();
        if ready { self.meta.upsert(&key, b"1") } else { self.meta.remove(&key).map(drop) }
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes fields of a large map, which lose their times, and writes times of its fields: all of that or, after `Err`, nothing.
    pub fn apply(&self, large: &Large, changes: &[Change<'_>], times: &[Time<'_>]) -> Result<()> {
        self.settle()?;
        self.begin_times(times)?;
        let (id, losing) = (large.id(), self.losing(large, changes, times)?);
        let has_times = !losing.is_empty() || !times.is_empty();
        self.with_room(|| match changes {
            [] if !has_times => Ok(()),
            [change] if !has_times && !self.has_journal(false) => self.change_alone(id, change),
            many => self.in_one_step(false, |step| {
                change(step, id, many);
                expiries::change(step, id, &losing, times);
            }),
        })?;
        self.note_times(Some(large), times);
        Ok(())
    }

    /// Removes fields of a large map between which it has no other, all of them or, after `Err`, none. One commit does that for any
    /// number, and takes the same little room.
    pub fn take_row(&self, large: &Large, fields: &[&[u8]]) -> Result<()> {
        let ends = fields.iter().min().zip(fields.iter().max());
        match ends {
            Some((first, last)) if first != last && !self.has_journal(false) && !self.has_times(large)? => {
                self.settle()?;
                let [first, last] = [first, last].map(|field| item_key(large.id(), field));
                self.items.remove_range((Bound::Included(&first[..]), Bound::Included(&last[..]))).map(drop)
            }
            _ => {
                let changes: Vec<Change<'_>> = fields.iter().map(|field| (*field, None)).collect();
                self.apply(large, &changes, &[])
            }
        }
    }

    /// Writes fields of a map that no key has yet.
    pub fn fill(&self, id: u64, items: &[(&[u8], &[u8])]) -> Result<()> {
        self.with_room(|| {
            let mut batch = self.pool.batch();
            for (field, value) in items {
                batch.insert(&self.items, &item_key(id, field), value);
            }
            batch.commit()
        })
    }

    fn change_alone(&self, id: u64, (field, value): &Change<'_>) -> Result<()> {
        let key = item_key(id, field);
        match value {
            Some(value) => self.items.upsert(&key, value),
            None => self.items.remove(&key).map(drop),
        }
    }

    /// Writes a field of a large map, which loses its time. Returns whether it is new.
    pub fn put(&self, large: &Large, field: &[u8], value: &[u8]) -> Result<bool> {
        if self.time_of(large, field)?.is_some() {
            return self.apply(large, &[(field, Some(value))], &[]).map(|()| false);
        }
        self.settle()?;
        with_item_key(large.id(), field, |key| {
            if self.has_journal(false) {
                let old = self.items.get(key)?;
                self.with_room(|| self.replace(Of::Items, key, old.clone(), Some(value)))?;
                return Ok(old.is_none());
            }
            Ok(self.with_room(|| self.items.insert(key, value))?.is_none())
        })
    }

    /// Removes a field of a large map. Returns whether it was there.
    pub fn take(&self, large: &Large, field: &[u8]) -> Result<bool> {
        if self.time_of(large, field)?.is_some() {
            return self.apply(large, &[(field, None)], &[]).map(|()| true);
        }
        self.settle()?;
        let key = item_key(large.id(), field);
        if self.has_journal(false) {
            let old = self.items.get(&key)?;
            let is_there = old.is_some();
            self.replace(Of::Items, &key, old, None)?;
            return Ok(is_there);
        }
        Ok(self.items.remove(&key)?.is_some())
    }

    /// Creates a map with its first fields, and times of some of them, under a Redis key, in one step.
    pub fn create(&self, db: i32, name: &[u8], changes: &[Change<'_>], times: &[Time<'_>]) -> Result<Owned> {
        self.help(changes.len());
        self.begin_times(times)?;
        let (space, id) = (self.with_room(|| self.space_of(db))?, self.new_id());
        let small_value = if times.is_empty() { self.small_value(name, changes) } else { None };
        if let (Some(small), Some(value)) = (Small::new(space, id), small_value) {
            self.with_room(|| self.write_small(self.was_freed(name), small, &value))?;
            self.small_fields.fetch_add(small::len_of(&value), Ordering::Relaxed);
            return Ok(Owned::Small(small));
        }
        self.with_room(|| {
            self.commit(self.was_freed(name), |step| {
                step.insert(Of::Directory, &place(space, id), &entry_value(FOREVER, name));
                change(step, id, changes);
                expiries::change(step, id, &[], times);
            })
        })?;
        let large = Large::new(id, Some(space));
        large.set_len(changes.len() as u64);
        large.set_earliest(u64::MAX);
        self.note_times(Some(&large), times);
        Ok(Owned::Large(Box::new(large)))
    }

    /// Creates a map with its first fields under a Redis key that has a map already, whose removal is part of the same step.
    pub fn create_over(
        &self,
        db: i32,
        name: &[u8],
        changes: &[Change<'_>],
        times: &[Time<'_>],
        old: Option<Map<'_>>,
    ) -> Result<Owned> {
        let old = old.and_then(Place::of);
        self.add_detached(old);
        let created = self.create(db, name, changes, times);
        if created.is_err() {
            // Nothing has changed: the key has it still.
            lock(&self.detached).retain(|place| Some(*place) != old);
        }
        created
    }

    /// Writes the entry of a small map, with what is detached.
    fn write_small(&self, asked: bool, small: Small, value: &[u8]) -> Result<()> {
        self.set_covered_aside();
        if lock(&self.detached).is_empty() && !self.has_journal(asked) {
            return self.small.upsert(small.word(), value);
        }
        self.commit(asked, |step| step.insert(Of::Small, &small.word().to_be_bytes(), value))
    }

    /// Begins a map that no key has yet; unless it is attached to one, a crash removes it.
    pub fn begin(&self) -> Result<u64> {
        self.settle()?;
        let id = self.new_id();
        self.with_room(|| self.meta.upsert(&Note::Unattached(id).key(), b""))?;
        Ok(id)
    }
}
