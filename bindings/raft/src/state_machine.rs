//! openraft's state machine: a replicated ordered map.

use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone::{Error, Pool, Result as Done, Transaction};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta,
    StorageError, StorageIOError, StoredMembership, TokioRuntime,
};

use crate::codec::blocking;
use crate::generation::{Generation, create_folder, folder_of, names, sync_folder};
use crate::log::{self, Log};
use crate::map::{Current, Map};
use crate::snapshot_file::SnapshotFile;
use crate::{Command, Options, Reply};

/// Entries that are applied in one transaction.
const APPLIED_TOGETHER: usize = 256;

/// The types of a Raft with a [`StateMachine`]. Ids and descriptions of nodes may have any types.
///
/// ```
/// use bristlecone_raft::{Command, Reply, SnapshotFile, openraft};
///
/// openraft::declare_raft_types!(
///     pub Types: D = Command, R = Reply, NodeId = u64, Node = openraft::BasicNode, SnapshotData = SnapshotFile
/// );
/// fn is_config<C: bristlecone_raft::MapConfig>() {}
/// is_config::<Types>();
/// ```
pub trait MapConfig:
    RaftTypeConfig<
        D = Command,
        R = Reply,
        Entry = Entry<Self>,
        SnapshotData = SnapshotFile,
        AsyncRuntime = TokioRuntime,
    >
{
}

impl<C> MapConfig for C where
    C: RaftTypeConfig<
            D = Command,
            R = Reply,
            Entry = Entry<C>,
            SnapshotData = SnapshotFile,
            AsyncRuntime = TokioRuntime,
        >
{
}

/// A replicated ordered map in a pool: openraft's [`RaftStateMachine`], for the types [`Command`], [`Reply`] and
/// [`SnapshotFile`]. [`open`](crate::open) returns it; [`map`](Self::map) reads it.
///
/// # Guarantees
///
/// - Entries and the id of the last one are applied in one transaction. After a crash each entry was applied once or not
///   at all, and openraft continues behind the last one.
/// - A snapshot is a copy of the pool as of one applied entry, in one file. What it contains is on disk before openraft
///   purges the entries.
/// - Installing a snapshot switches from one pool to another in one durable step. A crash leaves the old state machine
///   with its snapshot, or the new one with the new snapshot. After `Err` the old one is unchanged.
pub struct StateMachine<C: RaftTypeConfig> {
    machine: Arc<Machine>,
    types: PhantomData<fn() -> C>,
}

/// What the handles of a state machine share.
struct Machine {
    current: Arc<Current>,
    /// Names the current generation, and excludes other processes from the folder.
    log: Arc<Log>,
    folder: PathBuf,
    options: Options,
    /// Held while a snapshot is built or installed.
    snapshots: Arc<tokio::sync::Mutex<()>>,
    received: AtomicU64,
}

impl<C: RaftTypeConfig> Clone for StateMachine<C> {
    fn clone(&self) -> Self {
        Self { machine: Arc::clone(&self.machine), types: PhantomData }
    }
}

impl<C: RaftTypeConfig> Debug for StateMachine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("folder", &self.machine.folder).finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig> StateMachine<C> {
    pub(crate) fn open(log: Arc<Log>, folder: &Path, options: &Options) -> Done<Self> {
        let machine = Machine {
            current: Arc::new(Current::new(open_current(&log, folder, options)?)),
            log,
            folder: folder.to_owned(),
            options: options.clone(),
            snapshots: Arc::default(),
            received: AtomicU64::new(0),
        };
        let current = Arc::downgrade(&machine.current);
        machine.log.attach(Box::new(move |index| {
            let Some(current) = current.upgrade() else { return Ok(false) };
            let current = current.get();
            let applied: Option<LogId<C::NodeId>> = current.read(names::APPLIED)?;
            let is_covered = applied.is_some_and(|applied| applied.index >= index);
            if is_covered { current.pool.sync().map(|()| true) } else { Ok(false) }
        }));
        Ok(Self { machine: Arc::new(machine), types: PhantomData })
    }

    /// Returns a handle that reads the map.
    pub fn map(&self) -> Map {
        Map(Arc::clone(&self.machine.current))
    }
}

/// Opens the generation that the log names, or creates the first one, and removes what interrupted calls left.
fn open_current(log: &Log, folder: &Path, options: &Options) -> Done<Generation> {
    let domain = log.pool.info().domain;
    let number = match log.read(log::names::GENERATION)? {
        Some(number) => number,
        None if log.is_unused()? => return create_first(log, folder, options),
        None => {
            let what = "a log without a state machine";
            return Err(Error::corrupted(what, folder.display().to_string()));
        }
    };
    let current = Generation::open(folder_of(folder, number), false, domain, options)?;
    remove_leftovers(folder, &folder_of(folder, number))?;
    Ok(current)
}

fn create_first(log: &Log, folder: &Path, options: &Options) -> Done<Generation> {
    let own = folder_of(folder, 1);
    create_folder(&own)?;
    let first = Generation::open(own.clone(), true, log.pool.info().domain, options)?;
    sync_folder(&own)?;
    sync_folder(folder)?;
    log.write(log::names::GENERATION, &1_u64)?.wait()?;
    Ok(first)
}

fn remove_leftovers(folder: &Path, current: &Path) -> Done<()> {
    let remove = || {
        for item in std::fs::read_dir(folder)? {
            let (path, name) = item.map(|item| (item.path(), item.file_name()))?;
            let name = name.to_string_lossy();
            if name.starts_with("state-") && path != current {
                std::fs::remove_dir_all(path)?;
            } else if name.starts_with("receiving-") {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    };
    remove().map_err(|error: std::io::Error| Error::io(format!("removing from {}", folder.display()), error))
}

/// Reads what a snapshot says about itself.
fn meta_of<C: RaftTypeConfig>(path: &Path) -> Done<SnapshotMeta<C::NodeId, C::Node>> {
    let pool = Pool::options().read_only(true).open(path)?;
    let missing = || Error::corrupted("a pool that is no snapshot", path.display().to_string());
    Ok(SnapshotMeta {
        last_log_id: Generation::read_of(&pool, names::APPLIED)?,
        last_membership: Generation::read_of(&pool, names::MEMBERSHIP)?.unwrap_or_default(),
        snapshot_id: Generation::read_of(&pool, names::SNAPSHOT)?.ok_or_else(missing)?,
    })
}

/// Returns a name that no other snapshot has, also on other nodes.
fn unique_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let draw = || RandomState::new().hash_one(std::time::SystemTime::now());
    format!("{:016x}{:016x}", draw(), draw())
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.log.fail();
    }
}

impl Machine {
    /// Prepares a new generation from its snapshot, and switches to it.
    fn switch_to<C: RaftTypeConfig>(
        &self,
        number: u64,
        expected: &SnapshotMeta<C::NodeId, C::Node>,
    ) -> Done<()> {
        let own = folder_of(&self.folder, number);
        let found = meta_of::<C>(&own.join("snapshot"))?;
        if found != *expected {
            let what = format!("a snapshot of {found}, not {expected}");
            return Err(Error::corrupted(what, own.display().to_string()));
        }
        let like = self.current.get().pool.info();
        let restored = Generation::restore(own, &like, &self.options)?;
        sync_folder(&self.folder)?;
        // The switch: before it is durable, the next opening finds the old generation.
        self.log.write(log::names::GENERATION, &number)?.wait()?;
        self.current.replace(restored).retire();
        self.log.settle()
    }
}

impl<C: MapConfig> StateMachine<C> {
    fn apply_some(current: &Generation, entries: &[Entry<C>]) -> Done<Vec<Reply>> {
        current.pool.transaction(|changes| {
            if let Some(last) = entries.last() {
                current.write(names::APPLIED, &last.log_id, changes)?;
            }
            entries.iter().map(|entry| Self::apply_one(current, entry, changes)).collect()
        })
    }

    fn apply_one(current: &Generation, entry: &Entry<C>, changes: &Transaction) -> Done<Reply> {
        match &entry.payload {
            EntryPayload::Blank => Ok(Reply::None),
            EntryPayload::Normal(command) => command.execute(&current.map, changes),
            EntryPayload::Membership(members) => {
                let stored = StoredMembership::new(Some(entry.log_id.clone()), members.clone());
                current.write(names::MEMBERSHIP, &stored, changes).map(|()| Reply::None)
            }
        }
    }

    async fn install(&self, meta: SnapshotMeta<C::NodeId, C::Node>, snapshot: SnapshotFile) -> Done<()> {
        let only = Arc::clone(&self.machine.snapshots).lock_owned().await;
        let machine = Arc::clone(&self.machine);
        let (number, own) = blocking(move || {
            let current: Option<u64> = machine.log.read(log::names::GENERATION)?;
            let number = current.unwrap_or(0) + 1;
            let own = folder_of(&machine.folder, number);
            create_folder(&own).map(|()| (number, own))
        })
        .await?;
        snapshot.store(own.join("snapshot")).await?;
        let machine = Arc::clone(&self.machine);
        blocking(move || {
            let _only = only;
            machine.switch_to::<C>(number, &meta)
        })
        .await
    }

    /// Returns the current snapshot, if there is one.
    fn snapshot_of(current: &Generation) -> Done<Option<Snapshot<C>>> {
        let _as_it_is = current.snapshot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let path = current.snapshot_path();
        if !path.exists() {
            return Ok(None);
        }
        let (meta, file) = (meta_of::<C>(&path)?, SnapshotFile::read(&path)?);
        Ok(Some(Snapshot { meta, snapshot: Box::new(file) }))
    }

    async fn build(&self) -> Done<Snapshot<C>> {
        let only = Arc::clone(&self.machine.snapshots).lock_owned().await;
        let current = self.machine.current.get();
        blocking(move || {
            let _only = only;
            current.copy(&unique_id())?;
            let missing =
                || Error::corrupted("a missing snapshot", current.snapshot_path().display().to_string());
            Self::snapshot_of(&current)?.ok_or_else(missing)
        })
        .await
    }
}

impl<C: MapConfig> RaftSnapshotBuilder<C> for StateMachine<C> {
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let built = self.build().await;
        built.map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)).into())
    }
}

impl<C: MapConfig> RaftStateMachine<C> for StateMachine<C> {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<C::NodeId>>, StoredMembership<C::NodeId, C::Node>), StorageError<C::NodeId>>
    {
        let current = self.machine.current.get();
        let read = blocking(move || {
            Ok((current.read(names::APPLIED)?, current.read(names::MEMBERSHIP)?.unwrap_or_default()))
        });
        read.await.map_err(|error| StorageIOError::read_state_machine(AnyError::new(&error)).into())
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Reply>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (entries, current) = (entries.into_iter().collect::<Vec<_>>(), self.machine.current.get());
        let apply = blocking(move || {
            let mut replies = Vec::with_capacity(entries.len());
            for some in entries.chunks(APPLIED_TOGETHER) {
                replies.extend(Self::apply_some(&current, some)?);
            }
            Ok(replies)
        });
        apply.await.map_err(|error| StorageIOError::write_state_machine(AnyError::new(&error)).into())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError<C::NodeId>> {
        let number = self.machine.received.fetch_add(1, Relaxed);
        let path = self.machine.folder.join(format!("receiving-{number}"));
        let created = blocking(|| SnapshotFile::receive(path)).await;
        created
            .map(Box::new)
            .map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)).into())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let installed = self.install(meta.clone(), *snapshot).await;
        if installed.is_err() {
            self.machine.log.fail();
        }
        installed.map_err(|error| {
            StorageIOError::write_snapshot(Some(meta.signature()), AnyError::new(&error)).into()
        })
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let current = self.machine.current.get();
        let read = blocking(move || Self::snapshot_of(&current)).await;
        read.map_err(|error| StorageIOError::read_snapshot(None, AnyError::new(&error)).into())
    }
}
