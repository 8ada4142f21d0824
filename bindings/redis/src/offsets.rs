//! Why a server that comes back does not go on where its file says that replication was.
//!
//! The server's own file carries a replication offset, and what the file holds is as of that offset. The pool continues
//! after the file was written. So after a crash maps are newer than the offset says:
//!
//! - A replica would ask its master for what it has already. `RENAME` and `COPY` must not be applied twice.
//! - A master would tell a replica that has the file's offset that it has everything.
//!
//! 1. At a start whose maps come from the pool beside a file, the offset is forgotten before anything is sent: what
//!    follows is a full synchronization.
//! 2. A server that ends orderly with a file that it wrote last of all notes that in the pool, and the offset is trusted.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::{Ctx, call, raw, warn};
use crate::{backups, state};

/// A file was read whose offset is older than the pool.
static STALE: AtomicBool = AtomicBool::new(false);
/// The server writes its file itself, without a child.
static SAVING: AtomicBool = AtomicBool::new(false);
/// It did so since it slept last.
static SAVED: AtomicBool = AtomicBool::new(false);

/// Notes that the file that is read is older than the pool.
pub fn distrust() {
    STALE.store(true, Ordering::Relaxed);
}

/// Forgets the offset of a file that is older than the pool: before the server has connected to its master, or served a replica.
pub fn before_sleep(ctx: Ctx) {
    SAVED.store(false, Ordering::Relaxed);
    if STALE.swap(false, Ordering::Relaxed) && !forget(ctx) {
        warn(
            "replication continues at the file's offset, and maps may be newer: synchronize replicas in full",
        );
    }
}

/// Follows how the server writes its file.
pub unsafe extern "C" fn on_persistence(_: Ctx, _: raw::RedisModuleEvent, sub: u64, _: *mut c_void) {
    backups::on_persistence(sub);
    match sub {
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START => SAVING.store(true, Ordering::Relaxed),
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED => {
            let saving = SAVING.swap(false, Ordering::Relaxed);
            SAVED.store(saving, Ordering::Relaxed);
        }
        _ => SAVING.store(false, Ordering::Relaxed),
    }
}

/// Returns whether the server writes its file itself, without a child.
pub fn is_saving() -> bool {
    SAVING.load(Ordering::Relaxed)
}

/// Notes that the file has everything, if it was written last of all.
pub fn at_shutdown() {
    if SAVED.load(Ordering::Relaxed)
        && let Err(error) = state::store().set_saved()
    {
        warn(&format!("replicas will be synchronized in full after the next start: {error}"));
    }
}

/// Makes the server forget at which offset of which history it is. Returns whether it does.
fn forget(ctx: Ctx) -> bool {
    let flags = call!(RedisModule_GetContextFlags(ctx)) as u32;
    // In a cluster the server takes its own id for its master's only later, when it first connects.
    if flags & raw::REDISMODULE_CTX_FLAGS_SLAVE == 0 || flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0 {
        return run(ctx, c"DEBUG", &[c"CHANGE-REPL-ID"]);
    }
    let info = call!(RedisModule_GetServerInfo(ctx, c"replication".as_ptr()));
    let field = |name: &CStr| {
        let value = call!(RedisModule_ServerInfoGetFieldC(info, name.as_ptr()));
        // SAFETY: null, or a string that lives as long as `info`.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_owned())
    };
    let master: Option<(CString, CString)> = field(c"master_host").zip(field(c"master_port"));
    call!(RedisModule_FreeServerInfo(ctx, info));
    let Some((host, port)) = master else { return false };
    // What was no replica has another history than its master.
    run(ctx, c"REPLICAOF", &[c"NO", c"ONE"]) && run(ctx, c"REPLICAOF", &[&host, &port])
}

/// Calls a command with up to two arguments. Returns whether it was carried out.
pub fn run(ctx: Ctx, command: &CStr, words: &[&CStr]) -> bool {
    let reply = match words {
        [one] => call!(RedisModule_Call(ctx, command.as_ptr(), c"c".as_ptr(), one.as_ptr())),
        [one, other, ..] => {
            call!(RedisModule_Call(ctx, command.as_ptr(), c"cc".as_ptr(), one.as_ptr(), other.as_ptr()))
        }
        [] => call!(RedisModule_Call(ctx, command.as_ptr(), c"".as_ptr())),
    };
    if reply.is_null() {
        return false;
    }
    let done = call!(RedisModule_CallReplyType(reply)) != raw::REDISMODULE_REPLY_ERROR as i32;
    call!(RedisModule_FreeCallReply(reply));
    done
}
