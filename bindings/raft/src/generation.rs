//! A generation of the state machine: a folder with its pool, and the snapshot that was taken of it or it came from.
//!
//! ```text
//! state-N/pool           map    bytes -> bytes   the replicated map
//!                        meta   str -> bytes     applied, membership, snapshot
//! state-N/pool.journal/                          in the domain journal
//! state-N/snapshot                               a copy of a pool as of some applied entry
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone::{BackupOptions, Domain, Error, Pool, PoolInfo, Result, Transaction, Tree};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Options;
use crate::codec::{decode, encode};
use crate::command::MapTree;

/// Names of what is stored beside the map.
pub mod names {
    pub const APPLIED: &str = "applied";
    pub const MEMBERSHIP: &str = "membership";
    /// Identifies the last copy; it is in the copy, too.
    pub const SNAPSHOT: &str = "snapshot";
}

/// Least maximum of a snapshot's pool. It is never written, so that a small one suffices.
const SNAPSHOT_BYTES: u64 = 256 << 20;

/// A state machine's pool. Fields are dropped in this order.
#[derive(Debug)]
pub struct Generation {
    pub map: MapTree,
    meta: Tree<&'static str, &'static [u8]>,
    pub pool: Pool,
    /// Locked while the file of the snapshot is replaced or opened.
    pub snapshot: Mutex<()>,
    folder: Folder,
}

/// The folder of a generation.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    is_retired: AtomicBool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_retired.load(Relaxed) {
            // A folder that stays is removed when the store is opened.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns the folder of a generation.
pub fn folder_of(store: &Path, number: u64) -> PathBuf {
    store.join(format!("state-{number}"))
}

/// Makes the names of a folder durable.
pub fn sync_folder(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::io(format!("syncing {}", path.display()), error))
}

/// Creates an empty folder in place of what an interrupted call left.
pub fn create_folder(path: &Path) -> Result<()> {
    let removed = match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    let created = removed.and_then(|()| fs::create_dir(path));
    created.map_err(|error| Error::io(format!("creating {}", path.display()), error))
}

impl Generation {
    /// Opens the pool of a folder, or creates it.
    pub fn open(path: PathBuf, create: bool, domain: Domain, options: &Options) -> Result<Self> {
        let pool = options.state_pool(domain).create(create).open(path.join("pool"))?;
        Ok(Self {
            map: options.tree(&pool, "map", create)?,
            meta: options.tree(&pool, "meta", create)?,
            pool,
            snapshot: Mutex::new(()),
            folder: Folder { path, is_retired: AtomicBool::new(false) },
        })
    }

    /// Creates the pool of a folder, which has a snapshot, from it.
    pub fn restore(path: PathBuf, like: &PoolInfo, options: &Options) -> Result<Self> {
        let snapshot = Pool::options().read_only(true).open(path.join("snapshot"))?;
        let mut copy = BackupOptions::new().design(options.design).max_bytes(like.max_bytes);
        // A copy gets its journal when it is opened.
        if like.domain != Domain::Journal {
            copy = copy.domain(like.domain);
        }
        snapshot.backup(path.join("pool"), copy)?;
        let restored = Self::open(path, false, like.domain, options)?;
        restored.pool.sync()?;
        sync_folder(&restored.folder.path)?;
        Ok(restored)
    }

    /// Reads a value of a snapshot's pool.
    pub fn read_of<T: DeserializeOwned>(snapshot: &Pool, name: &'static str) -> Result<Option<T>> {
        let meta = snapshot.tree::<&'static str, &'static [u8]>("meta")?;
        let found = meta.get(name)?;
        found.map(|bytes| decode(&bytes, format!("{name:?} of a snapshot"))).transpose()
    }

    /// Returns a value by name.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let found = self.meta.get(name)?;
        found.map(|bytes| decode(&bytes, format!("{name:?} of the state machine"))).transpose()
    }

    /// Writes a value by name in a transaction.
    pub fn write<T: Serialize>(&self, name: &'static str, value: &T, changes: &Transaction) -> Result<()> {
        changes.insert(&self.meta, name, &encode(value)?)
    }

    /// Returns the path of the snapshot, whether there is one or not.
    pub fn snapshot_path(&self) -> PathBuf {
        self.folder.path.join("snapshot")
    }

    /// Replaces the snapshot by a copy of the pool, which is durable then. What the copy contains is durable in the
    /// pool, too: openraft purges the entries that led there.
    pub fn copy(&self, id: &str) -> Result<()> {
        let new = self.folder.path.join("snapshot.new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", new.display()), error));
            }
            _ => {}
        }
        self.pool.transaction(|changes| self.write(names::SNAPSHOT, &id, changes))?;
        let max_bytes = SNAPSHOT_BYTES.max(2 * self.pool.info().file_bytes);
        self.pool.backup(&new, BackupOptions::new().max_bytes(max_bytes))?;
        self.pool.sync()?;
        let path = self.snapshot_path();
        let _replaced = self.snapshot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        fs::rename(&new, &path).map_err(|error| Error::io(format!("renaming {}", new.display()), error))?;
        sync_folder(&self.folder.path)
    }

    /// Has the folder removed once no thread uses the generation.
    pub fn retire(&self) {
        self.folder.is_retired.store(true, Relaxed);
    }
}
