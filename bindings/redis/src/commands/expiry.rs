//! When fields expire: `OM.EXPIRE` and the like, with the arguments, replies and errors of `HEXPIRE` and the like.
//!
//! Replicas and the append-only file get the time itself, as `OM.PEXPIREAT`, or `OM.DEL` if it has passed.

use std::collections::BTreeMap;

use super::{Call, Done, Refusal, Target, check_field, integer, is, refuse};
use crate::map::Map;
use crate::store::{NO_TIME, Time};

/// The latest time in milliseconds since 1970: that of hashes.
const LATEST: i64 = (1 << 46) - 1;
/// Replies for a field that is not there, and for one that does not expire.
const ABSENT: i64 = -2;
const ENDLESS: i64 = -1;

/// What a time is counted in, and from.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub millis: i64,
    pub is_since_1970: bool,
    /// The command of hashes that has it.
    pub name: &'static str,
}

/// `OM.EXPIRE key seconds [NX|XX|GT|LT] FIELDS n field [field …]`: for each field 1 if it gets the time, 0 if the condition does not
/// hold, 2 if the time has passed and the field is removed, -2 if it is not there.
pub fn expire(call: &Call<'_>) -> Done {
    set(call, Unit { millis: 1000, is_since_1970: false, name: "om.expire" })
}

/// `OM.PEXPIRE key milliseconds …`: see [`expire`].
pub fn pexpire(call: &Call<'_>) -> Done {
    set(call, Unit { millis: 1, is_since_1970: false, name: "om.pexpire" })
}

/// `OM.EXPIREAT key seconds-since-1970 …`: see [`expire`].
pub fn expireat(call: &Call<'_>) -> Done {
    set(call, Unit { millis: 1000, is_since_1970: true, name: "om.expireat" })
}

/// `OM.PEXPIREAT key milliseconds-since-1970 …`: see [`expire`].
pub fn pexpireat(call: &Call<'_>) -> Done {
    set(call, Unit { millis: 1, is_since_1970: true, name: "om.pexpireat" })
}

/// Which times may be replaced.
#[derive(Clone, Copy)]
enum Condition {
    Always,
    Endless,
    Timed,
    Earlier,
    Later,
}

impl Condition {
    fn of(word: &[u8]) -> Option<Self> {
        let words = [("NX", Self::Endless), ("XX", Self::Timed), ("GT", Self::Earlier), ("LT", Self::Later)];
        words.into_iter().find(|(name, _)| is(word, name)).map(|(_, condition)| condition)
    }

    /// Returns whether a field that expires at `old` may expire at `new`. No time is later than any.
    fn holds(self, old: Option<u64>, new: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Endless => old.is_none(),
            Self::Timed => old.is_some(),
            Self::Earlier => old.is_some_and(|old| old < new),
            Self::Later => old.is_none_or(|old| old > new),
        }
    }
}

/// Returns the time that an argument is, in milliseconds since 1970.
pub(super) fn time(argument: &[u8], unit: Unit, now: u64) -> Result<u64, Refusal> {
    let count = integer(argument)?;
    if count < 0 {
        return refuse("invalid expire time, must be >= 0");
    }
    let begin = if unit.is_since_1970 { 0 } else { now as i64 };
    let time = count.checked_mul(unit.millis).and_then(|millis| millis.checked_add(begin));
    match time.filter(|time| *time <= LATEST) {
        Some(time) => Ok(time as u64),
        None => refuse(format!("invalid expire time in '{}' command", unit.name)),
    }
}

/// Returns the fields that arguments are: `FIELDS n field …`.
pub(super) fn fields<'a>(arguments: &[&'a [u8]], wrong_number: &str) -> Result<Vec<&'a [u8]>, Refusal> {
    let [word, rest @ ..] = arguments else { return Err(Refusal::Arity) };
    if !is(word, "FIELDS") {
        return refuse("Mandatory argument FIELDS is missing or not at the right position");
    }
    let [count, fields @ ..] = rest else { return Err(Refusal::Arity) };
    match integer(count) {
        Ok(count) if count > 0 && usize::try_from(count) == Ok(fields.len()) => {}
        Ok(count) if count > 0 => {
            return refuse("The `numfields` parameter must match the number of arguments");
        }
        _ => return refuse(wrong_number),
    }
    fields.iter().try_for_each(|field| check_field(field))?;
    Ok(fields.to_vec())
}

/// What is known of a field: whether it is there, and when it expires.
fn look(
    call: &Call<'_>,
    map: Option<Map<'_>>,
    now: u64,
    field: &[u8],
) -> Result<Option<Option<u64>>, Refusal> {
    let Some(map) = map else { return Ok(None) };
    if call.store.value(map, field, now)?.is_none() {
        return Ok(None);
    }
    match map {
        Map::Large(large) => Ok(Some(call.store.time_of(large, field)?)),
        _ => Ok(Some(None)),
    }
}

fn set(call: &Call<'_>, unit: Unit) -> Done {
    let target = call.write()?;
    let (given, now) = (call.is_given(), call.store.now());
    let time = time(call.argument(2), unit, now)?;
    let arguments = call.arguments(3);
    let (condition, rest) = match Condition::of(arguments[0]) {
        Some(condition) => (condition, &arguments[1..]),
        None => (Condition::Always, &arguments[..]),
    };
    let fields = fields(rest, "Parameter `numFields` should be greater than 0")?;
    let is_past = time <= now && !given;
    // The state of each field during the command: a field may be named twice.
    let mut known = BTreeMap::new();
    let mut replies = Vec::with_capacity(fields.len());
    for field in &fields {
        let state = match known.get(field) {
            Some(state) => *state,
            None => look(call, target.map, target.now, field)?,
        };
        let (state, reply) = match state {
            None => (None, ABSENT),
            Some(old) if !condition.holds(old, time) => (Some(old), 0),
            Some(_) if is_past => (None, 2),
            Some(_) => (Some(Some(time)), 1),
        };
        known.insert(*field, state);
        replies.push(reply);
    }
    let mut changed: Vec<&[u8]> =
        fields.iter().zip(&replies).filter(|(_, reply)| **reply > 0).map(|(field, _)| *field).collect();
    changed.sort_unstable();
    changed.dedup();
    change(call, &target, &changed, time, is_past)?;
    call.reply.array(replies.len());
    replies.into_iter().for_each(|reply| call.reply.number(reply));
    Ok(())
}

/// Gives fields a time, or removes them because it has passed.
pub(super) fn change(
    call: &Call<'_>,
    target: &Target<'_>,
    fields: &[&[u8]],
    time: u64,
    is_past: bool,
) -> Done {
    if fields.is_empty() {
        return Ok(());
    }
    if is_past {
        target.remove(call.store, fields)?;
        call.changed(c"OM.DEL", fields, c"om.del");
        call.drop_if_empty(target);
        return Ok(());
    }
    let times: Vec<Time<'_>> = fields.iter().map(|field| (*field, time.max(NO_TIME + 1))).collect();
    target.change(call.store, &[], &times, 0)?;
    call.changed_to(&[], &times, c"om.expire");
    Ok(())
}

/// `OM.PERSIST key FIELDS n field [field …]`: for each field 1 if it does not expire any more, -1 if it did not, -2 if it is not there.
pub fn persist(call: &Call<'_>) -> Done {
    let target = call.write()?;
    let fields = fields(&call.arguments(2), NUMBER)?;
    let (mut replies, mut changed) = (Vec::with_capacity(fields.len()), Vec::new());
    for field in &fields {
        replies.push(match look(call, target.map, target.now, field)? {
            None => ABSENT,
            Some(Some(_)) if !changed.contains(field) => {
                changed.push(*field);
                1
            }
            Some(_) => ENDLESS,
        });
    }
    make_endless(call, &target, &changed)?;
    call.reply.array(replies.len());
    replies.into_iter().for_each(|reply| call.reply.number(reply));
    Ok(())
}

/// Takes the times of fields that have one.
pub(super) fn make_endless(call: &Call<'_>, target: &Target<'_>, fields: &[&[u8]]) -> Done {
    if fields.is_empty() {
        return Ok(());
    }
    let times: Vec<Time<'_>> = fields.iter().map(|field| (*field, NO_TIME)).collect();
    target.change(call.store, &[], &times, 0)?;
    let count = fields.len().to_string();
    let words = [&[b"FIELDS".as_slice(), count.as_bytes()], fields].concat();
    call.changed(c"OM.PERSIST", &words, c"om.persist");
    Ok(())
}

/// What commands that read times say of a wrong number of fields.
pub(super) const NUMBER: &str = "Number of fields must be a positive integer";

/// `OM.TTL key FIELDS n field [field …]`: for each field how many seconds it still lives, -1 if it does not expire, -2 if it is not
/// there.
pub fn ttl(call: &Call<'_>) -> Done {
    read(call, |time, now| time.saturating_sub(now).div_ceil(1000))
}

/// `OM.PTTL key FIELDS n field [field …]`: the same in milliseconds.
pub fn pttl(call: &Call<'_>) -> Done {
    read(call, u64::saturating_sub)
}

/// `OM.EXPIRETIME key FIELDS n field [field …]`: the same as seconds since 1970.
pub fn expiretime(call: &Call<'_>) -> Done {
    read(call, |time, _| time.div_ceil(1000))
}

/// `OM.PEXPIRETIME key FIELDS n field [field …]`: the same as milliseconds since 1970.
pub fn pexpiretime(call: &Call<'_>) -> Done {
    read(call, |time, _| time)
}

fn read(call: &Call<'_>, shown: impl Fn(u64, u64) -> u64) -> Done {
    let map = call.read()?;
    let fields = fields(&call.arguments(2), NUMBER)?;
    let (now, hides) = (call.store.now(), map.map_or(Ok(NO_TIME), |map| call.now_of(map))?);
    let mut replies = Vec::with_capacity(fields.len());
    for field in fields {
        replies.push(match look(call, map, hides, field)? {
            None => ABSENT,
            Some(None) => ENDLESS,
            Some(Some(time)) => shown(time, now) as i64,
        });
    }
    call.reply.array(replies.len());
    replies.into_iter().for_each(|reply| call.reply.number(reply));
    Ok(())
}
