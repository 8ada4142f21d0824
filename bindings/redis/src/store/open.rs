//! How a pool is opened, and what a crash has interrupted is finished.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use bristlecone::{Design, Domain, Error, Key, Pool, Result, Tree, Value};

use super::directory::place;
use super::{Garbage, ID_BYTES, Note, Spaces, Store, Times, damaged, item_key, lock, number};

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

/// Opens a tree, or creates it.
fn open_tree<K: Key, V: Value>(pool: &Pool, name: &str, design: Option<Design>) -> Result<Tree<K, V>> {
    let mut options = pool.tree_options(name);
    if let Some(design) = design {
        options = options.design(design);
    }
    match options.open() {
        Err(Error::NoSuchTree { .. }) => options.design(design.unwrap_or(DESIGN)).create(),
        opened => opened,
    }
}

/// Returns the design of a tree.
fn design_of(pool: &Pool, name: &str) -> Result<Design> {
    let trees = pool.trees()?;
    trees.iter().find(|tree| tree.spec.name == name).map_or(Ok(DESIGN), |tree| Design::of(&tree.spec))
}

impl Store {
    /// Opens the pool, or creates it, and finds what an earlier process left to be removed.
    ///
    /// # Errors
    ///
    /// Those of [`bristlecone::PoolOptions::open`]; [`Error::Mismatch`] for trees of another design or of other kinds.
    pub fn open(options: &Options) -> Result<Self> {
        let mut pool = Pool::options().create(true);
        // The maximum of a pool is fixed while it is open, and a limit below it is not. So a new pool gets the default.
        let is_there = std::fs::metadata(&options.pool).is_ok_and(|found| found.len() > 0);
        if let (Some(bytes), true) = (options.max_bytes, is_there) {
            pool = pool.max_bytes(bytes);
        }
        if let Some(domain) = options.domain {
            pool = pool.domain(domain);
        }
        Self::on(&pool.open(&options.pool)?, options)
    }

    fn on(pool: &Pool, options: &Options) -> Result<Self> {
        let (design, path) = (options.design, options.pool.as_str());
        let info = pool.info();
        let sizes = (info.max_bytes, info.file_bytes.saturating_sub(info.chunks * info.chunk_bytes));
        let limit = options.max_bytes.unwrap_or(info.max_bytes);
        pool.set_limit(limit);
        let tree = |name: &str| open_tree(pool, name, design);
        let (items, directory, meta) = (tree("redis.items")?, tree("redis.directory")?, tree("redis.meta")?);
        let small = open_tree(pool, "redis.small", design)?;
        let times = Times::open(pool, design_of(pool, "redis.items")?)?;
        let mut store = Self {
            pool: pool.clone(),
            items,
            directory,
            small,
            small_fields: AtomicI64::new(0),
            meta,
            times,
            next_id: AtomicU64::new(1),
            spaces: Mutex::default(),
            garbage: Mutex::default(),
            detached: Mutex::default(),
            unsettled: AtomicBool::new(false),
            covered: Mutex::default(),
            left_covered: Mutex::default(),
            journal: Mutex::default(),
            jobs: Mutex::default(),
            reserve: Mutex::default(),
            reserved: AtomicBool::new(false),
            limit: AtomicU64::new(limit),
            sizes,
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
        last = last.max(self.last_small_id()?).max(self.last_id_with_times()?);
        for entry in self.directory.range(..) {
            let (key, _) = entry?;
            last = last.max(number(key.get(ID_BYTES..).unwrap_or_default())?);
        }
        let (mut spaces, mut garbage) = (lock(&self.spaces), lock(&self.garbage));
        let mut copies = Vec::new();
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
            } else if let Some(id) = key.strip_prefix(b"removing:") {
                self.finish_removal(number(id)?, &value)?;
            } else if let Some(id) = key.strip_prefix(b"copying:") {
                last = last.max(number(id)?);
                copies.push((number(id)?, value));
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
        for (to, from) in copies {
            self.find_copy(to, &from, self.is_attached(&spaces, to)?)?;
        }
        self.remove_unattached()?;
        self.next_id.store(last + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes small maps that no key had yet. They are not counted yet.
    fn remove_unattached(&self) -> Result<()> {
        let mut words = Vec::new();
        self.each_small(Some(0), |small, _| {
            words.push(small.word());
            ControlFlow::Continue(())
        })?;
        words.into_iter().try_for_each(|word| self.small.remove(word).map(drop))
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

    /// Returns the bytes to which the pool may grow, without its header.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the bytes to which the pool may grow.
    ///
    /// # Errors
    ///
    /// The pool cannot grow to that while it is open.
    pub fn set_limit(&self, bytes: u64) -> std::result::Result<(), String> {
        let maximum = self.sizes.0;
        if bytes == self.limit() {
            return Ok(());
        }
        if bytes > maximum {
            return Err(format!(
                "the maximum of this pool is {maximum} bytes: start the server with a larger max-bytes"
            ));
        }
        self.pool.set_limit(bytes);
        self.limit.store(bytes, Ordering::Relaxed);
        // A pool that becomes large enough keeps room for names from now on.
        self.reserved.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the largest size of the pool's file.
    pub fn max_bytes(&self) -> u64 {
        let (maximum, header) = self.sizes;
        maximum.min(self.limit().saturating_add(header))
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
    use super::super::{FOREVER, Place, all_of, borrowed};
    use super::*;
    use crate::map::{Map, Owned, SPACES, Small};

    /// A pool's path, which is removed at the end.
    struct Placed(String);

    impl Placed {
        fn new(name: &str) -> Self {
            Self(format!("/dev/shm/bristlecone-redis-store-{}-{name}.pool", std::process::id()))
        }

        fn open(&self) -> Store {
            let options = Options { pool: self.0.clone(), max_bytes: Some(128 << 20), ..Options::default() };
            Store::open(&options).unwrap()
        }
    }

    impl Drop for Placed {
        fn drop(&mut self) {
            _ = std::fs::remove_file(&self.0);
        }
    }

    /// Returns databases and names of what is in the directory.
    fn names(store: &Store) -> Vec<(i32, Vec<u8>)> {
        store.entries().unwrap().into_iter().map(|entry| (entry.db, entry.name)).collect()
    }

    /// Creates a map, which is small or is not. Returns where it is.
    fn create(store: &Store, is_small: bool, db: i32, name: &[u8]) -> Place {
        let value: &[u8] = if is_small { b"value" } else { &[b'v'; 300] };
        match store.create(db, name, &[(b"field", Some(value))], &[]).unwrap() {
            Owned::Small(small) if is_small => small.into(),
            Owned::Large(large) if !is_small => {
                Place { space: large.space().unwrap(), id: large.id(), is_small }
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn recovery_finishes_a_move_by_steps() {
        let place_of = Placed::new("move");
        let store = place_of.open();
        let large = [b"one", b"two"].map(|name| create(&store, false, 0, name));
        let small = [b"uno", b"due"].map(|name| create(&store, true, 0, name));
        let to = store.space_of(7).unwrap();
        for of in large {
            let spaces = [of.space.to_be_bytes(), to.to_be_bytes()].concat();
            store.meta.upsert(&Note::Moving(of.id).key(), &spaces).unwrap();
        }
        let word = |space, id| Small::new(space, id).unwrap().word();
        for of in small {
            let words = [word(of.space, of.id).to_be_bytes(), word(to, of.id).to_be_bytes(), [0; 8]].concat();
            store.meta.upsert(&Note::Moving(of.id).key(), &words).unwrap();
        }
        // The first ones have their new entries, and the old ones still.
        store.directory.upsert(&place(to, large[0].id), &entry_value(FOREVER, b"one")).unwrap();
        let entry = store.small.get(word(small[0].space, small[0].id)).unwrap().unwrap();
        store.small.upsert(word(to, small[0].id), &entry).unwrap();
        drop(store);
        let store = place_of.open();
        let expected = [(0, "two"), (7, "one"), (0, "due"), (7, "uno")];
        assert_eq!(names(&store), expected.map(|(db, name)| (db, name.as_bytes().to_vec())));
        for of in [large, small].as_flattened() {
            assert!(!store.meta.contains_key(&Note::Moving(of.id).key()).unwrap());
        }
    }

    #[test]
    fn recovery_keeps_what_was_attached_and_not_yet_forgotten() {
        let place_of = Placed::new("attach");
        let store = place_of.open();
        let (kept, lost) = (store.begin().unwrap(), store.begin().unwrap());
        for id in [kept, lost] {
            store.fill(id, &[(b"field", b"value")]).unwrap();
        }
        let space = store.space_of(0).unwrap();
        store.directory.upsert(&place(space, kept), &entry_value(5, b"kept")).unwrap();
        let loaded = store.begin_small(b"loaded", &[(b"field", b"value")]).unwrap().unwrap();
        let left = store.begin_small(b"left", &[(b"field", b"value")]).unwrap().unwrap();
        let attached = store.attach(Map::Small(loaded), 0, FOREVER, b"loaded").unwrap();
        assert!(matches!(attached, Some(Owned::Small(small)) if small.id() == loaded.id()));
        drop(store);
        let store = place_of.open();
        assert_eq!(names(&store), [(0, b"kept".to_vec()), (0, b"loaded".to_vec())]);
        assert_eq!((store.next_garbage(), store.next_garbage()), (Some(Garbage::Map(lost)), None));
        assert_eq!(store.items.count(borrowed(&all_of(kept))).unwrap(), 1);
        assert_eq!(store.small.len().unwrap(), 1);
        assert!(store.begin().unwrap() > left.id());
    }

    #[test]
    fn recovery_goes_on_with_a_flush_by_steps() {
        let place_of = Placed::new("flush");
        let store = place_of.open();
        let space = create(&store, true, 0, b"small").space;
        create(&store, false, 0, b"flushed");
        create(&store, false, 1, b"other");
        store.meta.upsert(&Note::Flushed(space).key(), b"").unwrap();
        drop(store);
        let store = place_of.open();
        assert_eq!(names(&store), [(1, b"other".to_vec())]);
        let garbage = store.next_garbage().unwrap();
        assert_eq!(garbage, Garbage::Space(space));
        assert_ne!(store.space_of(0).unwrap(), space);
        while !store.sweep(garbage, 1).unwrap().is_gone {}
        assert_eq!((store.small.len().unwrap(), store.items.len().unwrap()), (0, 1));
    }

    #[test]
    fn numbers_of_spaces_come_again_once_they_are_free() {
        let place_of = Placed::new("spaces");
        let store = place_of.open();
        let kept = create(&store, true, 1, b"kept").space;
        store.meta.upsert(&Note::Flushed(kept + 1).key(), b"").unwrap();
        store.meta.upsert(&Note::NextSpace.key(), &SPACES.to_be_bytes()).unwrap();
        drop(store);
        let store = place_of.open();
        let found: Vec<u64> = (2..5).map(|db| store.space_of(db).unwrap()).collect();
        assert_eq!(found, [kept + 2, kept + 3, kept + 4]);
        assert_eq!(create(&store, true, 4, b"small").space, kept + 4);
    }

    #[test]
    fn room_for_names_is_kept_and_filled_up_again() {
        let place_of = Placed::new("reserve");
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
        assert!(written.unwrap() >= free + 11);
        assert!(!store.has_reserve());
        store.make_reserve().unwrap();
        assert!(store.has_reserve());
        drop(store);
        assert!(place_of.open().has_reserve());
    }
}
