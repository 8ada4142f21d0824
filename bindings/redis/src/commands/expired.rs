//! Removes fields that have expired, in the background: a bounded number before the server sleeps.
//!
//! A pass looks at all times in order, some at a time, and knows the earliest one at its end: until then there is nothing to do.
//! Replicas and the append-only file get `OM.DEL`. A replica removes nothing itself: its master tells it.

use std::ffi::c_int;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Call, Refusal, warn};
use crate::latency;
use crate::map::Map;
use crate::server::{Ctx, OwnString, Reply, call, own_context, raw};
use crate::state;
use crate::store::{Change, ID_BYTES, NO_TIME, Time};

/// Times that are looked at before the server sleeps, and fields that are removed.
const LOOKS: usize = 2000;
const REMOVED: usize = 500;
/// Between two passes, if nothing could be removed.
const IDLE: Duration = Duration::from_millis(100);
/// Between two steps: how many times as long as a step itself took.
const SHARE: u32 = 9;
/// Between two reports of an error.
const REPORTED: Duration = Duration::from_secs(60);

/// How far a pass is.
struct Pass {
    /// The last key that was looked at, if the pass has begun.
    from: Option<Bound<Vec<u8>>>,
    /// The earliest time that it has left.
    earliest: u64,
    /// The next step comes not before.
    next: Option<Instant>,
    reported: Option<Instant>,
}

static PASS: Mutex<Pass> = Mutex::new(Pass { from: None, earliest: u64::MAX, next: None, reported: None });

/// Makes a step of a pass, if one is due. For the main thread, before the server sleeps.
pub fn before_sleep(ctx: Ctx) {
    let store = state::store();
    if store.expiries().is_none() {
        return;
    }
    let began = Instant::now();
    let mut pass = PASS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_early = pass.next.is_some_and(|next| next > began);
    if is_early || pass.from.is_none() && !store.may_be_due(store.now()) || !may_remove(ctx) {
        return;
    }
    match pass.step() {
        // The rest of the times may have passed as well.
        Ok(has_removed) if has_removed || pass.from.is_some() => {
            pass.next = Some(began + began.elapsed() * (1 + SHARE));
            wake_up_later(ctx, began.elapsed() * SHARE);
            latency::watch(ctx, c"bristlecone-expire", began.elapsed());
        }
        Ok(_) => pass.next = Some(began + IDLE),
        Err(refusal) => {
            pass.report(&refusal);
            pass.next = Some(began + IDLE);
        }
    }
}

/// Returns whether this server removes what has expired: it is no replica, and no failover waits for its replicas.
fn may_remove(ctx: Ctx) -> bool {
    let flags = call!(RedisModule_GetContextFlags(ctx)) as u32;
    flags & (raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_LOADING) == 0
        && call!(RedisModule_AvoidReplicaTraffic()) == 0
}

/// Has the server wake up after a time: without clients it sleeps for 100 ms.
fn wake_up_later(ctx: Ctx, after: Duration) {
    unsafe extern "C" fn nothing(_: Ctx, _: *mut std::ffi::c_void) {}
    let millis = after.as_millis().max(1) as i64;
    call!(RedisModule_CreateTimer(ctx, millis, Some(nothing), std::ptr::null_mut()));
}

impl Pass {
    /// Looks at some times, and removes what has expired. Returns whether it removed anything.
    fn step(&mut self) -> Result<bool, Refusal> {
        let store = state::store();
        let from = self.from.take().unwrap_or_else(|| {
            store.begin_pass();
            self.earliest = u64::MAX;
            Bound::Unbounded
        });
        let found = store.due(&from, store.now(), LOOKS, REMOVED);
        let due = found.inspect_err(|_| self.end())?;
        self.earliest = self.earliest.min(due.earliest.unwrap_or(u64::MAX));
        let (mut has_removed, mut failed) = (false, Ok(()));
        for keys in due.keys.chunk_by(|one, other| one[..ID_BYTES] == other[..ID_BYTES]) {
            // What could not be removed is due in the next pass.
            match remove(keys) {
                Ok(true) => has_removed = true,
                Ok(false) => self.earliest = NO_TIME,
                Err(refusal) => (self.earliest, failed) = (NO_TIME, Err(refusal)),
            }
        }
        match due.last {
            Some(last) => self.from = Some(Bound::Excluded(last)),
            None => self.end(),
        }
        failed.map(|()| has_removed)
    }

    fn end(&mut self) {
        self.from = None;
        state::store().end_pass(self.earliest);
    }

    fn report(&mut self, refusal: &Refusal) {
        let Refusal::Because(why) = refusal else { return };
        if self.reported.is_none_or(|reported| reported.elapsed() >= REPORTED) {
            self.reported = Some(Instant::now());
            warn(&format!("fields that have expired are not removed: {why}"));
        }
    }
}

/// Removes fields of one map that have expired. Returns whether it did: not while a thread uses the map.
fn remove(keys: &[Vec<u8>]) -> Result<bool, Refusal> {
    let (store, ctx) = (state::store(), own_context());
    let Some(id) = keys[0].first_chunk().map(|id| u64::from_be_bytes(*id)) else { return Ok(true) };
    // A map that no key has is removed with its times.
    let Some((db, name)) = store.key_of_large(id)? else { return Ok(true) };
    if call!(RedisModule_SelectDb(ctx, db)) != raw::REDISMODULE_OK as c_int {
        return Ok(true);
    }
    let name = OwnString::new(&name);
    let raw = [name.raw(), name.raw()];
    let call = Call { ctx, raw: &raw, reply: Reply(ctx), store, is_again: true };
    let target = match call.write() {
        Ok(target) => target,
        Err(Refusal::Busy(_)) => return Ok(false),
        // The key has a value of another type, and the map is to be removed.
        Err(Refusal::WrongType) => return Ok(true),
        Err(refusal) => return Err(refusal),
    };
    let Some(map @ Map::Large(_)) = target.map.filter(|map| map.id() == id) else { return Ok(true) };
    let fields: Vec<&[u8]> = keys.iter().map(|key| &key[ID_BYTES..]).collect();
    let there = store.has(map, &fields, NO_TIME)?;
    let stored: Vec<&[u8]> =
        fields.iter().zip(&there).filter(|(_, there)| **there).map(|(field, _)| *field).collect();
    let changes: Vec<Change<'_>> = stored.iter().map(|field| (*field, None)).collect();
    let times: Vec<Time<'_>> = fields.iter().map(|field| (*field, NO_TIME)).collect();
    target.change(store, &changes, &times, -(stored.len() as i64))?;
    if !stored.is_empty() {
        call.changed(c"OM.DEL", &stored, c"om.expired");
        call.drop_if_empty(&target);
    }
    Ok(true)
}
