//! Bristlecone as a module of Redis and Valkey: ordered maps whose writes survive a crash one by one.
//!
//! The map of the code: `store` has the trees and what a crash may leave in them; `kind` is what the server calls for a
//! value (load, save, copy, free), `events` what it tells, `fork` how a child saves; `commands` are what clients send. All that the module
//! calls of the server goes through `server`.

mod arguments;
mod backups;
mod commands;
mod events;
mod eviction;
mod fork;
mod kind;
mod latency;
mod map;
mod offsets;
mod pieces;
mod server;
mod settings;
mod state;
mod store;

use std::ffi::c_int;
use std::panic::catch_unwind;

use server::{Ctx, RawString, bytes, call, log, raw};

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
    // SAFETY: the server passes `argc` arguments.
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
    // SAFETY: as in `call!`.
    let has_categories = unsafe { raw::RedisModule_SetCommandACLCategories }.is_some();
    if options.needs_categories && !has_categories {
        return Err(
            "this server cannot set categories of a module's commands, and `categories required` was given: \
                    Redis 7.2, or rules that name the commands, are needed"
                .to_owned(),
        );
    }
    let store = store::Store::open(&options).map_err(|error| match store::is_damage(&error) {
        true => format!("{error}; `bristlecone check --repair` saves what can be read"),
        false => error.to_string(),
    })?;
    if !store.is_ready() {
        // What an earlier load left, which was cut short.
        store.flush(None).map_err(|error| error.to_string())?;
    }
    refuse_while_serving(ctx, &store)?;
    latency::begin();
    fork::arm().map_err(|error| error.to_string())?;
    // Commands say themselves what they have changed: one that changes nothing must not disturb `WATCH`.
    call!(RedisModule_SetModuleOptions(ctx, raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int));
    let registered =
        kind::register(ctx) && commands::register(ctx) && events::subscribe(ctx) && eviction::watch(ctx);
    let registered = registered && settings::register(ctx, &store);
    if !registered {
        return Err("the server refused a command, a type or an event".to_owned());
    }
    state::keep(store).ok_or("it is loaded already")?;
    if !settings::read(ctx) {
        return Err("the server's configuration has a wrong bristlecone.max-bytes".to_owned());
    }
    state::start_sweeping().map_err(|error| error.to_string())
}

/// Refuses a pool with maps in a server that serves already: they would replace keys of the same names, and come to a replica
/// past its master.
fn refuse_while_serving(ctx: Ctx, store: &store::Store) -> Result<(), String> {
    if !store.is_ready() || !store.has_maps().map_err(|error| error.to_string())? {
        return Ok(());
    }
    let flags = call!(RedisModule_GetContextFlags(ctx)) as u32;
    let starts = flags & raw::REDISMODULE_CTX_FLAGS_SERVER_STARTUP != 0;
    let follows = flags & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0;
    let mut has_keys = false;
    let mut db = 0;
    while call!(RedisModule_SelectDb(ctx, db)) == raw::REDISMODULE_OK as c_int {
        has_keys |= call!(RedisModule_DbSize(ctx)) > 0;
        db += 1;
    }
    call!(RedisModule_SelectDb(ctx, 0));
    let is_synchronized = follows && flags & raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_ONLINE != 0;
    if !starts && (has_keys || is_synchronized) {
        return Err(
            "the pool has maps, and this server serves keys already: load the module when the server starts \
                    (loadmodule in its configuration), or name another pool"
                .to_owned(),
        );
    }
    Ok(())
}
