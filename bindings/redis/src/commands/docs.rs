//! What `COMMAND DOCS` says of the commands.

use std::ffi::CString;
use std::mem::zeroed;

use super::Command;
use crate::server::{Ctx, call, raw};

/// Tells the server what a command does. Returns whether it took that.
pub fn describe(ctx: Ctx, command: &Command) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    // SAFETY: a structure of C's, of pointers and numbers, in which zero means that nothing is said.
    let mut info: raw::RedisModuleCommandInfo = unsafe { zeroed() };
    info.version = &raw const version;
    info.summary = command.summary.as_ptr();
    info.complexity = command.complexity.as_ptr();
    info.since = c"0.1.0".as_ptr();
    info.arity = if command.rest { -(command.arguments as i32) } else { command.arguments as i32 };
    let mut specs = key_specs(command);
    if command.has_key() {
        info.key_specs = specs.as_mut_ptr();
    }
    let registered = call!(RedisModule_GetCommand(ctx, command.name.as_ptr()));
    if registered.is_null() {
        return false;
    }
    // SAFETY: as in `call!`; servers before 7.2 have no such function, and no categories for a module's commands.
    if let Some(set_categories) = unsafe { raw::RedisModule_SetCommandACLCategories } {
        let words = command.flags.to_string_lossy();
        let of_server = |word: &&str| !matches!(*word, "deny-oom" | "readonly");
        let mut categories: Vec<&str> = words.split(' ').filter(of_server).collect();
        if words.contains("readonly") {
            categories.push("read");
        }
        let categories = CString::new(categories.join(" ")).unwrap_or_default();
        // SAFETY: a command of this module, while it is loaded, and a string that outlives the call. What a server refuses
        // here leaves the command without categories, as with an older server.
        _ = unsafe { set_categories(registered, categories.as_ptr()) };
    }
    call!(RedisModule_SetCommandInfo(registered, &raw const info)) == 0
}

/// Returns where a command's key is, and what it does with it. The second one is empty and ends the list.
fn key_specs(command: &Command) -> [raw::RedisModuleCommandKeySpec; 2] {
    let does = match command.name.to_bytes() {
        b"om.set" => raw::REDISMODULE_CMD_KEY_UPDATE,
        b"om.incrby" | b"om.cas" => raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE,
        b"om.del" | b"om.delrange" => raw::REDISMODULE_CMD_KEY_DELETE,
        b"om.popmin" | b"om.popmax" => raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE,
        b"om.len" | b"om.exists" | b"om.info" => 0,
        _ => raw::REDISMODULE_CMD_KEY_ACCESS,
    };
    let writes = command.flags.to_bytes().starts_with(b"write");
    // SAFETY: structures of C's, of pointers and numbers, in which zero means that nothing is said.
    let mut specs: [raw::RedisModuleCommandKeySpec; 2] = unsafe { zeroed() };
    let access = if writes { raw::REDISMODULE_CMD_KEY_RW } else { raw::REDISMODULE_CMD_KEY_RO };
    specs[0].flags = u64::from(access | does);
    specs[0].begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    specs[0].bs.index.pos = 1;
    specs[0].find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    specs[0].fk.range =
        raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
    specs
}
