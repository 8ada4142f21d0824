//! Opening and closing: what a journal and the file of its pool say together.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use bristlecone_pm::{Error, Glance, Result, Storage};

use super::aside::Asides;
use super::checkpoint::NEVER;
use super::flusher::Flusher;
use super::group::Turn;
use super::log::Log;
use super::manifest::{ADOPTING, Manifest, Timeline, segment_name};
use super::mutation::{Mutation, is_mutated};
use super::past::past_of;
use super::restore::{end_of, restore};
use super::ring::{self, Owner, Ring, Takeover};
use super::segment::{End, Read};
use super::status::Figures;
use super::takeover::take_over;
use super::trees::{Past, Trees};
use super::{Durability, Journal, Setup};
use crate::Pool;

/// Name of the ring's file.
pub(super) const RING: &str = "ring";

/// What is to be done with the journal of a pool once its file is open.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The pool is new. Holds the lock of its journal's folder.
    Created { _lock: Option<File> },
    /// The pages of the pool are complete: the journal continues where it ended.
    Closed,
    /// A process was killed: what it left in the ring is taken over.
    Killed,
    /// The file was replaced by one that was restored: it must be opened again.
    Restored,
    /// The pool has another domain, and first [gets a journal](adopt).
    Adopted,
}

fn owner(storage: &dyn Storage, found: &Glance) -> Option<Owner> {
    Some(Owner { uuid: found.uuid, boot: storage.boot()?, inode: found.inode })
}

/// Returns whether the process that had the pool open was killed under the running kernel: its pages are whole.
fn is_killed(setup: &Setup, storage: &dyn Storage, found: &Glance) -> Result<bool> {
    let ring = storage.shared(RING, ring::file_bytes(setup.sizes().0))?;
    let owner = owner(storage, found);
    Ok(ring.zip(owner).is_some_and(|(ring, owner)| ring::is_of(&*ring, &owner)))
}

fn read_manifest(storage: &dyn Storage, found: &Glance) -> Result<Manifest> {
    let place = storage.describe();
    let manifest = Manifest::read(storage)?
        .ok_or_else(|| Error::corrupted("the manifest is missing", format!("the journal in {place}")))?;
    if manifest.pool != found.uuid {
        return Err(Error::invalid(format!("the journal in {place} is that of another pool")));
    }
    Ok(manifest)
}

/// Decides what is to be done with a pool that has a journal, and restores it if necessary. The caller holds the lock of
/// its file.
///
/// # Errors
///
/// [`Error::Corrupted`] and [`Error::Invalid`] for a journal that does not fit, and errors of the system. Nothing has
/// changed then.
pub(crate) fn plan(setup: &Setup, at: (&Path, bool), found: &Glance, threads: usize) -> Result<Plan> {
    let storage = setup.open(at.0, false)?;
    let manifest = read_manifest(&*storage, found)?;
    if manifest.is_unfinished() && !is_mutated(Mutation::UnfinishedOpened) {
        // It has not got its items yet.
        let what = "is a standby whose promotion was interrupted: promote it again";
        return Err(Error::invalid(format!("{} {what}", at.0.display())));
    }
    if found.was_clean {
        return expect_close(&*storage, &manifest, found.sequence).map(|()| Plan::Closed);
    }
    if is_killed(setup, &*storage, found)? {
        return Ok(Plan::Killed);
    }
    restore(&storage, &manifest, found, at, threads)?;
    Ok(Plan::Restored)
}

/// Returns an error if a pool's pages may be worthless or stale, for openings that cannot restore it. `found` is what an
/// open pool says, whose opening counts as a change of the superblock.
pub(crate) fn expect_pages(setup: &Setup, path: &Path, found: &Glance) -> Result<()> {
    let storage = setup.open(path, false)?;
    let manifest = read_manifest(&*storage, found)?;
    if found.was_clean {
        return expect_close(&*storage, &manifest, found.sequence - 1);
    }
    if is_killed(setup, &*storage, found)? {
        return Ok(());
    }
    Err(Error::invalid("the machine stopped while the pool was open: open it for writing, which restores it"))
}

/// Returns an error if a pool was closed by another change of its superblock than its journal says.
fn expect_close(storage: &dyn Storage, manifest: &Manifest, sequence: u64) -> Result<()> {
    if manifest.is_closed_by(sequence) {
        return Ok(());
    }
    let what = "the pool was closed at another time than its journal: one of both is a copy";
    Err(Error::corrupted(what, format!("the journal in {}", storage.describe())))
}

/// Creates the journal of a new pool, which has no name yet.
///
/// The result has the lock of the folder. Until the pool has its name and owns its ring, another process would take the
/// journal for one that a crash has left.
///
/// # Errors
///
/// [`Error::Exists`] if a pool has the name by now; [`Error::InUse`] while another pool is created in the folder;
/// [`Error::Invalid`] if the folder has the journal of another pool; errors of the system.
pub(crate) fn create(setup: &Setup, path: &Path, new: &Glance) -> Result<Plan> {
    let storage = setup.open(path, true)?;
    let lock = setup.lock(path)?;
    if path.exists() {
        return Err(Error::Exists { path: path.to_owned() });
    }
    create_empty(storage, setup, new, 0, Default::default()).map(|()| Plan::Created { _lock: lock })
}

/// Where a new journal begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begin {
    /// The identity of a journal that it continues.
    pub uuid: Option<u128>,
    pub lsn: u64,
    pub timeline: Timeline,
    /// The time of the last entry before, in milliseconds since 1970.
    pub time: u64,
}

/// Creates a journal without entries, of a pool with these trees.
fn create_empty(
    storage: Arc<dyn Storage>,
    setup: &Setup,
    new: &Glance,
    closed: u64,
    (begin, trees): (Begin, Trees),
) -> Result<()> {
    if let Some(other) = Manifest::read(&*storage)? {
        // A journal without entries that was never closed, and that no process of this kernel has opened, is what a crash
        // leaves of a pool without a name.
        let ring = storage.shared(RING, ring::file_bytes(setup.sizes().0))?;
        let is_open = |boot| ring.as_ref().is_some_and(|ring| ring::is_of_pool(&**ring, other.pool, boot));
        let is_used = other.closed != 0 || other.checkpoint.is_some() || storage.boot().is_none_or(is_open);
        let is_unfinished = closed & other.closed & ADOPTING != 0 && other.pool == new.uuid;
        if !is_unfinished && (is_used || end_of(&*storage, &other)?.lsn != 0) {
            return Err(Error::invalid(format!(
                "{} has the journal of another pool: move or remove it, or choose another folder",
                storage.describe()
            )));
        }
    }
    let manifest = Manifest {
        uuid: begin.uuid.unwrap_or(new.uuid),
        pool: new.uuid,
        geometry: new.geometry,
        next: 1,
        closed,
        checkpoint: None,
        kept: begin.lsn,
        timeline: begin.timeline,
        segments: Vec::new(),
        spare: Vec::new(),
    };
    let past = Past { trees, time: begin.time };
    Log::create(storage, manifest, setup.sizes().1, begin.lsn, past).map(drop)
}

/// Gives a pool of another domain, which is open and has no users yet, a journal, and closes it.
///
/// 1. A journal is created, whose manifest says that it is not finished. *A crash from here on: the pool has its old
///    domain, and its pages are as durable as that promises. The next try begins again.*
/// 2. All items go to a checkpoint.
/// 3. The pool is closed with the new domain. *A crash before the change of the superblock: as before.*
///
/// # Errors
///
/// [`Error::Invalid`] if the folder has the journal of another pool, or for a tree of an external design; errors of
/// [`Journal::checkpoint`], and of the system. The pool is left as after a crash, with its old domain.
pub(crate) fn adopt(pool: Pool, setup: &Setup, path: &Path, begin: Begin) -> Result<()> {
    let storage = setup.open(path, true)?;
    let _lock = setup.lock(path)?;
    let trees = pool.trees()?.into_iter().map(|entry| (entry.id, entry.spec)).collect();
    let adopted = create_empty(storage, setup, &pool.0.file.glance()?, ADOPTING, (begin, trees))
        .and_then(|()| Journal::attach(&pool, setup, path, &Plan::Adopted))
        .and_then(|()| pool.checkpoint());
    if let Err(error) = adopted {
        pool.simulate_crash();
        return Err(error);
    }
    pool.0.file.adopt_journal();
    Ok(pool.close()?)
}

/// Ends the last segment if it does not say what is before it, durably: the next one does.
fn finish_old_segment(storage: &dyn Storage, manifest: &mut Manifest, end: &End) -> Result<()> {
    let Some(last) = manifest.segments.last_mut().filter(|last| last.end.is_none()) else { return Ok(()) };
    let name = segment_name(last.file);
    let Some(file) = storage.open(&name)? else { return Ok(()) };
    if Read::new(&*file, *last, manifest.uuid, name)?.past().is_none() {
        file.sync()?;
        last.end = Some(end.lsn);
    }
    Ok(())
}

impl Journal {
    /// Begins the journal of a pool that was opened as planned. From here on all writes pass it.
    ///
    /// # Errors
    ///
    /// Errors of the system, and [`Error::Corrupted`]. The pool must then be left as after a crash.
    pub(crate) fn attach(pool: &Pool, setup: &Setup, path: &Path, plan: &Plan) -> Result<()> {
        let storage = setup.open(path, false)?;
        let found = pool.0.file.glance()?;
        let manifest = read_manifest(&*storage, &found)?;
        let shared = storage.share(RING, ring::file_bytes(setup.sizes().0))?;
        if matches!(plan, Plan::Killed) && !is_mutated(Mutation::NamesUnsynced) {
            // The killed process may have given the manifest its name, and not synced it. Entries that it does not name
            // would be lost, and so would files that only the one before it names.
            storage.sync()?;
        }
        for name in storage.list()? {
            if !manifest.has(&name) {
                storage.remove(&name)?;
            }
        }
        let left = Ring::left(Arc::clone(&shared));
        let (mut manifest, mut least) = (manifest, 0);
        if !matches!(plan, Plan::Adopted) {
            // The superblock has said so.
            manifest.closed &= !ADOPTING;
        }
        if let (Plan::Killed, Takeover::From(lsn)) = (plan, left.takeover()) {
            // It begins again, in a segment of its own.
            manifest.truncate(lsn);
            least = lsn;
        }
        let (mut end, past) = past_of(&*storage, &manifest)?;
        end.lsn = end.lsn.max(least);
        finish_old_segment(&*storage, &mut manifest, &end)?;
        let mut log = match manifest.segments.last() {
            Some(last) if last.end.is_none() => {
                // A killed process may have written without a sync.
                let may_be_unsynced = matches!(plan, Plan::Killed);
                let file = storage.open(&segment_name(last.file))?.ok_or_else(|| {
                    Error::corrupted(
                        "a missing file",
                        format!("{} in {}", segment_name(last.file), storage.describe()),
                    )
                })?;
                Log::resume(
                    Arc::clone(&storage),
                    manifest,
                    setup.sizes().1,
                    (file, end, past),
                    may_be_unsynced,
                )?
            }
            _ => Log::create(Arc::clone(&storage), manifest, setup.sizes().1, end.lsn, past)?,
        };
        let asides = Asides::of(&*storage)?;
        if matches!(plan, Plan::Killed) {
            take_over(pool, &*storage, &left, &mut log, &asides)?;
        }
        let lsn = log.durable();
        let figures = Figures::new(Arc::clone(&shared));
        let ring = Ring::new(shared, lsn);
        match plan {
            Plan::Killed => ring.set_takeover(Takeover::None),
            Plan::Created { .. } | Plan::Closed | Plan::Restored | Plan::Adopted => {
                ring.reset(owner(&*storage, &found).as_ref())
            }
        }
        let durability = setup.durability.unwrap_or_default();
        figures.begin(durability, lsn);
        log.publish(figures.clone());
        let journal = Arc::new_cyclic(|own| Self {
            storage,
            folder: setup.folder_of(path),
            ring,
            figures,
            log: Mutex::new(log),
            turn: Turn::default(),
            durable: AtomicU64::new(lsn),
            failed: AtomicBool::new(false),
            durability,
            durable_reads: setup.durable_reads,
            restored: matches!(plan, Plan::Restored),
            flusher: Flusher::default(),
            own: own.clone(),
            path: path.to_owned(),
            opener: pool.0.file.opener(),
            asides,
            checkpointing: Mutex::default(),
            checkpoint_bytes: setup.checkpoint_bytes(),
            due: AtomicU64::new(NEVER),
            cursor_limit_bytes: setup.cursor_limit_bytes(),
            sizes: setup.sizes(),
            warnings: Mutex::default(),
            scanned: AtomicU64::new(u64::MAX),
        });
        if let Durability::Interval(_) = durability {
            // Now, so that no write has to report that it cannot.
            journal.start_flusher()?;
        }
        // Never ended: each writer holds the locks of its keys.
        pool.0.epochs.barrier.begin_use();
        let _ = pool.0.journal.set(journal);
        Ok(())
    }
}
