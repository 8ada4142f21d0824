//! What `COMMAND DOCS` says of the commands.

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
    !registered.is_null() && call!(RedisModule_SetCommandInfo(registered, &raw const info)) == 0
}
