//! How a pool is opened, and what a crash has interrupted is finished.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bristlecone::{Design, Domain, Error, Pool, Result};

use super::directory::place;
use super::{Garbage, ID_BYTES, Note, Spaces, Store, damaged, item_key, lock, number};

/// The default design of new trees. Its recovery does not grow with the number of items: with
/// the others a server that comes back looks at every field first.
const DESIGN: Design = Design::WoTree;

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
    /// A server without categories for a module's commands is refused.
    pub needs_categories: bool,
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
                Err(Error::NoSuchTree { .. }) => options.design(design.unwrap_or(DESIGN)).create(),
                opened => opened,
            }
        };
        let (items, directory, meta) = (tree("redis.items")?, tree("redis.directory")?, tree("redis.meta")?);
        let mut store = Self {
            pool: pool.clone(),
            items,
            directory,
            meta,
            next_id: AtomicU64::new(1),
            spaces: Mutex::default(),
            garbage: Mutex::default(),
            detached: Mutex::default(),
            covered: Mutex::default(),
            left_covered: Mutex::default(),
            journal: Mutex::default(),
            reserve: Mutex::default(),
            reserved: AtomicBool::new(false),
            was_saved: false,
            was_complete: false,
            sweeping: Mutex::default(),
            path: path.to_owned(),
        };
        if store.find_journal()? && !store.is_ready() {
            // A file is the truth.
            store.empty_journal()?;
        }
        if !store.is_undecided() {
            store.recover()?;
        }
        // What room was made with: see `reserve`.
        store.items.remove(&item_key(0, b""))?;
        store.was_saved = store.meta.remove(&Note::Saved.key())?.is_some();
        store.was_complete = store.meta.remove(&Note::Complete.key())?.is_some();
        match store.make_reserve() {
            Err(error) if !error.is_no_room() => Err(error),
            _ => Ok(store),
        }
    }

    /// Reads the notes, and counts on from the largest numbers in use.
    pub(super) fn recover(&self) -> Result<()> {
        // Each item is of a map of the directory, or of one that is noted; one that is damaged tells no number.
        let mut last = match self.items.range(..).next_back() {
            Some(Ok((key, _))) => number(&key[..ID_BYTES.min(key.len())])?,
            _ => 0,
        };
        for entry in self.directory.range(..) {
            let (key, _) = entry?;
            last = last.max(number(key.get(ID_BYTES..).unwrap_or_default())?);
        }
        let (mut spaces, mut garbage) = (lock(&self.spaces), lock(&self.garbage));
        spaces.next = 1;
        for note in self.meta.range(..) {
            let (key, value) = note?;
            if let Some(db) = key.strip_prefix(b"space:") {
                let db = db.try_into().map_err(|_| damaged("a database's number"))?;
                spaces.of_db.insert(i32::from_be_bytes(db), number(&value)?);
            } else if let Some(space) = key.strip_prefix(b"flushed:") {
                garbage.push(Garbage::Space(number(space)?));
            } else if let Some(id) = key.strip_prefix(b"unattached:") {
                last = last.max(number(id)?);
                garbage.push(Garbage::Map(number(id)?));
            } else if let Some(id) = key.strip_prefix(b"covered:") {
                lock(&self.left_covered).insert(number(id)?);
            } else if let Some(id) = key.strip_prefix(b"moving:") {
                self.finish_move(number(id)?, &value)?;
            } else if key == Note::NextSpace.key() {
                spaces.next = number(&value)?;
            }
        }
        // Operations that were interrupted between steps: a flush continues, and a key's map is attached.
        for (db, space) in spaces.of_db.clone() {
            if garbage.contains(&Garbage::Space(space)) {
                self.meta.remove(&Note::Space(db).key())?;
                spaces.of_db.remove(&db);
            }
        }
        let mut left = Vec::new();
        for waiting in garbage.drain(..) {
            match waiting {
                Garbage::Map(id) if self.is_attached(&spaces, id)? => {
                    self.meta.remove(&Note::Unattached(id).key())?;
                }
                waiting => left.push(waiting),
            }
        }
        *garbage = left;
        self.next_id.store(last + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the directory has a map under a database.
    fn is_attached(&self, spaces: &Spaces, id: u64) -> Result<bool> {
        for space in spaces.of_db.values() {
            if self.directory.get(&place(*space, id))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the server's own file has all that the pool had at the end of the process before.
    pub fn was_saved(&self) -> bool {
        self.was_saved
    }

    /// Returns whether the append-only file had all that the pool had at the end of the process before.
    pub fn was_complete(&self) -> bool {
        self.was_complete
    }

    /// Notes durably that the append-only file has all that the pool has. The process ends now.
    pub fn set_complete(&self) -> Result<()> {
        self.meta.upsert(&Note::Complete.key(), b"")
    }

    /// Notes durably that the server's own file has all that the pool has. The process ends now.
    pub fn set_saved(&self) -> Result<()> {
        self.meta.upsert(&Note::Saved.key(), b"")
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::entry_value;
    use super::super::{FOREVER, all_of, borrowed};
    use super::*;

    /// A pool's path, which is removed at the end.
    struct Place(String);

    impl Place {
        fn new(name: &str) -> Self {
            Self(format!("/dev/shm/bristlecone-redis-store-{}-{name}.pool", std::process::id()))
        }

        fn open(&self) -> Store {
            let options = Options { pool: self.0.clone(), max_bytes: Some(128 << 20), ..Options::default() };
            Store::open(&options).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            _ = std::fs::remove_file(&self.0);
        }
    }

    /// Returns databases and names of what is in the directory.
    fn names(store: &Store) -> Vec<(i32, Vec<u8>)> {
        store.entries().unwrap().into_iter().map(|entry| (entry.db, entry.name)).collect()
    }

    #[test]
    fn recovery_finishes_a_move_by_steps() {
        let place_of = Place::new("move");
        let store = place_of.open();
        let change: [(&[u8], Option<&[u8]>); 1] = [(b"field", Some(b"value"))];
        let ids: Vec<(u64, u64)> =
            [b"one", b"two"].iter().map(|name| store.create(0, *name, &change).unwrap()).collect();
        let to = store.space_of(7).unwrap();
        for (space, id) in &ids {
            let spaces = [space.to_be_bytes(), to.to_be_bytes()].concat();
            store.meta.upsert(&Note::Moving(*id).key(), &spaces).unwrap();
        }
        // The first one has its new entry, and the old one still.
        store.directory.upsert(&place(to, ids[0].1), &entry_value(FOREVER, b"one")).unwrap();
        drop(store);
        let store = place_of.open();
        assert_eq!(names(&store), [(0, b"two".to_vec()), (7, b"one".to_vec())]);
        assert!(ids.iter().all(|(_, id)| !store.meta.contains_key(&Note::Moving(*id).key()).unwrap()));
    }

    #[test]
    fn recovery_keeps_what_was_attached_and_not_yet_forgotten() {
        let place_of = Place::new("attach");
        let store = place_of.open();
        let (kept, lost) = (store.begin().unwrap(), store.begin().unwrap());
        for id in [kept, lost] {
            store.apply(id, &[(b"field", Some(b"value"))]).unwrap();
        }
        let space = store.space_of(0).unwrap();
        store.directory.upsert(&place(space, kept), &entry_value(5, b"kept")).unwrap();
        drop(store);
        let store = place_of.open();
        assert_eq!(names(&store), [(0, b"kept".to_vec())]);
        assert_eq!((store.next_garbage(), store.next_garbage()), (Some(Garbage::Map(lost)), None));
        assert_eq!(store.items.count(borrowed(&all_of(kept))).unwrap(), 1);
        assert!(store.begin().unwrap() > lost);
    }

    #[test]
    fn recovery_goes_on_with_a_flush_by_steps() {
        let place_of = Place::new("flush");
        let store = place_of.open();
        let change: [(&[u8], Option<&[u8]>); 1] = [(b"field", Some(b"value"))];
        let (space, _) = store.create(0, b"flushed", &change).unwrap();
        store.create(1, b"other", &change).unwrap();
        store.meta.upsert(&Note::Flushed(space).key(), b"").unwrap();
        drop(store);
        let store = place_of.open();
        assert_eq!(names(&store), [(1, b"other".to_vec())]);
        assert_eq!(store.next_garbage(), Some(Garbage::Space(space)));
        assert_ne!(store.space_of(0).unwrap(), space);
    }

    #[test]
    fn room_for_names_is_kept_and_filled_up_again() {
        let place_of = Place::new("reserve");
        let store = place_of.open();
        assert!(store.has_reserve());
        let free = store.pool.info().chunks_free;
        // A write that finds no room the first time gets what was kept.
        let tried = std::cell::Cell::new(0);
        let written = store.with_reserve(|| {
            tried.set(tried.get() + 1);
            if tried.get() == 1 {
                Err(Error::PoolFull { max_bytes: 0 })
            } else {
                Ok(store.pool.info().chunks_free)
            }
        });
        assert!(written.unwrap() >= free + 7);
        assert!(!store.has_reserve());
        store.make_reserve().unwrap();
        assert!(store.has_reserve());
        drop(store);
        assert!(place_of.open().has_reserve());
    }
}
