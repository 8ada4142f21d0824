//! What `CONFIG SET` changes: `bristlecone.max-bytes`, the bytes to which the pool may grow.

use std::ffi::{c_char, c_int, c_longlong, c_void};

use crate::server::{Ctx, OwnString, RawString, call, raw};
use crate::state;
use crate::store::Store;

/// The name; the server puts the module's name and a point before it.
const NAME: &std::ffi::CStr = c"max-bytes";

/// Registers the setting, with the argument of the module as its default, and reads the server's configuration. Returns whether the
/// server agreed.
pub fn register(ctx: Ctx, store: &Store) -> bool {
    let bytes = c_longlong::try_from(store.limit()).unwrap_or(c_longlong::MAX);
    let registered = call!(RedisModule_RegisterNumericConfig(
        ctx,
        NAME.as_ptr(),
        bytes,
        raw::REDISMODULE_CONFIG_MEMORY,
        1,
        c_longlong::MAX,
        Some(get),
        Some(set),
        None,
        std::ptr::null_mut(),
    ));
    registered == raw::REDISMODULE_OK as c_int
}

/// Reads the server's configuration. The store must be kept by now.
pub fn read(ctx: Ctx) -> bool {
    call!(RedisModule_LoadConfigs(ctx)) == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get(_name: *const c_char, _: *mut c_void) -> c_longlong {
    c_longlong::try_from(state::store().limit()).unwrap_or(c_longlong::MAX)
}

unsafe extern "C" fn set(
    _name: *const c_char,
    bytes: c_longlong,
    _: *mut c_void,
    error: *mut RawString,
) -> c_int {
    match state::store().set_limit(bytes as u64) {
        Ok(()) => raw::REDISMODULE_OK as c_int,
        Err(why) => {
            // SAFETY: the server passes where the error goes, and frees it.
            unsafe { *error = OwnString::new(why.as_bytes()).into_raw() };
            raw::REDISMODULE_ERR as c_int
        }
    }
}
