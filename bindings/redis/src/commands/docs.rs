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
