//! Keeps the server's own files complete: they are the backups of the maps.
//!
//! At a start the maps come from the pool, and the files may lack some of them: the pool is ahead of a file after a crash, and
//! an append-only file that was switched on between two starts begins without maps. So after such a start the module has the
//! server write its file once, in the background: the append-only file if that is on, otherwise the RDB file if there are save
//! points. A few maps are appended to the append-only file instead, before the server serves. A rewrite that succeeds makes the
//! append-only file complete; from then on each command is appended. An orderly end notes in the pool that the file was
//! complete; the start after it needs no rewrite.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::commands::{each_expiry, long};
use crate::server::{self, Ctx, OwnString, RawString, call, config, log, raw, warn};
use crate::store::{FOREVER, ID_BYTES, Time};
use crate::{kind, offsets, state};

/// The append-only file has every map, or the server's next command will put it there.
static COMPLETE: AtomicBool = AtomicBool::new(false);
/// The maps were put into the keyspace from the append-only file of this start.
static FROM_AOF: AtomicBool = AtomicBool::new(false);
/// A child rewrites the append-only file.
static REWRITING: AtomicBool = AtomicBool::new(false);
/// A file is to be written, not before that time.
static DUE: Mutex<Option<Instant>> = Mutex::new(None);

/// Names of maps that a file has and the pool has not, with their databases.
static GONE: Mutex<Vec<(c_int, Vec<u8>)>> = Mutex::new(Vec::new());

/// Fields that are appended to the append-only file at a start. With more it is rewritten.
const APPENDED_MAX: u64 = 10_000;
/// Fields of one command that is appended.
const FIELDS: usize = 128;

/// After a failure it is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

fn due() -> MutexGuard<'static, Option<Instant>> {
    DUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> MutexGuard<'static, Vec<(c_int, Vec<u8>)>> {
    GONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the server reads its append-only file.
pub fn reads_aof() {
    FROM_AOF.store(true, Ordering::Relaxed);
}

/// Returns whether the server has read its append-only file at this start.
pub fn has_read_aof() -> bool {
    FROM_AOF.load(Ordering::Relaxed)
}

/// Notes where the maps of this start came from: `from_pool` if the pool was the truth, `same` if it holds no map, and neither
/// did a file.
pub fn started(from_pool: bool, same: bool) {
    let store = state::store();
    let was_complete = store.was_complete() && FROM_AOF.load(Ordering::Relaxed);
    let complete = !from_pool || same || was_complete;
    COMPLETE.store(complete, Ordering::Relaxed);
    if !complete && !store.was_saved() {
        *due() = Some(Instant::now());
    }
}

/// Has the server write its file if that is due: before it sleeps, when it serves.
pub fn before_sleep(ctx: Ctx) {
    let mut due = due();
    if due.is_none_or(|due| due > Instant::now()) {
        return;
    }
    *due = None;
    let flags = call!(RedisModule_GetContextFlags(ctx)) as u32;
    if flags & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0 {
        // Its master sends everything soon, and the server writes its file then.
        return;
    }
    let has_aof = server::has_append_only_file();
    let done = if has_aof && state::store().fields().is_ok_and(|fields| fields <= APPENDED_MAX) {
        let appended = append(ctx);
        COMPLETE.store(appended.is_ok(), Ordering::Relaxed);
        match &appended {
            Ok(maps) => log(
                ctx,
                c"notice",
                &format!("bristlecone: {maps} maps of the pool are appended to the append-only file"),
            ),
            Err(error) => {
                warn(&format!("maps of the pool cannot be appended to the append-only file: {error}"))
            }
        }
        appended.is_ok()
    } else if has_aof {
        log(
            ctx,
            c"notice",
            "bristlecone: the append-only file is rewritten once, since it may lack maps of the pool",
        );
        offsets::run(ctx, c"BGREWRITEAOF", &[])
    } else if config(ctx, c"save").is_some_and(|points| !points.is_empty()) {
        log(ctx, c"notice", "bristlecone: the RDB file is written once, since it may lack maps of the pool");
        offsets::run(ctx, c"BGSAVE", &[c"SCHEDULE"])
    } else {
        true
    };
    if !done {
        warn(
            "the server's file lacks maps of the pool and could not be written: it is tried again in a minute",
        );
        *due = Some(Instant::now() + AGAIN_AFTER);
    }
}

/// Notes that a file has a map which the pool has not.
pub fn is_gone(db: c_int, name: &[u8]) {
    gone().push((db, name.to_vec()));
}

/// Appends all maps of the pool to the append-only file. Returns how many there are.
///
/// # Errors
///
/// Those of reading a damaged map: then nothing is appended, as the file may have what the pool has lost.
fn append(ctx: Ctx) -> bristlecone::Result<usize> {
    let store = state::store();
    let mut maps = Vec::new();
    for entry in store.entries()? {
        // What is covered stays in the directory until the file has its successor.
        if !kind::is_of_another(entry.db, &entry.name) {
            long::wait_for(entry.place.id)?;
            let items = store.items_at(entry.place)?;
            let times = store.times_at(entry.place)?;
            maps.push((entry, items, times));
        }
    }
    for (db, name) in gone().drain(..) {
        emit(ctx, db, c"DEL", &[&name]);
    }
    for (entry, items, times) in &maps {
        // What the file has under that name is of an earlier time.
        emit(ctx, entry.db, c"DEL", &[&entry.name]);
        for items in items.chunks(FIELDS) {
            let parts = items.iter().flat_map(|(key, value)| [&key[ID_BYTES..], value]);
            let arguments: Vec<&[u8]> = std::iter::once(entry.name.as_slice()).chain(parts).collect();
            emit(ctx, entry.db, c"OM.SET", &arguments);
        }
        let times: Vec<Time<'_>> = times.iter().map(|(key, time)| (&key[ID_BYTES..], *time)).collect();
        each_expiry(&times, |words| {
            emit(ctx, entry.db, c"OM.PEXPIREAT", &[&[entry.name.as_slice()], words].concat());
        });
        if entry.expires != FOREVER {
            emit(ctx, entry.db, c"PEXPIREAT", &[&entry.name, entry.expires.to_string().as_bytes()]);
        }
    }
    Ok(maps.len())
}

/// Appends a command to the append-only file, which is not carried out here.
fn emit(ctx: Ctx, db: c_int, command: &CStr, arguments: &[&[u8]]) {
    if call!(RedisModule_SelectDb(ctx, db)) != raw::REDISMODULE_OK as c_int {
        return;
    }
    let strings: Vec<OwnString> = arguments.iter().map(|argument| OwnString::new(argument)).collect();
    let mut words: Vec<RawString> = strings.iter().map(OwnString::raw).collect();
    call!(RedisModule_Replicate(ctx, command.as_ptr(), c"v".as_ptr(), words.as_mut_ptr(), words.len()));
}

/// Follows how the server writes its append-only file.
pub fn on_persistence(sub: u64) {
    match sub {
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START => REWRITING.store(true, Ordering::Relaxed),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED if REWRITING.swap(false, Ordering::Relaxed) => {
            COMPLETE.store(true, Ordering::Relaxed);
        }
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED
            if REWRITING.swap(false, Ordering::Relaxed) && !COMPLETE.load(Ordering::Relaxed) =>
        {
            *due() = Some(Instant::now() + AGAIN_AFTER);
        }
        _ => {}
    }
}

/// Notes in the pool that the append-only file is complete: the server ends.
pub fn at_shutdown() {
    if server::has_append_only_file()
        && COMPLETE.load(Ordering::Relaxed)
        && let Err(error) = state::store().set_complete()
    {
        warn(&format!("the append-only file will be rewritten after the next start: {error}"));
    }
}

/// Removes what a child has written that gives up: the server does so only for a child that a signal ended.
pub fn remove_unfinished() {
    let child = std::process::id();
    for unfinished in [format!("temp-{child}.rdb"), format!("temp-rewriteaof-{child}.aof")] {
        _ = std::fs::remove_file(unfinished);
    }
}

/// Makes the server's own save fail, which a module cannot refuse: the server writes to this file and renames it at the end.
/// Without it the rename fails, the server reports an error, and the file from before stays.
pub fn spoil_save() {
    let unfinished = format!("temp-{}.rdb", std::process::id());
    match std::fs::remove_file(&unfinished) {
        Ok(()) => warn("the RDB file stays as it was: saving fails"),
        // Another map was damaged, too.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => warn(&format!(
            "{unfinished} cannot be removed, and would replace a whole file by one without a map: {error}"
        )),
    }
}
