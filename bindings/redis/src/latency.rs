//! What the latency monitor is told: commands of the module that took long, each under its name.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use crate::server::{Ctx, call, raw};

/// What takes less is not told: the monitor counts milliseconds.
const WORTH_TELLING: Duration = Duration::from_millis(1);

/// Tells the monitor of what began then, if it took long and the monitor is on.
pub fn watch(ctx: Ctx, event: &CStr, began: Instant) {
    if began.elapsed() >= WORTH_TELLING {
        note(threshold(ctx), event, began);
    }
}

/// Tells the monitor of what began then, if it took as long as its threshold says.
pub fn note(threshold: i64, event: &CStr, began: Instant) {
    let millis = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    if threshold > 0 && millis >= threshold {
        call!(RedisModule_LatencyAddSample(event.as_ptr(), millis));
    }
}

/// Returns the milliseconds from which on the monitor wants to be told, or 0 if it is off.
pub fn threshold(ctx: Ctx) -> i64 {
    let name = c"latency-monitor-threshold";
    let reply =
        call!(RedisModule_Call(ctx, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), name.as_ptr()));
    if reply.is_null() {
        return 0;
    }
    let threshold = if call!(RedisModule_CallReplyLength(reply)) == 2 {
        text(call!(RedisModule_CallReplyArrayElement(reply, 1))).and_then(|text| text.parse().ok())
    } else {
        None
    };
    call!(RedisModule_FreeCallReply(reply));
    threshold.unwrap_or(0)
}

fn text(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    let mut len = 0;
    let start =
        if reply.is_null() { return None } else { call!(RedisModule_CallReplyStringPtr(reply, &mut len)) };
    if start.is_null() {
        return None;
    }
    // SAFETY: the server says so many bytes are there, until the reply is freed.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) };
    String::from_utf8(bytes.to_vec()).ok()
}
