//! Pools: opening, closing, and the trees in them.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bristlecone_rs::{Design, Domain, Pool};

use crate::argument::{Versioned, fill, give, options, place, text};
use crate::handle::{self, enter};
use crate::object::{Object, Open as _, OpenPool};
use crate::status::{BRISTLECONE_IN_USE, Failure, Outcome, call};
use crate::tree::{ShowFinding, c_text, name_of, report};

/// An open pool: a file with trees. One process at a time writes to it, which others may follow, or any number of them
/// read it. It belongs to the process that opened it: in a child that was forked every call but those that close returns
/// `BRISTLECONE_FORKED`.
pub struct PoolHandle(());

/// Creates the pool if there is none.
pub const BRISTLECONE_CREATE: u32 = 1;
/// Creates the pool, and fails if there is one.
pub const BRISTLECONE_CREATE_NEW: u32 = 2;
/// Opens the pool for reading only: its file is not changed, and other processes may read it, too.
pub const BRISTLECONE_READ: u32 = 4;
/// Leaves `SIGBUS` to the program. Without it opening a pool installs a handler, which says which pool lost its bytes
/// (its file was truncated, its medium is bad) and aborts, and hands faults elsewhere to the handler before it.
pub const BRISTLECONE_LEAVE_SIGBUS: u32 = 8;
/// Opens the pool for reading while another process, or another handle of this one, is writing to it. The pool is not created,
/// and has its writer's maximum and domain.
///
/// What is read is durable, and what the writer's own threads would read. The writer has to be of the same build of this
/// library and of the same user, and trees can be opened that it has open. It is not waited for, and does not wait. Writes
/// are `BRISTLECONE_READ_ONLY`. When the writer has closed the pool, reads are `BRISTLECONE_NO_WRITER`; when another
/// one has come, handles that are open go on with that. What a killed writer left is read until it is recovered. There are no
/// snapshots.
pub const BRISTLECONE_FOLLOW: u32 = 16;

/// The domain is detected.
pub const BRISTLECONE_DOMAIN_DETECTED: u32 = 0;
/// Shared memory: what is written survives the process.
pub const BRISTLECONE_DOMAIN_PROCESS: u32 = 1;
/// Persistent memory behind caches that a power failure empties: lines are flushed and fenced.
pub const BRISTLECONE_DOMAIN_ADR: u32 = 2;
/// Persistent memory, caches included: fences only.
pub const BRISTLECONE_DOMAIN_EADR: u32 = 3;
/// Any file: pages are synced.
pub const BRISTLECONE_DOMAIN_MSYNC: u32 = 4;

/// How a pool is opened. Begin with `BRISTLECONE_OPEN_OPTIONS_INIT`; zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OpenOptions {
    /// The bytes of this struct.
    pub struct_bytes: usize,
    /// Any of `BRISTLECONE_CREATE`, `BRISTLECONE_CREATE_NEW`, `BRISTLECONE_READ`, `BRISTLECONE_LEAVE_SIGBUS` and
    /// `BRISTLECONE_FOLLOW`.
    pub flags: u32,
    /// One of `BRISTLECONE_DOMAIN_…`. With a weaker one than the medium needs, less survives than is said.
    pub domain: u32,
    /// Bytes that the pool may grow to. An existing pool gets this maximum if it is larger than its own.
    pub max_bytes: u64,
    /// Threads that recover a tree; 0: as many as the machine has.
    pub recovery_threads: usize,
}

// SAFETY: numbers, and its size first.
unsafe impl Versioned for OpenOptions {}

/// What is known about a pool. Begin with `BRISTLECONE_POOL_INFO_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PoolInfo {
    /// The bytes of this struct.
    pub struct_bytes: usize,
    /// The domain in force: one of `BRISTLECONE_DOMAIN_…`.
    pub domain: u32,
    /// The domain that the medium offers.
    pub detected_domain: u32,
    /// Whether the last user closed the pool in good order.
    pub was_clean: i32,
    /// Whether it is open for reading only.
    pub read_only: i32,
    /// Version of the format.
    pub format: u64,
    /// Bytes that the file has.
    pub file_bytes: u64,
    /// Bytes that it may grow to.
    pub max_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that the file has.
    pub chunks: u64,
    /// Chunks of these that no tree owns.
    pub chunks_free: u64,
    /// Bytes that are mapped by huge pages.
    pub huge_bytes: u64,
    /// What opening found damaged and could do without.
    pub findings: u64,
    /// The pool's identity.
    pub uuid: [c_char; 64],
    /// Whether another process writes to it, which this one follows.
    pub following: i32,
}

// SAFETY: numbers, and its size first.
unsafe impl Versioned for PoolInfo {}

/// Is shown a tree of a pool: its name, the kinds of its keys and values, and its design, as strings that live as long as
/// the call. What holds of `bristlecone_show` holds of it. May be null.
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
        other => return Err(Failure::usage(format!("there is no domain {other}"))),
    }))
}

fn number_of(domain: Domain) -> u32 {
    match domain {
        Domain::Process => BRISTLECONE_DOMAIN_PROCESS,
        Domain::Adr => BRISTLECONE_DOMAIN_ADR,
        Domain::Eadr => BRISTLECONE_DOMAIN_EADR,
        Domain::Msync => BRISTLECONE_DOMAIN_MSYNC,
        // One that this interface has no number for.
        _ => BRISTLECONE_DOMAIN_DETECTED,
    }
}

/// Opens a pool; null options open an existing one for writing.
///
/// Returns `BRISTLECONE_ABSENT` if there is none and it is not to be created, `BRISTLECONE_USAGE` if there is one that
/// was to be new, `BRISTLECONE_IN_USE` while another process or handle has it, `BRISTLECONE_NO_WRITER` if it is to be followed
/// and no process writes to it. After an error there is no handle,
/// `*pool` is as it was, and so is a pool that existed.
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
        let (how, path) = (how(&asked)?, Path::new(OsStr::from_bytes(path.to_bytes())));
        let follows = asked.flags & BRISTLECONE_FOLLOW != 0;
        let pool = if follows { how.throw_errors(true).follow(path) } else { how.open(path) }?;
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

/// Closes a pool in good order: after `BRISTLECONE_OK` its file is closed, and any process may open it.
///
/// Returns `BRISTLECONE_IN_USE` while anything that was opened in it is open: close that first. After an error it is open as
/// before. A process that ends without this loses nothing that was acknowledged: the next one to open the pool recovers
/// it. In a child that was forked it only gives up what the child inherited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_close(pool: *mut PoolHandle) -> c_int {
    call(|| {
        // Before the handle is closed to other threads, too, which need not notice a refusal.
        if let Ok(open) = enter(pool)?.get() {
            expect_alone(&open.members)?;
        }
        handle::close(pool, close)
    })
}

/// Refuses to close a pool that something is open in.
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

/// Takes a pool away and closes it, or puts it back with the reason why not.
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

/// Writes what is known about a pool. After an error `*info` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_get_info(pool: *const PoolHandle, info: *mut PoolInfo) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        let found = inside.get()?.pool.info();
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
            huge_bytes: found.huge_bytes,
            findings: found.findings.len() as u64,
            uuid: name_of(&found.uuid),
            following: found.following.into(),
        };
        // SAFETY: as the header says.
        unsafe { fill(info, &known) }
    })
}

/// Verifies the pool's own structures, and shows what is wrong; `bristlecone_tree_check` looks at a tree.
///
/// Returns `BRISTLECONE_FAILED` if anything is. Nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_check(
    pool: *const PoolHandle,
    show: ShowFinding,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        // SAFETY: as the header says.
        unsafe { report(&inside.get()?.pool.check(), show, context) }
    })
}

/// Shows the trees of a pool, in the order of its directory. Nothing was shown after an error.
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

/// Drops a tree and everything in it, and frees its space. It must not be open: `BRISTLECONE_IN_USE` if it is.
///
/// After an error, or a crash, it is there wholly or not at all; after any other error than
/// `BRISTLECONE_DURABILITY_LOST` it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_drop_tree(pool: *const PoolHandle, name: *const c_char) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        // SAFETY: as the header says.
        Ok(inside.get()?.pool.drop_tree(unsafe { text("the name of the tree", name) }?)?)
    })
}

/// Gives a tree another name, whether it is open or not.
///
/// After an error it has the old one. After a crash it has either of both.
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

/// Removes every item of a tree in one step. It must not be open: `BRISTLECONE_IN_USE` if it is.
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

/// Makes room ahead of time, so that growth costs no page faults later.
///
/// Returns `BRISTLECONE_FULL` if the file system has no such room, of which what there is was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_prefault(pool: *const PoolHandle, bytes: u64) -> c_int {
    call(|| Ok(enter(pool)?.get()?.pool.prefault(bytes)?))
}
