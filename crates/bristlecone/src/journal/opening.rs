//! Opening and closing: what a journal and the file of its pool say together.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bristlecone_pm::{Error, Glance, Result, Storage};

use super::aside::Asides;
use super::group::Turn;
use super::log::Log;
use super::manifest::{Manifest, segment_name};
use super::mutation::{Mutation, is_mutated};
use super::restore::{end_of, restore};
use super::ring::{self, Owner, Ring, Takeover};
use super::takeover::take_over;
use super::{Durability, Journal, Setup};
use crate::Pool;

/// Name of the ring's file.
const RING: &str = "ring";

/// What is to be done with the journal of a pool once its file is open.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The pages of the pool are complete: the journal continues where it ended.
    Closed,
    /// A process was killed: what it left in the ring is taken over.
    Killed,
    /// The file was replaced by one that was restored: it must be opened again.
    Restored,
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
    if manifest.uuid != found.uuid {
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
    if found.was_clean {
        return expect_close(&*storage, &manifest, found.sequence).map(|()| Plan::Closed);
    }
    if is_killed(setup, &*storage, found)? {
        return Ok(Plan::Killed);
    }
    restore(&*storage, &manifest, found, at, threads)?;
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
    if manifest.closed == sequence {
        return Ok(());
    }
    let what = "the pool was closed at another time than its journal: one of both is a copy";
    Err(Error::corrupted(what, format!("the journal in {}", storage.describe())))
}

/// Creates the journal of a new pool, which has no name yet.
///
/// # Errors
///
/// [`Error::Invalid`] if the folder has the journal of another pool, and errors of the system.
pub(crate) fn create(setup: &Setup, path: &Path, new: &Glance) -> Result<()> {
    let storage = setup.open(path, true)?;
    if let Some(other) = Manifest::read(&*storage)? {
        // A journal without entries is what a crash leaves of a pool that was never named.
        let is_empty = other.checkpoint.is_none() && end_of(&*storage, &other)?.lsn == 0;
        if !is_empty {
            return Err(Error::invalid(format!(
                "{} has the journal of another pool: move it away, or choose another folder",
                storage.describe()
            )));
        }
    }
    let manifest = Manifest {
        uuid: new.uuid,
        geometry: new.geometry,
        next: 1,
        closed: 0,
        checkpoint: None,
        segments: Vec::new(),
        spare: Vec::new(),
    };
    Log::create(storage, manifest, setup.sizes().1, 0).map(drop)
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
        if let (Plan::Killed, Takeover::From(lsn)) = (plan, left.takeover()) {
            // It begins again, in a segment of its own.
            manifest.truncate(lsn);
            least = lsn;
        }
        let mut end = end_of(&*storage, &manifest)?;
        end.lsn = end.lsn.max(least);
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
                Log::resume(Arc::clone(&storage), manifest, setup.sizes().1, (file, end), may_be_unsynced)?
            }
            _ => Log::create(Arc::clone(&storage), manifest, setup.sizes().1, end.lsn)?,
        };
        let asides = Asides::of(&*storage)?;
        if matches!(plan, Plan::Killed) {
            take_over(pool, &*storage, &left, &mut log, &asides)?;
        }
        let lsn = log.durable();
        let ring = Ring::new(shared, lsn);
        match plan {
            Plan::Killed => ring.set_takeover(Takeover::None),
            Plan::Closed | Plan::Restored => ring.reset(owner(&*storage, &found).as_ref()),
        }
        let durability = setup.durability.unwrap_or_default();
        let journal = Arc::new(Self {
            storage,
            ring,
            log: Mutex::new(log),
            turn: Turn::default(),
            durable: AtomicU64::new(lsn),
            failed: AtomicBool::new(false),
            durability,
            asides,
            checkpointing: Mutex::default(),
            checkpoint_bytes: setup.checkpoint_bytes(),
            wants_checkpoint: AtomicBool::new(false),
            scanned: AtomicU64::new(u64::MAX),
        });
        if let Durability::Interval(time) = durability {
            flush_every(Arc::downgrade(&journal), time)?;
        }
        // Never ended: each writer holds the locks of its keys.
        pool.0.epochs.barrier.begin_use();
        let _ = pool.0.journal.set(journal);
        Ok(())
    }
}

/// Starts a thread that makes the journal durable again and again, until it is gone.
fn flush_every(journal: Weak<Journal>, time: Duration) -> Result<()> {
    let run = move || {
        loop {
            std::thread::sleep(time);
            let Some(journal) = journal.upgrade() else { return };
            if journal.sync().is_err() {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("bristlecone-journal".to_owned()).spawn(run);
    started.map(drop).map_err(|error| Error::io("starting the thread that syncs the journal", error))
}
