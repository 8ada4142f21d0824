//! Commands that say how the maps and the pool are, and the section of `INFO`.

use std::ffi::{CStr, CString, c_int};

use super::{Call, Done, refuse};
use crate::map::{self, Map};
use crate::server::{self, Ctx, call, raw, warn};
use crate::store::{Change, ID_BYTES};
use crate::{events, eviction, kind, state};

/// Fields that `OM.INFO` looks at for the bytes of a map, as many as `MEMORY USAGE` does.
const SAMPLES: usize = 5;

/// `OM.INFO key`: what is known of a map, or null.
pub fn info(call: &Call<'_>) -> Done {
    let Some(map) = call.read()? else {
        call.reply.null();
        return Ok(());
    };
    let is_uncounted = matches!(map, Map::Large(large) if call.known_len(large).is_none());
    call.reply.map(5);
    call.reply.bytes(b"id");
    call.reply.number(map.id() as i64);
    call.reply.bytes(b"fields");
    if is_uncounted {
        call.reply.null()
    } else {
        call.reply.number(call.len(map)? as i64)
    }
    call.reply.bytes(b"pool");
    call.reply.bytes(call.store.name().as_bytes());
    call.reply.bytes(b"encoding");
    call.reply.bytes(if matches!(map, Map::Small(_)) { b"small" } else { b"large" });
    call.reply.bytes(b"bytes");
    if is_uncounted {
        call.reply.null()
    } else {
        call.reply.number(kind::bytes_of(map, SAMPLES)? as i64)
    }
    Ok(())
}

/// `OM.REPAIR key`: replaces a map that has unreadable fields by what can be read of it. Returns how many fields it has then, and what
/// was wrong, or null.
pub fn repair(call: &Call<'_>) -> Done {
    let Some(map) = call.read()? else {
        call.reply.null();
        return Ok(());
    };
    let wrong = call.store.all(map).find_map(Result::err);
    let Some(wrong) = wrong else {
        call.reply.array(2);
        call.reply.number(call.len(map)? as i64);
        call.reply.null();
        return Ok(());
    };
    let items = call.store.readable(map)?;
    let fields: Vec<Change<'_>> =
        items.iter().map(|(key, value)| (&key[ID_BYTES..], Some(value.as_slice()))).collect();
    let times = match map {
        Map::Large(large) => call.store.times_of(large, &fields)?,
        _ => Vec::new(),
    };
    call.rebuild(&fields, &times)?;
    warn(&format!("OM.REPAIR: a map of {} readable fields replaces a damaged one: {wrong}", fields.len()));
    call.reply.array(2);
    call.reply.number(fields.len() as i64);
    call.reply.bytes(wrong.to_string().as_bytes());
    Ok(())
}

/// `OM.CHECK`: what is wrong with the trees of the pool, one line each; nothing, if all is well.
pub fn check(call: &Call<'_>) -> Done {
    let trees = [call.store.items(), call.store.directory(), call.store.notes()];
    // A tree that another thread changes meanwhile would contradict itself.
    let issues: Vec<String> = call.store.without_sweeping(|| {
        let of_trees = trees.iter().flat_map(|tree| tree.check()).chain(call.store.small().check());
        let of_times = call.store.expiries().map(|tree| tree.entries().check());
        let issues =
            call.store.pool().check().into_iter().chain(of_trees).chain(of_times.into_iter().flatten());
        issues.map(|issue| format!("{}: {}", issue.location, issue.what)).collect()
    });
    call.reply.array(issues.len());
    issues.iter().for_each(|issue| call.reply.bytes(issue.as_bytes()));
    Ok(())
}

/// `OM.UNIT number`: which step of the pool is in the append-only file that has the command. See `store`.
pub fn unit(call: &Call<'_>) -> Done {
    if !server::turn().is_loading {
        return refuse("OM.UNIT is a command of append-only files");
    }
    events::reads_unit(call.argument(1));
    call.reply.ok();
    Ok(())
}

/// Registers the section of `INFO`. Returns whether the server took it.
pub fn register(ctx: Ctx) -> bool {
    call!(RedisModule_RegisterInfoFunc(ctx, Some(report))) == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn report(info: *mut raw::RedisModuleInfoCtx, for_crash: c_int) {
    // After a crash the pool is not touched.
    if for_crash != 0 || !state::is_open() || call!(RedisModule_InfoAddSection(info, c"".as_ptr())) != 0 {
        return;
    }
    let store = state::store();
    let pool = store.pool().info();
    let number = |name: &CStr, value: u64| {
        call!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value));
    };
    let text = |name: &CStr, value: String| {
        let value = CString::new(value).unwrap_or_default();
        call!(RedisModule_InfoAddFieldCString(info, name.as_ptr(), value.as_ptr()));
    };
    text(c"pool", store.name().to_owned());
    text(c"domain", pool.domain.to_string());
    let used_bytes = pool.file_bytes - pool.chunks_free * pool.chunk_bytes;
    number(c"max_bytes", store.max_bytes());
    number(c"file_bytes", pool.file_bytes);
    number(c"used_bytes", used_bytes);
    number(c"free_bytes", store.max_bytes().saturating_sub(used_bytes));
    number(c"maps", map::in_keys());
    number(c"small_maps", store.small().len().unwrap_or(0));
    number(c"fields", store.fields().unwrap_or(0));
    number(c"expiring_fields", store.expiries().map_or(0, |tree| tree.len().unwrap_or(0)));
    number(c"maps_to_free", store.garbage_len() as u64);
    number(c"reserve", u64::from(store.has_reserve()));
    number(c"evictable", u64::from(eviction::is_possible()));
}
