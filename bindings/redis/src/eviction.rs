//! Warns while the server may evict maps: that deletes durable data, and frees next to no memory, since maps are in the pool.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::{Ctx, call, raw, warn};

/// The server's configuration lets it evict keys that never expire.
static POSSIBLE: AtomicBool = AtomicBool::new(false);

/// Returns whether the server may evict maps that never expire.
pub fn is_possible() -> bool {
    POSSIBLE.load(Ordering::Relaxed)
}

/// Looks at the configuration, and follows its changes. Returns whether the server agreed.
pub fn watch(ctx: Ctx) -> bool {
    look(ctx);
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_CONFIG, dataver: 1 };
    call!(RedisModule_SubscribeToServerEvent(ctx, event, Some(on_config))) == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_config(ctx: Ctx, _event: raw::RedisModuleEvent, _sub: u64, _data: *mut c_void) {
    look(ctx);
}

fn look(ctx: Ctx) {
    let value = |name: &CStr| crate::server::config(ctx, name).unwrap_or_default();
    let limited = value(c"maxmemory") != b"0";
    let possible = limited && value(c"maxmemory-policy").starts_with(b"allkeys");
    if possible && !POSSIBLE.swap(possible, Ordering::Relaxed) {
        warn(
            "bristlecone: the server may EVICT MAPS: maxmemory-policy is an allkeys policy. Eviction deletes a map from the pool \
             durably and frees some 60 bytes of memory. Choose a volatile policy, or noeviction",
        );
    }
    POSSIBLE.store(possible, Ordering::Relaxed);
}
