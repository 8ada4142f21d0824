//! Pops that wait: `OM.BPOPMIN` and `OM.BPOPMAX`.
//!
//! A map without fields is no key, so a client waits until one of its keys is there. The server tells of that, serves clients in the
//! order in which they came, and ends a wait that is over. Replicas and the append-only file get what was popped.

use std::ffi::c_int;
use std::time::Duration;

use super::{Call, Done, Refusal, aside, long, range, refuse, reply_refusal};
use crate::map::Map;
use crate::server::{Ctx, RawString, Reply, call, raw};
use crate::state;

/// `OM.BPOPMIN key [key …] timeout`: the first key that is there, its first field with the value, which is removed. Null after
/// `timeout` seconds; 0: never.
pub fn bpopmin(call: &Call<'_>) -> Done {
    bpop(call, false)
}

/// `OM.BPOPMAX key [key …] timeout`: the same with the last field.
pub fn bpopmax(call: &Call<'_>) -> Done {
    bpop(call, true)
}

fn timeout(argument: &[u8]) -> Result<Duration, Refusal> {
    let seconds = std::str::from_utf8(argument).ok().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| seconds.is_finite()) {
        None => refuse("timeout is not a float or out of range"),
        Some(seconds) if seconds < 0.0 => refuse("timeout is negative"),
        Some(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) if timeout.as_millis() <= i64::MAX as u128 / 2 => Ok(timeout),
            _ => refuse("timeout is not a float or out of range"),
        },
    }
}

fn bpop(call: &Call<'_>, backward: bool) -> Done {
    let last = call.raw.len() - 1;
    let timeout = timeout(call.argument(last))?;
    for at in 1..last {
        if pop_at(call, at, backward)? {
            return Ok(());
        }
    }
    if !aside::can_block(call) {
        call.reply.null_array();
        return Ok(());
    }
    let mut keys = call.raw[1..last].to_vec();
    // What is shorter than a millisecond is not without end.
    let millis = timeout.as_micros().div_ceil(1000) as i64;
    let served = if backward { serve::<true> } else { serve::<false> };
    call!(RedisModule_BlockClientOnKeys(
        call.ctx,
        Some(served),
        Some(give_up),
        None,
        millis,
        keys.as_mut_ptr(),
        keys.len() as c_int,
        std::ptr::null_mut()
    ));
    Ok(())
}

/// Pops from a key. Returns whether it was there.
fn pop_at(call: &Call<'_>, at: usize, backward: bool) -> Result<bool, Refusal> {
    let call = Call { raw: &call.raw[at - 1..], ..*call };
    let target = call.write()?;
    let map = match target.map {
        None | Some(Map::Placeholder) => return Ok(false),
        Some(map) => map,
    };
    let event = if backward { c"om.popmax" } else { c"om.popmin" };
    let items = range::pop_from(&call, &target, map, 1, backward, event)?;
    let Some((key, value)) = items.first() else { return Ok(false) };
    call.reply.array(3);
    call.reply.bytes(call.argument(1));
    call.reply.bytes(&key[crate::store::ID_BYTES..]);
    call.reply.bytes(value);
    Ok(true)
}

/// Serves a client that waits, once one of its keys is there.
unsafe extern "C" fn serve<const BACKWARD: bool>(ctx: Ctx, _argv: *mut RawString, _argc: c_int) -> c_int {
    let key = call!(RedisModule_GetBlockedClientReadyKey(ctx));
    let raw = [key, key];
    let call = Call { ctx, raw: &raw, reply: Reply(ctx), store: state::store(), is_again: false };
    let mut popped = pop_at(&call, 1, BACKWARD);
    while let Err(Refusal::Busy(job)) = &popped
        && long::wait(job).is_ok()
    {
        popped = pop_at(&call, 1, BACKWARD);
    }
    match popped {
        Ok(true) => raw::REDISMODULE_OK as c_int,
        // It is gone again, or something else: the client waits on.
        Ok(false) | Err(Refusal::WrongType) => raw::REDISMODULE_ERR as c_int,
        Err(refusal) => {
            reply_refusal(Reply(ctx), refusal);
            raw::REDISMODULE_OK as c_int
        }
    }
}

unsafe extern "C" fn give_up(ctx: Ctx, _argv: *mut RawString, _argc: c_int) -> c_int {
    Reply(ctx).null_array();
    raw::REDISMODULE_OK as c_int
}
