//! Opening and closing pools, and operations on their trees.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bristlecone_rs::{Design, Domain, Pool};

use crate::argument::{Versioned, fill, give, options, place, text};
use crate::handle::{self, enter};
use crate::journal::with_journal;
use crate::object::{Object, Open as _, OpenPool};
use crate::status::{BRISTLECONE_IN_USE, Failure, Outcome, call};
use crate::tree::{ShowIssue, c_text, name_of, report};

/// An open pool: a file with trees. One process at a time writes to it, which others may follow, or any number of
/// processes read it. It belongs to the process that opened it: in a forked child every call except those that close
/// returns `BRISTLECONE_FORKED`.
pub struct PoolHandle(());

/// Creates the pool if it does not exist.
pub const BRISTLECONE_CREATE: u32 = 1;
/// Creates the pool, and fails if it exists.
pub const BRISTLECONE_CREATE_NEW: u32 = 2;
/// Opens the pool for reading only: its file is not changed, and other processes may read it, too.
pub const BRISTLECONE_READ: u32 = 4;
/// Leaves `SIGBUS` to the program. Without this flag, opening a pool installs a handler. It reports the pool that lost
/// its bytes (its file was truncated, its medium is bad) and aborts; it passes faults elsewhere to the previous
/// handler.
pub const BRISTLECONE_LEAVE_SIGBUS: u32 = 8;
/// Opens the pool for reading while another process, or another handle of this one, writes to it. The pool is not
/// created, and has its writer's maximum and domain.
///
/// Reads return durable data, the same as the writer's own threads would read. The writer must use a library with the
/// same layout of its index, and run as the same user; only trees that it has open can be opened. Neither process waits
/// for the other. Writes return `BRISTLECONE_READ_ONLY`. After the writer has closed the pool, reads return
/// `BRISTLECONE_NO_WRITER`; open handles continue with the next writer. The data of a killed writer stays readable
/// until it is recovered. Snapshots are not supported.
pub const BRISTLECONE_FOLLOW: u32 = 16;

/// The domain is detected.
pub const BRISTLECONE_DOMAIN_DETECTED: u32 = 0;
/// Shared memory: writes survive the process.
pub const BRISTLECONE_DOMAIN_PROCESS: u32 = 1;
/// Persistent memory behind caches that a power failure empties: lines are flushed and fenced.
pub const BRISTLECONE_DOMAIN_ADR: u32 = 2;
/// Persistent memory, caches included: fences only.
pub const BRISTLECONE_DOMAIN_EADR: u32 = 3;
/// Any file: pages are synced.
pub const BRISTLECONE_DOMAIN_MSYNC: u32 = 4;
/// An ordinary file with a journal beside it, which is synced before a write returns.
pub const BRISTLECONE_DOMAIN_JOURNAL: u32 = 5;

/// Options for opening a pool. Begin with `BRISTLECONE_OPEN_OPTIONS_INIT`; zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OpenOptions {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// Any of `BRISTLECONE_CREATE`, `BRISTLECONE_CREATE_NEW`, `BRISTLECONE_READ`, `BRISTLECONE_LEAVE_SIGBUS` and
    /// `BRISTLECONE_FOLLOW`.
    pub flags: u32,
    /// One of `BRISTLECONE_DOMAIN_…`. With a weaker one than the medium needs, the promised durability does not hold.
    pub domain: u32,
    /// Maximum size in bytes. Raises the maximum of an existing pool if it is larger.
    pub max_bytes: u64,
    /// Number of threads that recover a tree; 0: one per processor.
    pub recovery_threads: usize,
    /// When a write returns, in a pool of the domain `BRISTLECONE_DOMAIN_JOURNAL`: one of `BRISTLECONE_DURABILITY_…`. It
    /// holds until the pool is closed.
    pub durability: u32,
    /// With `BRISTLECONE_DURABILITY_INTERVAL`, the time in milliseconds; otherwise 0.
    pub interval_ms: u32,
    /// Folder of the journal; null: the path of the pool, followed by `.journal`. It may be on another disk, and must be
    /// given at every opening.
    pub journal: *const c_char,
    /// Most bytes of journal files that are kept only for a cursor, before a checkpoint drops it; 0: 1 GiB.
    pub cursor_limit_bytes: u64,
}

// SAFETY: numbers and a pointer that may be null, and its size first.
unsafe impl Versioned for OpenOptions {}

/// Information about a pool. Begin with `BRISTLECONE_POOL_INFO_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PoolInfo {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// The domain in force: one of `BRISTLECONE_DOMAIN_…`.
    pub domain: u32,
    /// The domain that the medium offers.
    pub detected_domain: u32,
    /// Whether the last user closed the pool cleanly.
    pub was_clean: i32,
    /// Whether it is open for reading only.
    pub read_only: i32,
    /// Version of the format.
    pub format: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Maximum size in bytes.
    pub max_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Number of chunks of the file.
    pub chunks: u64,
    /// Number of these chunks without an owner.
    pub chunks_free: u64,
    /// Bytes that are mapped by huge pages.
    pub huge_bytes: u64,
    /// Number of issues at open that do not affect data.
    pub issues: u64,
    /// The pool's identity.
    pub uuid: [c_char; 64],
    /// Whether another process writes to it, which this one follows.
    pub following: i32,
}

// SAFETY: numbers, and its size first.
unsafe impl Versioned for PoolInfo {}

/// Callback that receives a tree of a pool: its name, the kinds of its keys and values, and its design, as strings that
/// are valid during the call, under the rules of `bristlecone_show`. May be null.
pub type ShowTree = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        name: *const c_char,
        key_kind: *const c_char,
        value_kind: *const c_char,
        design: *const c_char,
    ),
>;

fn domain_of(number: u32) -> Outcome<Option<Domain>> {
    Ok(Some(match number {
        BRISTLECONE_DOMAIN_DETECTED => return Ok(None),
        BRISTLECONE_DOMAIN_PROCESS => Domain::Process,
        BRISTLECONE_DOMAIN_ADR => Domain::Adr,
        BRISTLECONE_DOMAIN_EADR => Domain::Eadr,
        BRISTLECONE_DOMAIN_MSYNC => Domain::Msync,
        BRISTLECONE_DOMAIN_JOURNAL => Domain::Journal,
        other => return Err(Failure::usage(format!("there is no domain {other}"))),
    }))
}

fn number_of(domain: Domain) -> u32 {
    match domain {
        Domain::Process => BRISTLECONE_DOMAIN_PROCESS,
        Domain::Adr => BRISTLECONE_DOMAIN_ADR,
        Domain::Eadr => BRISTLECONE_DOMAIN_EADR,
        Domain::Msync => BRISTLECONE_DOMAIN_MSYNC,
        Domain::Journal => BRISTLECONE_DOMAIN_JOURNAL,
        // A domain without a number in this interface.
        _ => BRISTLECONE_DOMAIN_DETECTED,
    }
}

/// Opens a pool; null options open an existing one for writing.
///
/// Returns `BRISTLECONE_ABSENT` if it does not exist and is not to be created, `BRISTLECONE_USAGE` if it exists and
/// must be new, `BRISTLECONE_IN_USE` while another process or handle has it open, `BRISTLECONE_NO_WRITER` if it is to
/// be followed and no process writes to it. After an error there is no handle, `*pool` is unchanged, and so is an
/// existing pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_open(
    path: *const c_char,
    open_options: *const OpenOptions,
    pool: *mut *mut PoolHandle,
) -> c_int {
    call(|| {
        let to = place(pool)?;
        if path.is_null() {
            return Err(Failure::usage("the path is a null pointer"));
        }
        // SAFETY: not null, and as the header says.
        let (path, asked) = unsafe { (CStr::from_ptr(path), options(open_options)?) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        // SAFETY: as the header says.
        let how = unsafe { with_journal(how(&asked)?, &asked) }?;
        let follows = asked.flags & BRISTLECONE_FOLLOW != 0;
        let pool = if follows { how.follow(path) } else { how.open(path) }?;
        let handle = handle::put(OpenPool { pool, members: Arc::new(()) }.into())?;
        // SAFETY: as the header says.
        unsafe { give(to, handle) };
        Ok(())
    })
}

fn how(asked: &OpenOptions) -> Outcome<bristlecone_rs::PoolOptions> {
    let known = BRISTLECONE_CREATE
        | BRISTLECONE_CREATE_NEW
        | BRISTLECONE_READ
        | BRISTLECONE_LEAVE_SIGBUS
        | BRISTLECONE_FOLLOW;
    if asked.flags & !known != 0 {
        return Err(Failure::usage(format!("flags that there are not: {:#x}", asked.flags & !known)));
    }
    let has = |flag: u32| asked.flags & flag != 0;
    let mut how = Pool::options()
        .create(has(BRISTLECONE_CREATE))
        .create_new(has(BRISTLECONE_CREATE_NEW))
        .read_only(has(BRISTLECONE_READ))
        .leave_sigbus(has(BRISTLECONE_LEAVE_SIGBUS));
    if let Some(domain) = domain_of(asked.domain)? {
        how = how.domain(domain);
    }
    if asked.max_bytes != 0 {
        how = how.max_bytes(asked.max_bytes);
    }
    if asked.recovery_threads != 0 {
        how = how.recovery_threads(asked.recovery_threads);
    }
    Ok(how)
}

/// Closes a pool cleanly: after `BRISTLECONE_OK` its file is closed, and any process may open it.
///
/// Returns `BRISTLECONE_IN_USE` while any object opened in it is open: close that first. After an error it stays open.
/// A process that ends without this call loses no acknowledged data: the next process to open the pool recovers it. In
/// a forked child the call only releases what the child inherited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_close(pool: *mut PoolHandle) -> c_int {
    call(|| {
        // Before the handle is closed to other threads, which then need not notice a refusal.
        if let Ok(open) = enter(pool)?.get() {
            expect_alone(&open.members)?;
        }
        handle::close(pool, close)
    })
}

/// Fails if any object in the pool is open.
fn expect_alone(members: &Arc<()>) -> Outcome {
    match Arc::strong_count(members) - 1 {
        0 => Ok(()),
        others => {
            let what = format!(
                "the pool has {others} trees, iterators, batches, snapshots or transactions open: close them first"
            );
            Err(Failure::Said(BRISTLECONE_IN_USE, what))
        }
    }
}

/// Removes a pool from its slot and closes it, or puts it back and returns the error.
fn close(object: &mut Option<Object>) -> Outcome {
    let Some(OpenPool { pool, members }) = object.take().and_then(OpenPool::taken) else { return Ok(()) };
    let closed = match expect_alone(&members) {
        Ok(()) => pool.close().map_err(|refused| {
            let (pool, error) = refused.into_parts();
            (pool, error.into())
        }),
        Err(why) => Err((pool, why)),
    };
    closed.map_err(|(pool, why)| {
        *object = Some(OpenPool { pool, members }.into());
        why
    })
}

/// Writes information about a pool. After an error `*info` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_get_info(pool: *const PoolHandle, info: *mut PoolInfo) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        let pool = &inside.get()?.pool;
        let found = pool.info();
        let known = PoolInfo {
            struct_bytes: 0,
            domain: number_of(found.domain),
            detected_domain: number_of(found.detected),
            was_clean: found.was_clean.into(),
            read_only: found.read_only.into(),
            format: found.version,
            file_bytes: found.file_bytes,
            max_bytes: found.max_bytes,
            chunk_bytes: found.chunk_bytes,
            chunks: found.chunks,
            chunks_free: found.chunks_free,
            huge_bytes: pool.huge_bytes(),
            issues: found.issues.len() as u64,
            uuid: name_of(&found.uuid),
            following: found.following.into(),
        };
        // SAFETY: as the header says.
        unsafe { fill(info, &known) }
    })
}

/// Verifies the pool's own structures, and reports damage; `bristlecone_tree_check` verifies a tree.
///
/// Returns `BRISTLECONE_FAILED` if there is any. Nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_check(
    pool: *const PoolHandle,
    show: ShowIssue,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        // SAFETY: as the header says.
        unsafe { report(&inside.get()?.pool.check(), show, context) }
    })
}

/// Passes the trees of a pool to the callback, in directory order. After an error the callback was not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_trees(
    pool: *const PoolHandle,
    show: ShowTree,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        for entry in inside.get()?.pool.trees()? {
            let Some(show) = show else { break };
            let spec = &entry.spec;
            let design = Design::of(spec).map_or_else(|_| "unknown".to_owned(), |design| design.to_string());
            let texts = [&spec.name, &spec.key_kind, &spec.value_kind, &design].map(|text| c_text(text));
            let [name, keys, values, design] = texts.each_ref().map(|text| text.as_ptr());
            // SAFETY: as the header says.
            unsafe { show(context, name, keys, values, design) };
        }
        Ok(())
    })
}

/// Drops a tree with all its items, and frees its space. Returns `BRISTLECONE_IN_USE` if the tree is open.
///
/// After an error, or a crash, it exists completely or not at all; after any error except `BRISTLECONE_DURABILITY_LOST`
/// it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_drop_tree(pool: *const PoolHandle, name: *const c_char) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        // SAFETY: as the header says.
        Ok(inside.get()?.pool.drop_tree(unsafe { text("the name of the tree", name) }?)?)
    })
}

/// Renames a tree, open or not.
///
/// After an error it has the old name. After a crash it has either name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_rename_tree(
    pool: *const PoolHandle,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        // SAFETY: as the header says.
        let (from, to) = unsafe { (text("the old name", from)?, text("the new name", to)?) };
        Ok(inside.get()?.pool.rename_tree(from, to)?)
    })
}

/// Removes every item of a tree atomically. Returns `BRISTLECONE_IN_USE` if the tree is open.
///
/// After an error nothing has changed. After a crash the tree has all of its items or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_clear_tree(pool: *const PoolHandle, name: *const c_char) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        // SAFETY: as the header says.
        Ok(inside.get()?.pool.clear_tree(unsafe { text("the name of the tree", name) }?)?)
    })
}

/// Allocates space in advance, so that later growth causes no page faults.
///
/// Returns `BRISTLECONE_FULL` if the file system has too little space; the available space was then allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_prefault(pool: *const PoolHandle, bytes: u64) -> c_int {
    call(|| Ok(enter(pool)?.get()?.pool.prefault(bytes)?))
}
