//! Bristlecone as a module of Redis and Valkey: ordered maps whose writes survive a crash one by one.
//!
//! The map of the code: `store` has the trees and what a crash may leave in them; `kind` is what the server calls for a
//! value (load, save, copy, free), `events` what it tells, `fork` how a child saves; `commands` are what clients send. All that the module
//! calls of the server goes through `server`.

mod arguments;
mod commands;
mod events;
mod fork;
mod kind;
mod latency;
mod map;
mod offsets;
mod pieces;
mod server;
mod state;
mod store;

use std::ffi::c_int;
use std::panic::catch_unwind;

use server::{Ctx, RawString, bytes, log, raw};

/// Loads the module: called by the server, with the words after the module's path.
///
/// # Safety
///
/// For the server alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Ctx, argv: *mut RawString, argc: c_int) -> c_int {
    // SAFETY: the server's context, and a name that lives as long as the process.
    if unsafe {
        raw::Export_RedisModule_Init(ctx, c"bristlecone".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int)
    } != 0
    {
        return raw::REDISMODULE_ERR as c_int;
    }
    // SAFETY: the server passes so many arguments.
    let words = if argc == 0 { &[] } else { unsafe { std::slice::from_raw_parts(argv, argc as usize) } };
    let words: Vec<&[u8]> = words.iter().map(|word| bytes(*word)).collect();
    let loaded =
        catch_unwind(|| words.clone()).map_or(Err(String::from("arguments")), |words| load(ctx, &words));
    match loaded {
        Ok(()) => raw::REDISMODULE_OK as c_int,
        Err(why) => {
            log(ctx, c"warning", &format!("bristlecone cannot be loaded: {why}"));
            raw::REDISMODULE_ERR as c_int
        }
    }
}

fn load(ctx: Ctx, words: &[&[u8]]) -> Result<(), String> {
    if let Some(missing) = server::missing() {
        return Err(format!(
            "this server has no {missing}: Redis 7.0, Valkey 7.2 or a later version is needed"
        ));
    }
    if state::is_open() {
        return Err("it is loaded already".to_owned());
    }
    let options = arguments::read(words)?;
    let store = store::Store::open(&options).map_err(|error| error.to_string())?;
    if !store.is_ready() {
        // What an earlier load left, which was cut short.
        store.flush(None).map_err(|error| error.to_string())?;
    }
    fork::arm().map_err(|error| error.to_string())?;
    let registered = kind::register(ctx) && commands::register(ctx) && events::subscribe(ctx);
    if !registered {
        return Err("the server refused a command, a type or an event".to_owned());
    }
    state::keep(store).ok_or("it is loaded already")?;
    state::start_sweeping().map_err(|error| error.to_string())
}
