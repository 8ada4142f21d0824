//! Where the maps are: three trees of one pool, and what a crash may find there.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `redis.items` | map id, field | value |
//! | `redis.directory` | space, map id | time to live, Redis key |
//! | `redis.meta` | see [`Note`] | |
//!
//! Beside them `redis.reserve` keeps room: see [`reserve`].
//!
//! A *space* is what a database of Redis is stored as. `SWAPDB` exchanges the spaces of two databases, and flushing
//! one gives it a new space: both are one batch, however many maps there are. What is in a space that no database
//! has is removed in the background, and so are the items of a map that is noted as *unattached*. Such a map is one
//! that is being loaded, or one that was deleted; so whatever a crash interrupts, the next start finds every item
//! either in a map of the directory or noted for removal.

mod garbage;
mod reserve;

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bristlecone::{Batch, Design, Domain, Error, Pool, Result, Tree};

pub use garbage::Garbage;

/// A tree of byte strings.
pub type Bytes = Tree<Vec<u8>, Vec<u8>>;

/// What a field gets; `None`: it is removed.
pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Time to live of a map that has none.
pub const FOREVER: i64 = -1;

/// Bytes of a map's id, before its fields.
pub const ID_BYTES: usize = 8;

/// What stands in `redis.meta`.
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
    /// A map that gets from one space to another: both spaces.
    Moving(u64),
    /// The server has written all that it has into its own file, and has ended since.
    Saved,
}

impl Note {
    fn key(&self) -> Vec<u8> {
        match self {
            Self::Ready => b"ready".to_vec(),
            Self::Space(db) => [b"space:".as_slice(), &db.to_be_bytes()].concat(),
            Self::NextSpace => b"next".to_vec(),
            Self::Flushed(space) => [b"flushed:".as_slice(), &space.to_be_bytes()].concat(),
            Self::Unattached(id) => [b"unattached:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Moving(id) => [b"moving:".as_slice(), &id.to_be_bytes()].concat(),
            Self::Saved => b"saved".to_vec(),
        }
    }
}

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
    meta: Bytes,
    next_id: AtomicU64,
    spaces: Mutex<Spaces>,
    garbage: Mutex<Vec<Garbage>>,
    /// Maps that no key has any more, of which the pool does not know yet: ids and spaces.
    detached: Mutex<Vec<(u64, u64)>>,
    /// Held while room is set aside or given back.
    reserve: Mutex<()>,
    reserved: AtomicBool,
    was_saved: bool,
    /// Held while something is removed in the background.
    sweeping: Mutex<()>,
    path: String,
}

/// How the pool is opened: the module's arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The pool's path.
    pub pool: String,
    /// What it may grow to.
    pub max_bytes: Option<u64>,
    /// The design of the trees.
    pub design: Option<Design>,
    /// The persistence domain.
    pub domain: Option<Domain>,
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

fn place(space: u64, id: u64) -> Vec<u8> {
    item_key(space, &id.to_be_bytes())
}

/// Lengths that values of the directory have, so that names need few sizes of slots: each size has a chunk of its own.
const ENTRY_BYTES: [usize; 4] = [48, 240, 2032, 16_368];

/// Returns what the directory has of a map: time to live, length of the name, the name, and zeros.
fn entry_value(expires: i64, name: &[u8]) -> Vec<u8> {
    let mut value =
        [expires.to_be_bytes().as_slice(), (name.len() as u32).to_be_bytes().as_slice(), name].concat();
    if let Some(len) = ENTRY_BYTES.into_iter().find(|len| *len >= value.len()) {
        value.resize(len, 0);
    }
    value
}

/// Returns the time to live and the name.
fn entry_of(value: &[u8]) -> Option<(i64, &[u8])> {
    let (expires, rest) = value.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    Some((i64::from_be_bytes(*expires), rest.get(..u32::from_be_bytes(*len) as usize)?))
}

impl Store {
    /// Opens the pool, or creates it, and finds what an earlier process left to be removed.
    ///
    /// # Errors
    ///
    /// Those of [`bristlecone::PoolOptions::open`]; [`Error::Mismatch`] for trees of another design or of other kinds.
    pub fn open(options: &Options) -> Result<Self> {
        let mut pool = Pool::options().create(true);
        if let Some(bytes) = options.max_bytes {
            pool = pool.max_bytes(bytes);
        }
        if let Some(domain) = options.domain {
            pool = pool.domain(domain);
        }
        Self::on(&pool.open(&options.pool)?, options.design, &options.pool)
    }

    fn on(pool: &Pool, design: Option<Design>, path: &str) -> Result<Self> {
        let tree = |name: &str| {
            let mut options = pool.tree_options(name);
            if let Some(design) = design {
                options = options.design(design);
            }
            match options.open() {
                Err(Error::NoSuchTree { .. }) => options.create(),
                opened => opened,
            }
        };
        let (items, directory, meta) = (tree("redis.items")?, tree("redis.directory")?, tree("redis.meta")?);
        let saved = Note::Saved.key();
        let mut store = Self {
            pool: pool.clone(),
            items,
            directory,
            meta,
            next_id: AtomicU64::new(1),
            spaces: Mutex::default(),
            garbage: Mutex::default(),
            detached: Mutex::default(),
            reserve: Mutex::default(),
            reserved: AtomicBool::new(false),
            was_saved: false,
            sweeping: Mutex::default(),
            path: path.to_owned(),
        };
        store.recover()?;
        // What room was made with: see `reserve`.
        store.items.remove(&item_key(0, b""))?;
        store.was_saved = store.meta.remove(&saved)?.is_some();
        match store.make_reserve() {
            Err(error) if !error.is_no_room() => Err(error),
            _ => Ok(store),
        }
    }

    /// Reads the notes, and counts on from the largest numbers in use.
    fn recover(&self) -> Result<()> {
        let mut last =
            self.items.last_key_value().map_or(Ok(0), |(key, _)| number(&key[..ID_BYTES.min(key.len())]))?;
        for (key, _) in self.directory.iter() {
            last = last.max(number(key.get(ID_BYTES..).unwrap_or_default())?);
        }
        let (mut spaces, mut garbage) = (lock(&self.spaces), lock(&self.garbage));
        spaces.next = 1;
        for (key, value) in self.meta.iter() {
            if let Some(db) = key.strip_prefix(b"space:") {
                let db = db.try_into().map_err(|_| damaged("a database's number"))?;
                spaces.of_db.insert(i32::from_be_bytes(db), number(&value)?);
            } else if let Some(space) = key.strip_prefix(b"flushed:") {
                garbage.push(Garbage::Space(number(space)?));
            } else if let Some(id) = key.strip_prefix(b"unattached:") {
                last = last.max(number(id)?);
                garbage.push(Garbage::Map(number(id)?));
            } else if let Some(id) = key.strip_prefix(b"moving:") {
                self.finish_move(number(id)?, &value)?;
            } else if key == Note::NextSpace.key() {
                spaces.next = number(&value)?;
            }
        }
        // What was interrupted step by step: a flush goes on, and what a key has is attached.
        for (db, space) in spaces.of_db.clone() {
            if garbage.contains(&Garbage::Space(space)) {
                self.meta.remove(&Note::Space(db).key())?;
                spaces.of_db.remove(&db);
            }
        }
        let has_key =
            |id: u64| spaces.of_db.values().any(|space| self.directory.contains_key(&place(*space, id)));
        for id in
            garbage.iter().filter_map(|garbage| if let Garbage::Map(id) = garbage { Some(*id) } else { None })
        {
            if has_key(id) {
                self.meta.remove(&Note::Unattached(id).key())?;
            }
        }
        garbage.retain(|garbage| !matches!(garbage, Garbage::Map(id) if has_key(*id)));
        self.next_id.store(last + 1, Ordering::Relaxed);
        Ok(())
    }

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

    /// Returns the tree of notes, for what verifies it.
    pub fn notes(&self) -> &Bytes {
        &self.meta
    }

    fn note(&self, batch: &mut Batch, note: &Note, value: &[u8]) {
        batch.insert(&self.meta, &note.key(), value);
    }

    fn forget(&self, batch: &mut Batch, note: &Note) {
        batch.remove(&self.meta, &note.key());
    }

    /// Returns whether the pool holds all that it should.
    pub fn is_ready(&self) -> bool {
        self.meta.contains_key(&Note::Ready.key())
    }

    /// Notes durably whether the pool holds all that it should.
    pub fn set_ready(&self, ready: bool) -> Result<()> {
        let key = Note::Ready.key();
        if ready { self.meta.upsert(&key, b"1") } else { self.meta.remove(&key).map(drop) }
    }

    /// Returns whether the server's own file has all that the pool had at the end of the process before.
    pub fn was_saved(&self) -> bool {
        self.was_saved
    }

    /// Notes durably that the server's own file has all that the pool has. The process ends now.
    pub fn set_saved(&self) -> Result<()> {
        self.meta.upsert(&Note::Saved.key(), b"")
    }

    /// Returns the space of a database, which gets one if it has none.
    pub fn space_of(&self, db: i32) -> Result<u64> {
        let mut spaces = lock(&self.spaces);
        if let Some(space) = spaces.of_db.get(&db) {
            return Ok(*space);
        }
        let space = spaces.next;
        // In this order a crash costs a number at most.
        self.meta.upsert(&Note::NextSpace.key(), &(space + 1).to_be_bytes())?;
        self.meta.upsert(&Note::Space(db).key(), &space.to_be_bytes())?;
        spaces.next += 1;
        spaces.of_db.insert(db, space);
        Ok(space)
    }

    fn is_live(&self, space: u64) -> bool {
        lock(&self.spaces).of_db.values().any(|of_db| *of_db == space)
    }

    /// Removes all maps of a database, or of all: at once for what reads the directory, in the background for the pool.
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
            let mut batch = self.pool.batch();
            for (db, space) in &flushed {
                self.forget(&mut batch, &Note::Space(*db));
                self.note(&mut batch, &Note::Flushed(*space), b"");
            }
            batch.commit()?;
        } else {
            // Recovery finishes what has begun.
            for (db, space) in &flushed {
                self.meta.upsert(&Note::Flushed(*space).key(), b"")?;
                self.meta.remove(&Note::Space(*db).key())?;
            }
        }
        for (db, space) in flushed {
            spaces.of_db.remove(&db);
            lock(&self.garbage).push(Garbage::Space(space));
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
        let mut batch = self.pool.batch();
        for (db, space) in [(one, had_other), (other, had_one)] {
            match space {
                Some(space) => self.note(&mut batch, &Note::Space(db), &space.to_be_bytes()),
                None => self.forget(&mut batch, &Note::Space(db)),
            }
        }
        batch.commit()?;
        for (db, space) in [(one, had_other), (other, had_one)] {
            match space {
                Some(space) => spaces.of_db.insert(db, space),
                None => spaces.of_db.remove(&db),
            };
        }
        Ok(())
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes fields of a map: all of them or, after `Err`, none.
    pub fn apply(&self, id: u64, changes: &[Change<'_>]) -> Result<()> {
        self.settle()?;
        match changes {
            [] => Ok(()),
            [(field, Some(value))] => self.items.upsert(&item_key(id, field), value),
            [(field, None)] => self.items.remove(&item_key(id, field)).map(drop),
            many => {
                let mut batch = self.pool.batch();
                self.change(&mut batch, id, many);
                batch.commit()
            }
        }
    }

    /// Writes a field of a map. Returns whether it is new.
    pub fn put(&self, id: u64, field: &[u8], value: &[u8]) -> Result<bool> {
        self.settle()?;
        Ok(self.items.insert(&item_key(id, field), value)?.is_none())
    }

    /// Removes a field of a map. Returns whether it was there.
    pub fn take(&self, id: u64, field: &[u8]) -> Result<bool> {
        self.settle()?;
        Ok(self.items.remove(&item_key(id, field))?.is_some())
    }

    fn change(&self, batch: &mut Batch, id: u64, changes: &[Change<'_>]) {
        for (field, value) in changes {
            let key = item_key(id, field);
            match value {
                Some(value) => batch.insert(&self.items, &key, value),
                None => batch.remove(&self.items, &key),
            };
        }
    }

    /// Creates a map with its first fields under a Redis key, in one step; returns its space and id.
    pub fn create(&self, db: i32, name: &[u8], changes: &[Change<'_>]) -> Result<(u64, u64)> {
        let (space, id) = (self.space_of(db)?, self.new_id());
        self.commit(|batch| {
            batch.insert(&self.directory, &place(space, id), &entry_value(FOREVER, name));
            self.change(batch, id, changes);
        })?;
        Ok((space, id))
    }

    /// Begins a map that no key has yet; unless it is attached to one, a crash removes it.
    pub fn begin(&self) -> Result<u64> {
        self.settle()?;
        let id = self.new_id();
        self.meta.upsert(&Note::Unattached(id).key(), b"")?;
        Ok(id)
    }

    /// Writes the directory's entry of a map that was in space `from`, or in none. Returns the space.
    pub fn attach(&self, id: u64, from: Option<u64>, db: i32, expires: i64, name: &[u8]) -> Result<u64> {
        let space = self.with_reserve(|| self.space_of(db))?;
        let value = entry_value(expires, name);
        let in_one_step = self.commit(|batch| {
            match from {
                Some(from) if from == space => {}
                Some(from) => _ = batch.remove(&self.directory, &place(from, id)),
                None => self.forget(batch, &Note::Unattached(id)),
            }
            batch.insert(&self.directory, &place(space, id), &value);
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
            None => lock(&self.garbage).push(Garbage::Map(id)),
        }
    }

    /// Removes the entries of maps that no key has any more.
    ///
    /// # Errors
    ///
    /// Those of a write, if not even the entries could be removed. They are removed later.
    pub fn settle(&self) -> Result<()> {
        if lock(&self.detached).is_empty() {
            return Ok(());
        }
        match self.commit(|_| {}) {
            Err(error) if error.is_no_room() => self.settle_by_steps(),
            settled => settled,
        }
    }

    /// Commits what `fill` puts into a batch, together with the removal of what is detached.
    fn commit(&self, fill: impl FnOnce(&mut Batch)) -> Result<()> {
        let mut detached = lock(&self.detached);
        let mut batch = self.pool.batch();
        for (id, space) in &*detached {
            batch.remove(&self.directory, &place(*space, *id));
            self.note(&mut batch, &Note::Unattached(*id), b"");
        }
        fill(&mut batch);
        batch.commit()?;
        lock(&self.garbage).extend(detached.drain(..).map(|(id, _)| Garbage::Map(id)));
        Ok(())
    }

    /// Returns the maps that keys have, spaces and ids ascending.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let dbs: HashMap<u64, i32> =
            lock(&self.spaces).of_db.iter().map(|(db, space)| (*space, *db)).collect();
        let mut entries = Vec::new();
        for (key, value) in self.directory.iter() {
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
