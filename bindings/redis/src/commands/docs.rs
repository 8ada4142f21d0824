//! What `COMMAND DOCS` says of the commands.

use std::ffi::CString;
use std::mem::zeroed;

use super::Command;
use super::syntax::{self, Described};
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
    let keys = specs.len() as i32 - 1;
    if keys > 0 {
        info.key_specs = specs.as_mut_ptr();
    }
    let mut arguments = Described::new(&syntax::arguments(command.syntax), keys);
    if !command.syntax.is_empty() {
        info.args = arguments.list();
    }
    let registered = call!(RedisModule_GetCommand(ctx, command.name.as_ptr()));
    if registered.is_null() {
        return false;
    }
    // SAFETY: as in `call!`; servers before 7.2 have no such function, and no categories for a module's commands.
    if let Some(set_categories) = unsafe { raw::RedisModule_SetCommandACLCategories } {
        let words = command.flags.to_string_lossy();
        let categories = CString::new(categories(&words).join(" ")).unwrap_or_default();
        // SAFETY: a command of this module, while it is loaded, and a string that outlives the call. What a server refuses
        // here leaves the command without categories, as with an older server.
        _ = unsafe { set_categories(registered, categories.as_ptr()) };
    }
    call!(RedisModule_SetCommandInfo(registered, &raw const info)) == 0
}

/// Returns the categories of access control that flags mean.
fn categories(flags: &str) -> Vec<&str> {
    let of = |word| match word {
        "deny-oom" => None,
        "readonly" => Some("read"),
        word => Some(word),
    };
    flags.split(' ').filter_map(of).collect()
}

/// Returns where a command's keys are, and what it does with them. The last one is empty and ends the list.
fn key_specs(command: &Command) -> Vec<raw::RedisModuleCommandKeySpec> {
    use raw::{
        REDISMODULE_CMD_KEY_ACCESS as ACCESS, REDISMODULE_CMD_KEY_DELETE as DELETE,
        REDISMODULE_CMD_KEY_INSERT as INSERT, REDISMODULE_CMD_KEY_OW as OW, REDISMODULE_CMD_KEY_RO as RO,
        REDISMODULE_CMD_KEY_RW as RW, REDISMODULE_CMD_KEY_UPDATE as UPDATE,
    };
    let (first, last) = command.keys;
    let specs: &[(u32, i32, i32)] = match command.name.to_bytes() {
        _ if first == 0 => &[],
        b"om.rangestore" => &[(OW | UPDATE, 1, 0), (RO | ACCESS, 2, 0)],
        b"om.merge" => &[(RW | INSERT, 1, 0), (RO | ACCESS, 2, -1)],
        b"om.set" | b"om.expire" | b"om.pexpire" | b"om.expireat" | b"om.pexpireat" | b"om.persist"
        | b"om.setex" => &[(RW | UPDATE, 1, 0)],
        b"om.getex" => &[(RW | ACCESS | UPDATE, 1, 0)],
        b"om.incrby" | b"om.incrbyfloat" | b"om.cas" | b"om.repair" => &[(RW | ACCESS | UPDATE, 1, 0)],
        b"om.del" | b"om.delrange" => &[(RW | DELETE, 1, 0)],
        b"om.popmin" | b"om.popmax" | b"om.getdel" => &[(RW | ACCESS | DELETE, 1, 0)],
        b"om.bpopmin" | b"om.bpopmax" => &[(RW | ACCESS | DELETE, 1, -2)],
        b"om.len" | b"om.exists" | b"om.info" | b"om.count" | b"om.rank" => &[(RO, 1, 0)],
        _ => &[(RO | ACCESS, 1, 0)],
    };
    debug_assert!(specs.iter().all(|(_, at, _)| *at >= first) && (last != 1 || specs.len() == 1));
    let spec = |(flags, at, last): &(u32, i32, i32)| {
        // SAFETY: a structure of C's, of pointers and numbers, in which zero means that nothing is said.
        let mut spec: raw::RedisModuleCommandKeySpec = unsafe { zeroed() };
        spec.flags = u64::from(*flags);
        spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        spec.bs.index.pos = *at;
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: *last,
            keystep: 1,
            limit: 0,
        };
        spec
    };
    // SAFETY: as above; zeros end the list.
    specs.iter().map(spec).chain([unsafe { zeroed() }]).collect()
}

/// Returns all commands as JSON, in the form in which the server describes its own.
#[cfg(test)]
pub fn json(commands: &[Command]) -> String {
    use std::fmt::Write;
    let mut text = String::from("{\n");
    for (at, command) in commands.iter().enumerate() {
        let flags = command.flags.to_string_lossy();
        let name = command.name.to_string_lossy().to_uppercase();
        let arity = command.arguments as i64 * if command.rest { -1 } else { 1 };
        _ = writeln!(text, "  {name:?}: {{\n    \"summary\": {:?},", command.summary.to_string_lossy());
        _ = writeln!(text, "    \"complexity\": {:?},", command.complexity.to_string_lossy());
        _ = writeln!(text, "    \"group\": \"module\",\n    \"since\": \"0.1.0\",\n    \"arity\": {arity},");
        _ = writeln!(text, "    \"command_flags\": {:?},", flags.split(' ').collect::<Vec<_>>());
        _ = writeln!(text, "    \"acl_categories\": {:?},", categories(&flags));
        text.push_str("    \"arguments\": [\n");
        syntax::write_all(&syntax::arguments(command.syntax), &mut text, 6);
        text.push_str(if at + 1 < commands.len() { "    ]\n  },\n" } else { "    ]\n  }\n" });
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::COMMANDS;

    #[test]
    fn commands_json_is_the_table_of_commands() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/commands.json");
        let expected = json(COMMANDS);
        if std::env::var_os("BRISTLECONE_WRITE").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == expected,
            "commands.json is not that of the table: BRISTLECONE_WRITE=1 cargo test commands_json"
        );
    }
}
