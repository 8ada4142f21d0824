//! Values together with their times: `OM.GETEX` and `OM.SETEX`, with the arguments, replies and errors of `HGETEX` and `HSETEX`.
//!
//! Replicas and the append-only file get what a command came to: `OM.SET`, `OM.PEXPIREAT`, `OM.PERSIST` or `OM.DEL`.

use std::collections::{BTreeMap, BTreeSet};

use super::change::present;
use super::expiry::{NUMBER, Unit, change, fields, make_endless, time};
use super::{Call, Done, Refusal, Target, check_field, check_value, integer, is, refuse};
use crate::map::Map;
use crate::store::{Change, NO_TIME, Time};

/// What happens to the times of fields.
#[derive(Clone, Copy)]
enum Lifetime {
    /// Nothing was said.
    Unsaid,
    /// `PERSIST`, or `KEEPTTL`.
    Named,
    /// They expire then, in milliseconds since 1970.
    At(u64),
}

/// Takes the word that says when fields expire, with its number. `named`: the word without a number that the command has.
fn lifetime<'a, 'b>(
    arguments: &'b [&'a [u8]],
    named: &str,
    command: &'static str,
    now: u64,
) -> Result<(Lifetime, &'b [&'a [u8]]), Refusal> {
    let [word, rest @ ..] = arguments else { return Err(Refusal::Arity) };
    if is(word, named) {
        return Ok((Lifetime::Named, rest));
    }
    let units = [("EX", 1000, false), ("PX", 1, false), ("EXAT", 1000, true), ("PXAT", 1, true)];
    let unit = units.into_iter().find(|(name, ..)| is(word, name));
    let Some((_, millis, is_since_1970)) = unit else { return Ok((Lifetime::Unsaid, arguments)) };
    let [number, rest @ ..] = rest else { return Err(Refusal::Arity) };
    let unit = Unit { millis, is_since_1970, name: command };
    Ok((Lifetime::At(time(number, unit, now)?), rest))
}

/// `OM.GETEX key [EX seconds|PX milliseconds|EXAT seconds|PXAT milliseconds|PERSIST] FIELDS n field [field …]`: the values or nulls.
/// Fields whose time has passed are removed.
pub fn getex(call: &Call<'_>) -> Done {
    let target = call.write()?;
    let now = call.store.now();
    let arguments = call.arguments(2);
    let (lifetime, rest) = lifetime(&arguments, "PERSIST", "om.getex", now)?;
    let fields = fields(rest, NUMBER)?;
    let values = match target.map {
        Some(map) => call.store.values(map, &fields, target.now)?,
        None => vec![None; fields.len()],
    };
    let there: BTreeSet<&[u8]> =
        fields.iter().zip(&values).filter(|(_, value)| value.is_some()).map(|(field, _)| *field).collect();
    let there: Vec<&[u8]> = there.into_iter().collect();
    match lifetime {
        Lifetime::Unsaid => {}
        Lifetime::Named => make_endless(call, &target, &timed(call, &target, &there)?)?,
        Lifetime::At(time) => change(call, &target, &there, time, time <= now)?,
    }
    call.reply.array(values.len());
    values.iter().for_each(|value| call.reply.maybe(value.as_deref()));
    Ok(())
}

/// Returns the fields that expire.
fn timed<'a>(call: &Call<'_>, target: &Target<'_>, fields: &[&'a [u8]]) -> Result<Vec<&'a [u8]>, Refusal> {
    Ok(kept(call, target, fields)?.into_iter().map(|(field, _)| field).collect())
}

/// Returns the fields and values that arguments are: `FIELDS n field value …`. The last value of a field counts.
fn items<'a>(arguments: &[&'a [u8]]) -> Result<BTreeMap<&'a [u8], &'a [u8]>, Refusal> {
    let [word, rest @ ..] = arguments else { return Err(Refusal::Arity) };
    if !is(word, "FIELDS") {
        return refuse(format!("unknown argument: {}", String::from_utf8_lossy(word)));
    }
    let [count, items @ ..] = rest else { return Err(Refusal::Arity) };
    match integer(count) {
        Ok(count) if count > 0 && count.checked_mul(2).map(usize::try_from) == Some(Ok(items.len())) => {}
        Ok(count) if count > 0 => return Err(Refusal::Arity),
        _ => return refuse("invalid number of fields"),
    }
    for item in items.chunks_exact(2) {
        check_field(item[0])?;
        check_value(item[1])?;
    }
    Ok(items.chunks_exact(2).map(|item| (item[0], item[1])).collect())
}

/// `OM.SETEX key [FNX|FXX] [EX seconds|PX milliseconds|EXAT seconds|PXAT milliseconds|KEEPTTL] FIELDS n field value [field value …]`:
/// 1 if the fields were written, 0 if none was: with `FNX` one is there, with `FXX` one is not. Without a time they do not expire.
pub fn setex(call: &Call<'_>) -> Done {
    let target = call.write()?;
    let now = call.store.now();
    let arguments = call.arguments(2);
    let only_new = [("FNX", true), ("FXX", false)].into_iter().find(|(name, _)| is(arguments[0], name));
    let rest = &arguments[usize::from(only_new.is_some())..];
    let (lifetime, rest) = lifetime(rest, "KEEPTTL", "om.setex", now)?;
    let items = items(rest)?;
    let names: Vec<&[u8]> = items.keys().copied().collect();
    let there = present(call, &target, &names)?;
    if only_new.is_some_and(|(_, new)| there.contains(&new)) {
        call.reply.number(0);
        return Ok(());
    }
    let old: Vec<&[u8]> =
        names.iter().zip(&there).filter(|(_, there)| **there).map(|(name, _)| *name).collect();
    match lifetime {
        // They would be removed immediately.
        Lifetime::At(time) if time <= now => change(call, &target, &old, time, true)?,
        _ => {
            let times: Vec<Time<'_>> = match lifetime {
                Lifetime::At(time) => names.iter().map(|name| (*name, time.max(NO_TIME + 1))).collect(),
                Lifetime::Named => kept(call, &target, &old)?,
                Lifetime::Unsaid => Vec::new(),
            };
            target.set(call.store, &items, &times, (names.len() - old.len()) as u64)?;
            let written: Vec<Change<'_>> =
                items.iter().map(|(field, value)| (*field, Some(*value))).collect();
            call.changed_to(&written, &times, c"om.set");
        }
    }
    call.reply.number(1);
    Ok(())
}

/// Returns the times of fields that expire.
fn kept<'a>(call: &Call<'_>, target: &Target<'_>, fields: &[&'a [u8]]) -> Result<Vec<Time<'a>>, Refusal> {
    let Some(Map::Large(large)) = target.map else { return Ok(Vec::new()) };
    let named: Vec<Change<'a>> = fields.iter().map(|field| (*field, None)).collect();
    Ok(call.store.times_of(large, &named)?)
}
