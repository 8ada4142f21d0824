//! Alternative stores, through their own crates, and wrappers for PiBench.
//!
//! Keys and values are bytes to them; each operation is a separate transaction, complete when it returns. Its
//! durability class is that of the measured tree, if the store has such a setting: [`Rival::durability`] describes
//! it.

#[cfg(feature = "rivals")]
mod fjall;
#[cfg(any(feature = "rivals", feature = "rocksdb"))]
mod key_locks;
pub mod kill;
#[cfg(feature = "lmdb")]
mod lmdb;
pub mod pibench;
#[cfg(feature = "rivals")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub mod together;

use std::path::{Path, PathBuf};

use bristlecone::{Domain, Error};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::scratch::Scratch;

use self::together::Together;
use super::data::{BenchKey, BenchValue};
use super::subject::Subject;

/// The stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    Redb,
    Fjall,
    Lmdb,
    Rocksdb,
}

/// The durability of a completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The end of the process.
    Process,
    /// A power failure.
    Power,
}

impl Class {
    /// Returns the class of a tree in this domain.
    pub fn of(domain: Domain) -> Self {
        if domain == Domain::Process { Self::Process } else { Self::Power }
    }
}

/// Each store: its name, its feature, and what makes its operations survive the end of the process and a power
/// failure.
const RIVALS: [(Rival, &str, &str, [&str; 2]); 4] = [
    (
        Rival::Redb,
        "redb",
        "rivals",
        [
            "survives a power failure: a commit with fsync each, since it has none without",
            "survives a power failure: a commit with fsync each",
        ],
    ),
    (
        Rival::Fjall,
        "fjall",
        "rivals",
        [
            "survives the end of the process: its journal is written, and not synced",
            "survives a power failure: its journal is synced after each write",
        ],
    ),
    (
        Rival::Lmdb,
        "lmdb",
        "rivals-c",
        [
            "survives the end of the process: commits without fsync (MDB_NOSYNC)",
            "survives a power failure: a commit with fsync each",
        ],
    ),
    (
        Rival::Rocksdb,
        "rocksdb",
        "rivals-c",
        [
            "survives the end of the process: its log is written, and not synced",
            "survives a power failure: its log is synced after each write",
        ],
    ),
];

impl Rival {
    fn row(self) -> &'static (Self, &'static str, &'static str, [&'static str; 2]) {
        RIVALS.iter().find(|(rival, ..)| *rival == self).expect("every store has its row")
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the durability of a completed operation, and what provides it.
    pub fn durability(self, class: Class) -> &'static str {
        self.row().3[class as usize]
    }

    /// Returns whether this build includes it.
    fn is_built(self) -> bool {
        match self {
            Self::Redb | Self::Fjall => cfg!(feature = "rivals"),
            Self::Lmdb => cfg!(feature = "lmdb"),
            Self::Rocksdb => cfg!(feature = "rocksdb"),
        }
    }

    /// Returns all names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RIVALS.iter().map(|(_, name, ..)| *name)
    }

    /// Returns the store of this name, if there is one; the error says how to build with it.
    pub fn named(name: &str) -> Result<Option<Self>, String> {
        let Some((rival, _, feature, _)) = RIVALS.iter().find(|(_, known, ..)| *known == name) else {
            // A map of the same feature.
            return match name {
                "masstree" => Err(absent(name, "rivals")),
                _ => Ok(None),
            };
        };
        if rival.is_built() { Ok(Some(*rival)) } else { Err(absent(name, feature)) }
    }
}

fn absent(name: &str, feature: &str) -> String {
    format!("{name} is not in this build: cargo build -p bristlecone-lab --features {feature}")
}

impl std::str::FromStr for Rival {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::named(name)?.ok_or_else(|| format!("no store {name:?}"))
    }
}

/// When a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// If the key is absent.
    Absent,
    /// If the key exists.
    Present,
}

/// Result with a store's error.
pub type Refused<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A store of bytes.
pub trait ByteStore: Send + Sync {
    /// Writes a value; returns whether it did.
    fn write(&self, key: &[u8], value: &[u8], when: When) -> Refused<bool>;
    /// Passes the value of a key to `look`; returns whether it exists.
    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Refused<bool>;
    /// Removes a key; returns whether it existed.
    fn remove(&self, key: &[u8]) -> Refused<bool>;
    /// Passes `length` entries from `from` on to `each`, and returns their number.
    fn scan(&self, from: &[u8], length: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Refused<usize>;
    /// Returns the store's interface for atomic changes of several keys, if it supports the presets bank and batch.
    fn together(&self) -> Option<&dyn Together> {
        None
    }
    /// Writes many entries, in any number of transactions.
    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Refused<()> {
        for (key, value) in entries {
            self.write(&key, &value, When::Always)?;
        }
        Ok(())
    }
}

/// A store of bytes in a folder that is removed with it.
pub struct Store {
    name: &'static str,
    /// Closed before its folder is removed.
    inner: Option<Box<dyn ByteStore>>,
    folder: PathBuf,
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.inner.take());
        // It may already be removed.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Store {
    fn inner(&self) -> &dyn ByteStore {
        &**self.inner.as_ref().expect("it is there until it is dropped")
    }

    fn fail(&self, error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::io(self.name, std::io::Error::other(error))
    }
}

/// Creates an empty store in a folder beside the pool.
pub fn open(rival: Rival, class: Class, max_bytes: u64, scratch: &Scratch) -> Outcome<Store> {
    let folder = scratch.path().with_extension(rival.name());
    std::fs::create_dir(&folder).map_err(|error| Failure::io(folder.display(), &error))?;
    let mut store = Store { name: rival.name(), inner: None, folder };
    store.inner = Some(open_at(rival, &store.folder, class, max_bytes)?);
    Ok(store)
}

/// Opens or creates the store in a folder.
pub fn open_at(rival: Rival, folder: &Path, class: Class, max_bytes: u64) -> Outcome<Box<dyn ByteStore>> {
    let opened: Refused<Box<dyn ByteStore>> = match rival {
        #[cfg(feature = "rivals")]
        Rival::Redb => redb::open(folder),
        #[cfg(feature = "rivals")]
        Rival::Fjall => fjall::open(folder, class),
        #[cfg(feature = "lmdb")]
        Rival::Lmdb => lmdb::open(folder, class, max_bytes),
        #[cfg(feature = "rocksdb")]
        Rival::Rocksdb => rocksdb::open(folder, class),
        #[cfg(not(all(feature = "rivals", feature = "lmdb", feature = "rocksdb")))]
        _ => Err(format!("not in this build ({class:?}, {max_bytes} bytes, {})", folder.display()).into()),
    };
    opened.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", rival.name())))
}

impl<K: BenchKey, V: BenchValue> Subject<K, V> for Store {
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        let written =
            K::bytes(key, |key| V::bytes(value, |value| self.inner().write(key, value, When::Always)));
        written.map(|_| ()).map_err(|error| self.fail(error))
    }

    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        K::bytes(key, |key| V::bytes(value, |value| self.inner().write(key, value, When::Absent)))
            .map_err(|error| self.fail(error))
    }

    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        K::bytes(key, |key| V::bytes(value, |value| self.inner().write(key, value, When::Present)))
            .map_err(|error| self.fail(error))
    }

    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        let mut seen = None;
        let mut show = |value: &[u8]| seen = V::from_bytes(value).map(&look);
        K::bytes(key, |key| self.inner().get(key, &mut show)).map_err(|error| self.fail(error))?;
        Ok(seen)
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        K::bytes(key, |key| self.inner().remove(key)).map_err(|error| self.fail(error))
    }

    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let mut show = |key: &[u8], value: &[u8]| {
            if let (Some(key), Some(value)) = (K::from_bytes(key), V::from_bytes(value)) {
                each(key, value);
            }
        };
        K::bytes(from, |from| self.inner().scan(from, length, &mut show)).map_err(|error| self.fail(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bristlecone_random::Generator;
    use std::collections::BTreeMap;

    #[test]
    fn rivals_absent_from_this_build_say_how_to_get_them() {
        for (rival, name, feature, _) in RIVALS {
            match Rival::named(name) {
                Ok(found) => assert_eq!((found, rival.is_built()), (Some(rival), true)),
                Err(said) => {
                    assert!(!rival.is_built() && said.contains(&format!("--features {feature}")), "{said}")
                }
            }
        }
        assert_eq!(Rival::named("sstree"), Ok(None));
    }

    fn count(store: &dyn ByteStore) -> u64 {
        store.scan(&[], 1 << 20, &mut |_, _| {}).unwrap() as u64
    }

    /// Applies random operations to a store and to a map, closes it, and reopens it.
    #[test]
    fn rivals_do_what_a_map_does_and_keep_it() {
        for name in Rival::names() {
            let Ok(Some(rival)) = Rival::named(name) else { continue };
            for class in [Class::Process, Class::Power] {
                let folder = tempfile::tempdir().unwrap();
                let mut store = open_at(rival, folder.path(), class, 64 << 20).unwrap();
                let (mut map, mut random) = (BTreeMap::<Vec<u8>, Vec<u8>>::new(), Generator::new(7));
                for step in 0..600u64 {
                    let (key, value) = (vec![(random.word() % 40) as u8; 8], step.to_be_bytes().to_vec());
                    let had = map.contains_key(&key);
                    match random.word() % 6 {
                        0 => assert!(
                            store.write(&key, &value, When::Always).unwrap()
                                && map.insert(key, value).is_some() == had
                        ),
                        1 => {
                            assert_eq!(
                                store.write(&key, &value, When::Absent).unwrap(),
                                !had,
                                "{name} {step}"
                            );
                            map.entry(key).or_insert(value);
                        }
                        2 => {
                            assert_eq!(
                                store.write(&key, &value, When::Present).unwrap(),
                                had,
                                "{name} {step}"
                            );
                            map.entry(key).and_modify(|old| *old = value);
                        }
                        3 => assert_eq!(
                            store.remove(&key).unwrap(),
                            map.remove(&key).is_some(),
                            "{name} {step}"
                        ),
                        4 => {
                            let mut seen = None;
                            let found = store.get(&key, &mut |value| seen = Some(value.to_vec())).unwrap();
                            assert_eq!((seen.as_ref(), found), (map.get(&key), had), "{name} {step}");
                        }
                        _ => {
                            let mut seen = Vec::new();
                            let count = store
                                .scan(&key, 9, &mut |key, value| seen.push((key.to_vec(), value.to_vec())));
                            let wanted: Vec<_> =
                                map.range(key..).take(9).map(|(k, v)| (k.clone(), v.clone())).collect();
                            assert_eq!((count.unwrap(), seen), (wanted.len(), wanted), "{name} {step}");
                        }
                    }
                }
                assert_eq!(count(&*store), map.len() as u64, "{name}");
                drop(store);
                store = open_at(rival, folder.path(), class, 64 << 20).unwrap();
                assert_eq!(count(&*store), map.len() as u64, "{name} after it was closed");
                let more = (0..3000u64).map(|at| ((1 << 40 | at).to_be_bytes().to_vec(), vec![7; 8]));
                store.load(&mut more.into_iter()).unwrap();
                assert_eq!(count(&*store), map.len() as u64 + 3000, "{name}");
            }
        }
    }
}
