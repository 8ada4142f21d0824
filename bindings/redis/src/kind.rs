//! The type of the module: how the server loads, saves, copies and frees a map.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use bristlecone::Result;

use crate::commands::{each_expiry, long};
use crate::map::{Large, Map, Owned, Small};
use crate::pieces::{append, pack, unpack};
use crate::server::{self, Ctx, Holds, Key, OwnString, RawString, call, raw, warn};
use crate::store::{ID_BYTES, NO_TIME, SmallEntry, Time, all_of, as_item};
use crate::{backups, events, fork, offsets, state};

/// The type's name, as dumps have it: nine characters.
const NAME: &std::ffi::CStr = c"bristlmap";
/// The version of what [`save`] writes: pieces of fields, an empty one, pieces of times, an empty one. Version 1 has no times.
const ENCODING: c_int = 2;
const WITHOUT_TIMES: c_int = 1;
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
fn map<'a>(value: *mut c_void) -> Map<'a> {
    // SAFETY: the server calls with what `load`, `copy` or a command gave it as a value of this type, and not after `free`.
    unsafe { Map::borrow(value) }
}

fn null_if_panics(what: &str, make: impl FnOnce() -> Option<Owned>) -> *mut c_void {
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
    let made = made.unwrap_or_else(|_| {
        warn(&format!("{what} failed unexpectedly"));
        None
    });
    made.map_or(std::ptr::null_mut(), Owned::into_raw)
}

unsafe extern "C" fn load(io: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    null_if_panics("loading a map", || {
        if !(WITHOUT_TIMES..=ENCODING).contains(&encoding) {
            warn(&format!("a map is encoded as version {encoding}, and this module knows up to {ENCODING}"));
            return None;
        }
        if events::skips_files() {
            for _part in 0..encoding {
                while !load_piece(io)?.is_empty() {}
            }
            return Some(Owned::Placeholder);
        }
        load_map(io, encoding)
    })
}

/// Loads a map from pieces, of which there is one for a small map, and no time.
fn load_map(io: *mut raw::RedisModuleIO, encoding: c_int) -> Option<Owned> {
    let store = state::store();
    let first = load_piece(io)?;
    let second = if first.is_empty() { None } else { Some(load_piece(io)?) };
    let is_short = second.as_ref().is_none_or(Vec::is_empty);
    let first_time = if is_short { load_time(io, encoding)? } else { Vec::new() };
    if first.is_empty() {
        return None;
    }
    if is_short && first_time.is_empty() {
        let name = call!(RedisModule_GetKeyNameFromIO(io)).cast_mut();
        let name = if name.is_null() { b"" } else { server::bytes(name) };
        let small = unpack(&first).and_then(|items| store.begin_small(name, &items));
        let small = small.map_err(|error| warn(&format!("a map cannot be loaded: {error}"))).ok()?;
        if let Some(small) = small {
            return Some(Owned::Small(small));
        }
    }
    let id = store.begin().map_err(|error| warn(&format!("a map cannot be loaded: {error}"))).ok()?;
    let large = Large::new(id, None);
    let len = fill_from(io, id, first, second).and_then(|len| {
        let piece = if is_short { first_time } else { load_time(io, encoding)? };
        fill_times_from(io, id, piece)?;
        Some(len)
    });
    store.help(len.unwrap_or(0) as usize);
    let map = Owned::Large(Box::new(large));
    let (Some(len), Owned::Large(large)) = (len, &map) else {
        store.detach(&map);
        return None;
    };
    large.set_len(len);
    Some(map)
}

/// Writes pieces as items of a map: those that were read, and what follows. Returns how many there are; `None`: the stream or
/// the pool failed.
fn fill_from(io: *mut raw::RedisModuleIO, id: u64, first: Vec<u8>, second: Option<Vec<u8>>) -> Option<u64> {
    let (mut len, mut piece, mut second) = (0, first, second);
    loop {
        if piece.is_empty() {
            return (len > 0).then_some(len);
        }
        let written = unpack(&piece).and_then(|items| write(id, &items));
        len += written.map_err(|error| warn(&format!("a map cannot be loaded: {error}"))).ok()?;
        piece = match second.take() {
            Some(piece) => piece,
            None => load_piece(io)?,
        };
    }
}

/// Returns the next piece of times; a file of version 1 has none.
fn load_time(io: *mut raw::RedisModuleIO, encoding: c_int) -> Option<Vec<u8>> {
    if encoding == WITHOUT_TIMES { Some(Vec::new()) } else { load_piece(io) }
}

/// Writes pieces as times of a map: one that was read, and what follows.
fn fill_times_from(io: *mut raw::RedisModuleIO, id: u64, mut piece: Vec<u8>) -> Option<()> {
    while !piece.is_empty() {
        let written = unpack(&piece).and_then(|times| write_times(id, &times));
        written.map_err(|error| warn(&format!("times of a map cannot be loaded: {error}"))).ok()?;
        piece = load_piece(io)?;
    }
    Some(())
}

fn write_times(id: u64, times: &[(&[u8], &[u8])]) -> Result<()> {
    let times = times.iter().map(|(field, time)| Ok((*field, time_of(time)?)));
    let times: Vec<Time<'_>> = times.collect::<Result<_>>()?;
    times.chunks(256).try_for_each(|times| state::store().fill_times(id, times))
}

/// Returns a time as it is packed.
fn time_of(bytes: &[u8]) -> Result<u64> {
    let time = bytes.try_into().map(u64::from_be_bytes).ok().filter(|time| *time != NO_TIME);
    time.ok_or_else(|| bristlecone::Error::Invalid { what: "a time of a field is none".to_owned() })
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

/// What pieces of a map have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Fields with their values.
    Fields,
    /// Fields with their times.
    Times,
}

/// Calls `give` with the pieces of a map, an empty one at the end of each part: in a child as the parent's snapshot has it, otherwise
/// as it is.
fn pieces(map: Map<'_>, mut give: impl FnMut(Part, &[u8]) -> Result<()>) -> Result<()> {
    match map {
        Map::Small(small) => {
            let piece = piece_of(small)?;
            give(Part::Fields, &piece)?;
            give(Part::Fields, b"")?;
            give(Part::Times, b"")
        }
        map if fork::is_child() => {
            let mut part = Part::Fields;
            fork::ask(map.id(), |piece| {
                give(part, piece)?;
                if piece.is_empty() {
                    part = Part::Times;
                }
                Ok(())
            })
        }
        map => {
            let store = state::store();
            long::wait_for(map.id())?;
            pack(store.all(map), ID_BYTES, |piece| give(Part::Fields, piece))?;
            let times = store.times_within(&all_of(map.id())).map(as_item);
            pack(times, ID_BYTES, |piece| give(Part::Times, piece))
        }
    }
}

/// Returns the one piece of a small map.
fn piece_of(small: Small) -> Result<Vec<u8>> {
    let pack = |entry: SmallEntry<'_>| {
        let mut piece = Vec::new();
        entry.fields().for_each(|(field, value)| append(&mut piece, field, value));
        piece
    };
    if fork::is_child() { fork::with_small(small, pack) } else { state::store().with_small(small, pack) }
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
    let saved = pieces(map(value), |_, piece| {
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
    let emit = |command: &std::ffi::CStr, words: &[&[u8]]| {
        let strings: Vec<OwnString> = words.iter().map(|word| OwnString::new(word)).collect();
        let mut arguments: Vec<RawString> = strings.iter().map(OwnString::raw).collect();
        let (start, len) = (arguments.as_mut_ptr(), arguments.len());
        call!(RedisModule_EmitAOF(io, command.as_ptr(), c"sv".as_ptr(), key, start, len));
    };
    let written = pieces(map(value), |part, piece| {
        let items = unpack(piece)?;
        if part == Part::Times {
            let times = items.iter().map(|(field, time)| Ok((*field, time_of(time)?)));
            each_expiry(&times.collect::<Result<Vec<Time<'_>>>>()?, |words| emit(c"OM.PEXPIREAT", words));
            return Ok(());
        }
        for items in items.chunks(AOF_FIELDS) {
            let words: Vec<&[u8]> = items.iter().flat_map(|(field, value)| [*field, *value]).collect();
            emit(c"OM.SET", &words);
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
    bytes_of(map, samples).unwrap_or(0)
}

/// Returns the bytes of a map: see [`memory`].
pub fn bytes_of(map: Map<'_>, samples: usize) -> Result<usize> {
    let (store, samples) = (state::store(), if samples == 0 { usize::MAX } else { samples });
    let large = match map {
        Map::Placeholder => return Ok(0),
        Map::Small(small) => return store.small_bytes(small),
        Map::Large(large) => large,
    };
    let (mut bytes, mut read) = (0, 0);
    let has_times = store.has_times(large)?;
    for (key, value) in store.all(map).take(samples).flatten() {
        bytes += item_bytes(&key, &value);
        if has_times && store.time_at(&key)?.is_some() {
            bytes += item_bytes(&key, &[0; size_of::<u64>()]);
        }
        read += 1;
    }
    let counted = || store.count(map.id()).inspect(|len| large.set_len(*len)).ok();
    let len = large.len().or_else(counted).unwrap_or(read as u64) as usize;
    Ok(size_of::<Large>() + (bytes as f64 / read.max(1) as f64 * len as f64) as usize)
}

/// Returns about how many bytes of the pool an item takes: two records, and two words of a leaf.
fn item_bytes(key: &[u8], value: &[u8]) -> usize {
    const WORD_BYTES: usize = 8;
    // Most sizes of slots are multiples of 16.
    let record = |bytes: &[u8]| (WORD_BYTES + bytes.len()).next_multiple_of(16);
    2 * WORD_BYTES + record(key) + record(value)
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    let added = pieces(map(value), |_, piece| {
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
    let map = unsafe { Owned::take(value) };
    if !fork::is_child() {
        state::store().detach(&map);
    }
}

unsafe extern "C" fn copy(to: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) -> *mut c_void {
    events::copying_to(call!(RedisModule_GetToDbIdFromOptCtx(to)));
    null_if_panics("copying a map", || {
        let copied = copy_of(map(value.cast_mut()));
        copied.map_err(|error| warn(&format!("a map cannot be copied: {error}"))).ok()
    })
}

/// Fields of a map that is copied where the command is carried out. A thread copies more, if the pool has room for twice as much.
const COPIED: u64 = 1000;
/// Fields whose sizes stand for all.
const SAMPLES: usize = 100;

/// Returns whether a thread is to copy a map.
fn is_long(large: &Large) -> Result<bool> {
    let store = state::store();
    long::wait_for(large.id())?;
    // What is free within the file is not counted: to ask the pool takes milliseconds.
    let file_bytes = std::fs::metadata(store.name()).map_or(u64::MAX / 4, |file| file.len());
    let (is_long, bytes) = match large.len() {
        Some(len) => (len > COPIED, bytes_of(Map::Large(large), SAMPLES)? as u64),
        // No map takes more than the pool.
        None => (store.items_of(large.id()).nth(COPIED as usize).transpose()?.is_some(), file_bytes),
    };
    let free = store.max_bytes().saturating_sub(file_bytes);
    Ok(is_long && !server::turn().is_loading && free > 2 * bytes)
}

fn copy_of(map: Map<'_>) -> Result<Owned> {
    let store = state::store();
    match map {
        Map::Placeholder => return Ok(Owned::Placeholder),
        Map::Small(small) => {
            if let Some(copy) = store.copy_small(small)? {
                return Ok(Owned::Small(copy));
            }
        }
        Map::Large(_) => {}
    }
    let copy = Large::new(store.begin()?, None);
    if let Map::Large(large) = map
        && is_long(large)?
    {
        long::copy(large.id(), copy.id())?;
        if let Some(len) = large.len() {
            copy.set_len(len);
        }
        return Ok(Owned::Large(Box::new(copy)));
    }
    let mut len = 0;
    let copied = pieces(map, |part, piece| {
        match part {
            Part::Fields => len += write(copy.id(), &unpack(piece)?)?,
            Part::Times => write_times(copy.id(), &unpack(piece)?)?,
        }
        Ok(())
    });
    copy.set_len(len);
    let copy = Owned::Large(Box::new(copy));
    if let Err(error) = copied {
        store.detach(&copy);
        return Err(error);
    }
    store.help(len as usize);
    Ok(copy)
}
