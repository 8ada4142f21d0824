//! The type of the module: how the server loads, saves, copies and frees a map.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use bristlecone::Result;

use crate::map::Map;
use crate::pieces::{pack, unpack};
use crate::server::{self, Ctx, Holds, Key, OwnString, RawString, call, raw, warn};
use crate::store::{ID_BYTES, all_of};
use crate::{backups, events, fork, offsets, state};

/// The type's name, as dumps have it: nine characters.
const NAME: &std::ffi::CStr = c"bristlmap";
/// The version of what [`save`] writes.
const ENCODING: c_int = 1;
/// The version of the interface whose methods [`register`] fills in.
const METHODS: u64 = 4;
/// Fields of a command in an append-only file.
const AOF_FIELDS: usize = 128;

struct Type(*mut raw::RedisModuleType);

// SAFETY: the pointer names the type to the server, is not written through, and lives as long as the process.
unsafe impl Send for Type {}
// SAFETY: as above.
unsafe impl Sync for Type {}

static TYPE: OnceLock<Type> = OnceLock::new();

/// Returns the module's type.
pub fn of_maps() -> *mut raw::RedisModuleType {
    TYPE.get().map_or(std::ptr::null_mut(), |of| of.0)
}

/// Returns whether a name of a database has a value of another type. For the server's main thread.
pub fn is_of_another(db: c_int, name: &[u8]) -> bool {
    let (ctx, name) = (server::own_context(), OwnString::new(name));
    let is_there = call!(RedisModule_SelectDb(ctx, db)) == raw::REDISMODULE_OK as c_int;
    is_there && Key::read(ctx, name.raw()).is_some_and(|key| key.holds(of_maps()) == Holds::Another)
}

/// Registers the type. Returns whether the server took it.
pub fn register(ctx: Ctx) -> bool {
    let mut methods = raw::RedisModuleTypeMethods {
        version: METHODS,
        rdb_load: Some(load),
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite),
        mem_usage: None,
        digest: Some(digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: Some(free_effort),
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: Some(memory),
        free_effort2: None,
        unlink2: None,
        copy2: Some(copy),
        aux_save2: None,
    };
    let of = call!(RedisModule_CreateDataType(ctx, NAME.as_ptr(), ENCODING, &mut methods));
    !of.is_null() && TYPE.set(Type(of)).is_ok()
}

/// Returns the map that a key holds.
fn map<'a>(value: *mut c_void) -> &'a Map {
    // SAFETY: the server calls with what `load`, `copy` or a command gave it as a value of this type, and not after `free`.
    unsafe { Map::borrow(value) }
}

fn null_if_panics(what: &str, make: impl FnOnce() -> Option<Map>) -> *mut c_void {
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
    let made = made.unwrap_or_else(|_| {
        warn(&format!("{what} failed unexpectedly"));
        None
    });
    made.map_or(std::ptr::null_mut(), Map::into_raw)
}

unsafe extern "C" fn load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    null_if_panics("loading a map", || {
        if encoding != ENCODING {
            warn(&format!("a map is encoded as version {encoding}, and this module knows {ENCODING}"));
            return None;
        }
        if events::skips_files() {
            while !load_piece(io)?.is_empty() {}
            return Some(Map::placeholder());
        }
        let store = state::store();
        let id = store.begin().map_err(|error| warn(&format!("a map cannot be loaded: {error}"))).ok()?;
        let len = fill_from(io, id);
        store.help(len.unwrap_or(0) as usize);
        if len.is_none() {
            store.detach(id, None);
        }
        let map = Map::new(id, None);
        map.set_len(len?);
        Some(map)
    })
}

/// Writes the pieces that follow as items of a map. Returns how many there are; `None`: the stream or the pool failed.
fn fill_from(io: *mut raw::RedisModuleIO, id: u64) -> Option<u64> {
    let mut len = 0;
    loop {
        let piece = load_piece(io)?;
        if piece.is_empty() {
            return (len > 0).then_some(len);
        }
        let written = unpack(&piece).and_then(|items| write(id, &items));
        len += written.map_err(|error| warn(&format!("a map cannot be loaded: {error}"))).ok()?;
    }
}

fn write(id: u64, items: &[(&[u8], &[u8])]) -> Result<u64> {
    for items in items.chunks(256) {
        state::store().fill(id, items)?;
    }
    Ok(items.len() as u64)
}

/// Returns the next string of a dump. The server reports a stream that is cut short itself.
fn load_piece(io: *mut raw::RedisModuleIO) -> Option<Vec<u8>> {
    let mut len = 0;
    let start = call!(RedisModule_LoadStringBuffer(io, &mut len));
    if start.is_null() {
        return None;
    }
    // SAFETY: the server allocated `len` bytes and passes their ownership; they are copied before they are freed.
    let piece = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec();
    call!(RedisModule_Free(start.cast()));
    Some(piece)
}

/// Calls `give` with the pieces of a map: in a child as the parent's snapshot has it, otherwise as it is.
fn pieces(map: &Map, give: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    if fork::is_child() {
        return fork::ask(map.id(), give);
    }
    pack(state::store().range(&all_of(map.id())), ID_BYTES, give)
}

/// Makes saving fail, so that the server keeps the file it had: a child that cannot read a map ends, and a server that saves
/// without a child loses the file that it was writing.
fn give_up(what: &str, error: &bristlecone::Error) {
    warn(&format!("{what}: {error}"));
    if fork::is_child() {
        backups::remove_unfinished();
        // SAFETY: ends the process without running anything of it.
        unsafe { libc::_exit(1) };
    }
    if offsets::is_saving() {
        backups::spoil_save();
    }
}

unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    let saved = pieces(map(value), |piece| {
        call!(RedisModule_SaveStringBuffer(io, piece.as_ptr().cast(), piece.len()));
        Ok(())
    });
    if let Err(error) = saved {
        give_up("a map cannot be saved", &error);
        // A piece that no map has, so that loading a dump refuses it rather than take a part for the whole.
        call!(RedisModule_SaveStringBuffer(io, b"\xff".as_ptr().cast(), 1));
    }
}

unsafe extern "C" fn rewrite(io: *mut raw::RedisModuleIO, key: RawString, value: *mut c_void) {
    let written = pieces(map(value), |piece| {
        for items in unpack(piece)?.chunks(AOF_FIELDS) {
            let strings: Vec<OwnString> = items
                .iter()
                .flat_map(|(field, value)| [OwnString::new(field), OwnString::new(value)])
                .collect();
            let mut arguments: Vec<RawString> = strings.iter().map(OwnString::raw).collect();
            call!(RedisModule_EmitAOF(
                io,
                c"OM.SET".as_ptr(),
                c"sv".as_ptr(),
                key,
                arguments.as_mut_ptr(),
                arguments.len()
            ));
        }
        Ok(())
    });
    if let Err(error) = written {
        give_up("a map cannot be written to the append-only file", &error);
    }
}

/// Returns the bytes of a map: in the server's memory, and of its items in the pool, by the mean of the first ones (of all, if none
/// are asked for).
unsafe extern "C" fn memory(
    _key: *mut raw::RedisModuleKeyOptCtx,
    value: *const c_void,
    samples: usize,
) -> usize {
    let map = map(value.cast_mut());
    if map.is_placeholder() {
        return size_of::<Map>();
    }
    let (store, samples) = (state::store(), if samples == 0 { usize::MAX } else { samples });
    let (mut bytes, mut read) = (0, 0);
    for (key, value) in store.range(&all_of(map.id())).take(samples).flatten() {
        bytes += item_bytes(&key, &value);
        read += 1;
    }
    let counted = || store.count(map.id()).inspect(|len| map.set_len(*len)).ok();
    let len = map.len().or_else(counted).unwrap_or(read as u64) as usize;
    size_of::<Map>() + (bytes as f64 / read.max(1) as f64 * len as f64) as usize
}

/// Returns about how many bytes of the pool an item takes: two records, and two words of a leaf.
fn item_bytes(key: &[u8], value: &[u8]) -> usize {
    const WORD_BYTES: usize = 8;
    // Most sizes of slots are multiples of 16.
    let record = |bytes: &[u8]| (WORD_BYTES + bytes.len()).next_multiple_of(16);
    2 * WORD_BYTES + record(key) + record(value)
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    let added = pieces(map(value), |piece| {
        for (field, value) in unpack(piece)? {
            for part in [field, value] {
                call!(RedisModule_DigestAddStringBuffer(digest, part.as_ptr().cast(), part.len()));
            }
        }
        Ok(())
    });
    if let Err(error) = added {
        warn(&format!("a map cannot be digested: {error}"));
    }
    call!(RedisModule_DigestEndSequence(digest));
}

/// Returns that freeing is quick, so that the server does it where the key is removed: what `UNLINK` acknowledged is
/// durable then. The items are removed in the background by the module itself.
unsafe extern "C" fn free_effort(_key: RawString, _value: *const c_void) -> usize {
    1
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the server calls once, with what it got as a value of this type.
    let map = unsafe { Map::take(value) };
    if map.is_placeholder() || fork::is_child() {
        return;
    }
    state::store().detach(map.id(), map.space());
}

unsafe extern "C" fn copy(to: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) -> *mut c_void {
    events::copying_to(call!(RedisModule_GetToDbIdFromOptCtx(to)));
    null_if_panics("copying a map", || {
        let (store, map) = (state::store(), map(value.cast_mut()));
        if map.is_placeholder() {
            return Some(Map::placeholder());
        }
        let id = store.begin().map_err(|error| warn(&format!("a map cannot be copied: {error}"))).ok()?;
        let mut len = 0;
        let copied = pieces(map, |piece| {
            len += write(id, &unpack(piece)?)?;
            Ok(())
        });
        if let Err(error) = copied {
            warn(&format!("a map cannot be copied: {error}"));
            store.detach(id, None);
            return None;
        }
        store.help(len as usize);
        let map = Map::new(id, None);
        map.set_len(len);
        Some(map)
    })
}
