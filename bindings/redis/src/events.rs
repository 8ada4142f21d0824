//! What the server tells: that it loads, forks, sleeps, ends, flushes, exchanges databases, renames or expires keys.
//!
//! # The start
//!
//! The pool is the truth about maps. 1. The module is loaded and opens the pool. 2. The server loads its RDB or
//! append-only file, if there is one: what that says about maps is skipped (a placeholder takes its place in the keyspace).
//! 3. Before the server serves, [`restore`] puts the maps of the directory into the keyspace and removes the
//! placeholders that are left.
//!
//! If the pool is new, or an earlier load into it was cut short, there is nothing to restore, and the file is what maps are
//! loaded from. The same holds for what a replica gets from its master: the stream is the truth then.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bristlecone::Error;

use crate::commands::{expired, long};
use crate::kind;
use crate::map::{Map, Owned, PLACEHOLDERS};
use crate::server::{
    Ctx, Holds, Key, OwnString, RawString, bytes, call, has_append_only_file, log, raw, warn,
};
use crate::store::FOREVER;
use crate::{backups, fork, latency, offsets, state};

/// The maps of the pool are in the keyspace.
static RESTORED: AtomicBool = AtomicBool::new(false);
/// A file or a stream is being loaded.
static LOADING: AtomicBool = AtomicBool::new(false);

/// The last `OM.UNIT` of the append-only file that was read.
static LAST_UNIT: AtomicU64 = AtomicU64::new(0);

/// Damaged maps that are named in the log at a start, of any number.
const DAMAGED_NAMED: usize = 10;

thread_local! {
    /// A command of the module deletes a key whose map is empty.
    static BY_MODULE: Cell<bool> = const { Cell::new(false) };
    /// The module itself changes keys, and needs not be told.
    static OWN_WORK: Cell<bool> = const { Cell::new(false) };
    /// The database that a key is copied to: the event names the one that it is copied from.
    static COPIED_TO: Cell<c_int> = const { Cell::new(0) };
}

/// Calls `work`, which deletes a key on behalf of a command of the module.
pub fn by_module(work: impl FnOnce()) {
    BY_MODULE.set(true);
    work();
    BY_MODULE.set(false);
}

/// Notes the number of an `OM.UNIT` that is read from the append-only file.
pub fn reads_unit(number: &[u8]) {
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    LAST_UNIT.fetch_max(number.unwrap_or(0), Ordering::Relaxed);
}

/// Notes the database that a key is being copied to.
pub fn copying_to(db: c_int) {
    COPIED_TO.set(db);
}

/// Returns whether a file is being loaded that the pool knows better than.
pub fn skips_files() -> bool {
    LOADING.load(Ordering::Relaxed) && !RESTORED.load(Ordering::Relaxed) && state::store().is_ready()
}

/// Subscribes to events. Returns whether the server agreed to all.
pub fn subscribe(ctx: Ctx) -> bool {
    let events: [(u64, raw::RedisModuleEventCallback); 7] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(on_flush)),
        (raw::REDISMODULE_EVENT_LOADING, Some(on_loading)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(on_swap)),
        (raw::REDISMODULE_EVENT_FORK_CHILD, Some(on_fork)),
        (raw::REDISMODULE_EVENT_EVENTLOOP, Some(on_event_loop)),
        (raw::REDISMODULE_EVENT_PERSISTENCE, Some(offsets::on_persistence)),
        (raw::REDISMODULE_EVENT_SHUTDOWN, Some(on_shutdown)),
    ];
    let told = |(id, callback)| {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        call!(RedisModule_SubscribeToServerEvent(ctx, event, callback)) == raw::REDISMODULE_OK as c_int
    };
    let kinds =
        raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_LOADED | raw::REDISMODULE_NOTIFY_EXPIRED;
    events.into_iter().all(told)
        && call!(RedisModule_SubscribeToKeyspaceEvents(ctx, kinds as c_int, Some(on_key)))
            == raw::REDISMODULE_OK as c_int
}

/// Reports an error that the server cannot be told of.
fn note(what: &str, done: bristlecone::Result<()>) {
    if let Err(error) = done {
        warn(&format!("{what}: {error}"));
    }
}

unsafe extern "C" fn on_flush(_ctx: Ctx, _event: raw::RedisModuleEvent, sub: u64, data: *mut c_void) {
    if sub != raw::REDISMODULE_SUBEVENT_FLUSHDB_START || data.is_null() || skips_files() || fork::is_child() {
        return;
    }
    // SAFETY: the server passes this structure with this event.
    let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfoV1>()).dbnum };
    state::store().note_freed(None);
    note("a flush is not durable", state::store().flush((db >= 0).then_some(db)));
}

unsafe extern "C" fn on_swap(_ctx: Ctx, _event: raw::RedisModuleEvent, _sub: u64, data: *mut c_void) {
    if data.is_null() || skips_files() {
        return;
    }
    // SAFETY: the server passes this structure with this event.
    let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfoV1>() };
    long::wait_for_all();
    state::store().note_freed(None);
    note("SWAPDB is not durable", state::store().swap(info.dbnum_first, info.dbnum_second));
}

unsafe extern "C" fn on_loading(ctx: Ctx, _event: raw::RedisModuleEvent, sub: u64, _data: *mut c_void) {
    match sub {
        raw::REDISMODULE_SUBEVENT_LOADING_RDB_START
        | raw::REDISMODULE_SUBEVENT_LOADING_AOF_START
        | raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => {
            LOADING.store(true, Ordering::Relaxed);
            if sub == raw::REDISMODULE_SUBEVENT_LOADING_AOF_START {
                backups::reads_aof();
            }
            if skips_files() && !state::store().was_saved() {
                offsets::distrust();
            }
            if sub == raw::REDISMODULE_SUBEVENT_LOADING_REPL_START {
                RESTORED.store(true, Ordering::Relaxed);
                note("maps from before this load may be back after a restart", state::store().flush(None));
            }
            if !skips_files() {
                note("a load that is cut short will not be noticed", state::store().set_ready(false));
            }
        }
        raw::REDISMODULE_SUBEVENT_LOADING_ENDED => {
            LOADING.store(false, Ordering::Relaxed);
            if RESTORED.load(Ordering::Relaxed) {
                note("what was loaded is not kept over a restart", state::store().set_ready(true));
            } else {
                restore(ctx);
            }
        }
        _ => LOADING.store(false, Ordering::Relaxed),
    }
}

unsafe extern "C" fn on_event_loop(ctx: Ctx, _event: raw::RedisModuleEvent, sub: u64, _data: *mut c_void) {
    if sub != raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP {
        if RESTORED.load(Ordering::Relaxed) {
            note(UNITS, state::store().begin_turn());
        }
        return;
    }
    if !RESTORED.load(Ordering::Relaxed) {
        restore(ctx);
    }
    // The append-only file is written after this, and replies are sent.
    long::end_done();
    if !skips_files() {
        expired::before_sleep(ctx);
    }
    settle_detached();
    if !skips_files() {
        note("a map was replaced and may be back after a restart", state::store().note_covered(false));
    }
    if !skips_files() {
        note(UNITS, state::store().end_turn());
    }
    offsets::before_sleep(ctx);
    if !LOADING.load(Ordering::Relaxed) {
        backups::before_sleep(ctx);
    }
}

fn settle_detached() {
    if !skips_files() {
        note(NOT_DELETED, state::store().settle());
    }
}

unsafe extern "C" fn on_shutdown(_ctx: Ctx, _event: raw::RedisModuleEvent, _sub: u64, _data: *mut c_void) {
    long::wait_for_all();
    settle_detached();
    note("a map was replaced and may be back after a restart", state::store().note_covered(true));
    note(UNITS, state::store().empty_journal());
    offsets::at_shutdown();
    backups::at_shutdown();
}

unsafe extern "C" fn on_fork(ctx: Ctx, _event: raw::RedisModuleEvent, sub: u64, _data: *mut c_void) {
    if sub == raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN && !fork::is_child() {
        let began = Instant::now();
        note("a child gets no snapshot, and cannot save maps", fork::serve(state::store()));
        latency::watch(ctx, c"bristlecone-fork", began.elapsed());
    }
}

/// What is reported if a deleted map cannot be removed.
const NOT_DELETED: &str = "a map was deleted and may be back after a restart";

/// What is reported if the journal cannot be emptied.
const UNITS: &str = "what was acknowledged may be undone after a restart";

/// Puts the maps of the pool into the keyspace, once. Their pool was the truth, or has become it.
pub fn restore(ctx: Ctx) {
    if RESTORED.load(Ordering::Relaxed) || RESTORED.swap(true, Ordering::Relaxed) {
        return;
    }
    let (store, began) = (state::store(), Instant::now());
    let from_pool = store.is_ready();
    let last = backups::has_read_aof().then(|| LAST_UNIT.load(Ordering::Relaxed));
    let decided = store.decide(last);
    let put = || if from_pool { put_maps(ctx) } else { store.set_ready(true).map(|()| 0) };
    let result = decided.and_then(|()| put());
    match result {
        Ok(maps) => {
            backups::started(from_pool, maps == 0 && PLACEHOLDERS.load(Ordering::Relaxed) == 0);
            let fields = store.fields().unwrap_or(0);
            log(ctx, c"notice", &format!("bristlecone: {maps} maps of the pool are served, {fields} fields"));
        }
        // To serve without them would be to lose them with the next write.
        Err(error) => {
            warn(&format!(
                "the maps of the pool cannot be served: {error}; the server ends, nothing has changed. \
                 `bristlecone check --repair` saves what can be read"
            ));
            std::process::exit(1);
        }
    }
    if PLACEHOLDERS.load(Ordering::Relaxed) > 0 {
        remove_placeholders(ctx);
    }
    long::go_on();
    latency::watch(ctx, c"bristlecone-start", began.elapsed());
}

fn put_maps(ctx: Ctx) -> Result<usize, Error> {
    let (store, mut maps, mut damaged) = (state::store(), 0, 0);
    let mut covered = Vec::new();
    OWN_WORK.set(true);
    let entries = store.entries()?;
    for entry in &entries {
        if call!(RedisModule_SelectDb(ctx, entry.db)) != raw::REDISMODULE_OK as c_int {
            warn(&format!(
                "a map is in database {}, which this server has not: it stays in the pool",
                entry.db
            ));
            continue;
        }
        if store.was_covered(entry.place.id)? && kind::is_of_another(entry.db, &entry.name) {
            // The file has the other value: step 3 follows.
            covered.push(entry.place);
            continue;
        }
        match store.has_any(entry) {
            Ok(true) => {}
            Ok(false) => {
                store.detach(&entry.place.into());
                continue;
            }
            // It is served: its commands reply what is wrong.
            Err(error) => {
                damaged += 1;
                if damaged <= DAMAGED_NAMED {
                    let name = String::from_utf8_lossy(&entry.name);
                    warn(&format!("map {name:?} of database {} is damaged: {error}", entry.db));
                }
            }
        }
        let name = OwnString::new(&entry.name);
        let Some(key) = Key::write(ctx, name.raw()) else { continue };
        if key.set(kind::of_maps(), Owned::from(entry.place).into_raw()) {
            maps += 1;
        }
        if entry.expires != FOREVER {
            key.expire_at(entry.expires);
        }
    }
    OWN_WORK.set(false);
    store.remove_covered(&mut covered)?;
    store.forget_covered_without(&entries)?;
    if damaged > 0 {
        warn(&format!(
            "{damaged} maps are damaged: run OM.CHECK, and `bristlecone check --repair` on the pool"
        ));
    }
    Ok(maps)
}

/// Removes what a file had under keys that are no maps in the pool.
fn remove_placeholders(ctx: Ctx) {
    let mut db = 0;
    while call!(RedisModule_SelectDb(ctx, db)) == raw::REDISMODULE_OK as c_int {
        let mut found: Vec<OwnString> = Vec::new();
        let cursor = call!(RedisModule_ScanCursorCreate());
        while call!(RedisModule_Scan(ctx, cursor, Some(collect), (&raw mut found).cast())) != 0 {}
        call!(RedisModule_ScanCursorDestroy(cursor));
        for name in found {
            if let Some(key) = Key::write(ctx, name.raw()) {
                key.delete();
                backups::is_gone(db, bytes(name.raw()));
            }
        }
        db += 1;
    }
}

unsafe extern "C" fn collect(_ctx: Ctx, name: RawString, key: *mut raw::RedisModuleKey, found: *mut c_void) {
    if key.is_null() || call!(RedisModule_ModuleTypeGetType(key)) != kind::of_maps() {
        return;
    }
    let value = call!(RedisModule_ModuleTypeGetValue(key));
    // SAFETY: a value of this type, in the keyspace; and what `remove_placeholders` passes, which waits meanwhile.
    let (map, found) = unsafe { (Map::borrow(value), &mut *found.cast::<Vec<OwnString>>()) };
    if map.is_placeholder() {
        found.push(OwnString::new(bytes(name)));
    }
}

unsafe extern "C" fn on_key(ctx: Ctx, _kind: c_int, event: *const c_char, name: RawString) -> c_int {
    // SAFETY: the server passes the event's name, which ends with a zero.
    let event = unsafe { CStr::from_ptr(event) };
    let matters = matches!(
        event.to_bytes(),
        b"loaded" | b"restore" | b"copy_to" | b"rename_to" | b"move_to" | b"expire" | b"persist"
    );
    let frees = matches!(event.to_bytes(), b"del" | b"expired" | b"rename_from" | b"move_from");
    if matches!(event.to_bytes(), b"rename_from" | b"move_from") {
        long::wait_for_name(call!(RedisModule_GetSelectedDb(ctx)), bytes(name));
    }
    // Without a file one step at the end of the turn is enough.
    if frees && !BY_MODULE.get() && !OWN_WORK.get() && !skips_files() && has_append_only_file() {
        state::store().note_freed(Some(bytes(name)));
        if event.to_bytes() == b"del" {
            note(NOT_DELETED, state::store().settle_within());
        }
    }
    if matters && !OWN_WORK.get() && !skips_files() {
        if event.to_bytes() == b"copy_to" {
            call!(RedisModule_SelectDb(ctx, COPIED_TO.get()));
        }
        settle(ctx, name);
    }
    raw::REDISMODULE_OK as c_int
}

/// Writes the pool's entry of a key as the key is now, if it is a map.
fn settle(ctx: Ctx, name: RawString) {
    // A key that is loaded has its name on the server's stack, where it cannot be kept.
    let own = OwnString::new(bytes(name));
    let Some(key) = Key::read(ctx, own.raw()) else { return };
    let Holds::Map(value) = key.holds(kind::of_maps()) else { return };
    // SAFETY: the key holds it, and nothing frees it while this thread is here.
    let map = unsafe { Map::borrow(value) };
    match state::store().attach(map, key.db(), key.expires(), bytes(name)) {
        Ok(None) => {}
        Ok(Some(other)) => {
            drop(key);
            hold_instead(ctx, &own, other);
        }
        Err(error) => warn(&format!("a key's name or time to live is not durable: {error}")),
    }
}

/// Writes into the pool when a key expires.
pub fn keep_expiry(ctx: Ctx, name: RawString) {
    settle(ctx, name);
}

/// Makes a key that has a map hold it as another value.
fn hold_instead(ctx: Ctx, name: &OwnString, value: Owned) {
    match Key::write(ctx, name.raw()) {
        Some(key) => key.replace(kind::of_maps(), value),
        None => warn("a key of a map is gone while it is written"),
    }
}
