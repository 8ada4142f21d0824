//! Commands that change single fields, or several in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;

use super::{Call, Done, Refusal, Target, check_field, check_value, integer, is, refuse};
use crate::map::Map;
use crate::store::{Change, NO_TIME};

fn value_of(call: &Call<'_>, target: &Target<'_>, field: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    Ok(target.map.map_or(Ok(None), |map| call.store.value(map, field, target.now))?)
}

/// Writes what an increment came to. The field keeps its time.
fn set_keeping_time(
    call: &Call<'_>,
    target: &Target<'_>,
    (field, value): (&[u8], &[u8]),
    is_new: bool,
    event: &CStr,
) -> Done {
    let written: Change<'_> = (field, Some(value));
    let times = match target.map {
        Some(Map::Large(large)) if !is_new => call.store.times_of(large, &[written])?,
        _ => Vec::new(),
    };
    target.set(call.store, &BTreeMap::from([(field, value)]), &times, u64::from(is_new))?;
    call.changed_to(&[written], &times, event);
    Ok(())
}

/// Returns which of the fields are there.
pub(super) fn present(call: &Call<'_>, target: &Target<'_>, fields: &[&[u8]]) -> Result<Vec<bool>, Refusal> {
    let absent = || Ok(vec![false; fields.len()]);
    Ok(target.map.map_or_else(absent, |map| call.store.has(map, fields, target.now))?)
}

/// `OM.SET key field value [field value …] [NX|XX]`: how many fields are new; with `NX` (no field is there yet) or `XX`
/// (all are) 1 if they were written, and 0 if none was.
pub fn set(call: &Call<'_>) -> Done {
    if call.len_of_arguments() == 4 {
        return set_one(call, call.argument(2), call.argument(3));
    }
    let mut arguments = call.arguments(2);
    // An odd one at the end can only be an option, whatever fields and values are called.
    let condition = if arguments.len() % 2 == 1 { arguments.pop() } else { None };
    let only_new = match condition {
        None => None,
        Some(word) if is(word, "NX") => Some(true),
        Some(word) if is(word, "XX") => Some(false),
        Some(_) if arguments.len() == 2 => return refuse("syntax error: NX or XX may follow the fields"),
        Some(_) => return Err(Refusal::Arity),
    };
    for pair in arguments.chunks_exact(2) {
        check_field(pair[0])?;
        check_value(pair[1])?;
    }
    let target = call.write()?;
    let fields: BTreeMap<&[u8], &[u8]> = arguments.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let names: Vec<&[u8]> = fields.keys().copied().collect();
    let there = present(call, &target, &names)?;
    let new = there.iter().filter(|there| !**there).count() as u64;
    if only_new.is_some_and(|new| there.contains(&new)) {
        call.reply.number(0);
        return Ok(());
    }
    target.set(call.store, &fields, &[], new)?;
    call.changed_as_sent(c"OM.SET", 1 + arguments.len(), c"om.set");
    call.reply.number(if only_new.is_some() { 1 } else { new as i64 });
    Ok(())
}

/// `OM.SET` of one field without a condition: it is looked up once.
fn set_one(call: &Call<'_>, field: &[u8], value: &[u8]) -> Done {
    check_field(field)?;
    check_value(value)?;
    let target = call.write()?;
    let new = match target.map {
        Some(map) => target.put(call.store, map, field, value)?,
        None => {
            target.set(call.store, &BTreeMap::from([(field, value)]), &[], 1)?;
            true
        }
    };
    call.changed_verbatim(c"om.set");
    call.reply.number(i64::from(new));
    Ok(())
}

/// `OM.DEL key field [field …]`: how many fields were removed.
pub fn del(call: &Call<'_>) -> Done {
    let arguments = call.arguments(2);
    arguments.iter().try_for_each(|field| check_field(field))?;
    let target = call.write()?;
    let Some(map) = target.map else {
        call.reply.number(0);
        return Ok(());
    };
    if let (Map::Large(map), [field], NO_TIME) = (map, &arguments[..], target.now) {
        let removed = call.store.take(map, field)?;
        if removed {
            map.grow(-1);
            call.changed_verbatim(c"om.del");
            call.drop_if_empty(&target);
        }
        call.reply.number(i64::from(removed));
        return Ok(());
    }
    let fields: Vec<&[u8]> = arguments.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let there = present(call, &target, &fields)?;
    let removed: Vec<&[u8]> =
        fields.into_iter().zip(there).filter_map(|(field, there)| there.then_some(field)).collect();
    if !removed.is_empty() {
        target.remove(call.store, &removed)?;
        call.changed_as_sent(c"OM.DEL", call.arguments(1).len(), c"om.del");
        call.drop_if_empty(&target);
    }
    call.reply.number(removed.len() as i64);
    Ok(())
}

/// `OM.INCRBY key field increment`: the sum. A field that is not there counts as 0.
pub fn incrby(call: &Call<'_>) -> Done {
    let (field, increment) = (call.argument(2), integer(call.argument(3))?);
    check_field(field)?;
    let target = call.write()?;
    let old = value_of(call, &target, field)?;
    let before = match &old {
        None => 0,
        Some(value) => integer(value).or_else(|_| refuse("the field's value is not an integer"))?,
    };
    let Some(sum) = before.checked_add(increment) else {
        return refuse("increment or decrement would overflow");
    };
    let text = sum.to_string();
    set_keeping_time(call, &target, (field, text.as_bytes()), old.is_none(), c"om.incrby")?;
    call.reply.number(sum);
    Ok(())
}

/// What `OM.CAS` compares a field with, and what it writes; `None`: no such field.
struct Swap<'a> {
    expected: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
}

fn swap<'a>(arguments: &[&'a [u8]]) -> Result<Swap<'a>, Refusal> {
    if let [expected, new] = *arguments {
        return Ok(Swap { expected: Some(expected), new: Some(new) });
    }
    let syntax = || refuse("syntax error: expected new, or IF value | IFABSENT and then SET value | DEL");
    let (expected, rest) = match *arguments {
        [word, value, ref rest @ ..] if is(word, "IF") => (Some(value), rest),
        [word, ref rest @ ..] if is(word, "IFABSENT") => (None, rest),
        _ => return syntax(),
    };
    match *rest {
        [word, value] if is(word, "SET") => Ok(Swap { expected, new: Some(value) }),
        [word] if is(word, "DEL") => Ok(Swap { expected, new: None }),
        _ => syntax(),
    }
}

/// `OM.CAS key field expected new`, or `OM.CAS key field (IF value|IFABSENT) (SET value|DEL)`: 1 if the field was as expected and is
/// changed, 0 if nothing changed.
pub fn cas(call: &Call<'_>) -> Done {
    let (field, arguments) = (call.argument(2), call.arguments(3));
    let Swap { expected, new } = swap(&arguments)?;
    check_field(field)?;
    new.map_or(Ok(()), check_value)?;
    let target = call.write()?;
    let held = value_of(call, &target, field)?;
    if held.as_deref() != expected {
        call.reply.number(0);
        return Ok(());
    }
    match (new, target.map) {
        (Some(new), _) => {
            target.set(call.store, &BTreeMap::from([(field, new)]), &[], u64::from(held.is_none()))?;
            call.changed(c"OM.SET", &[field, new], c"om.cas");
        }
        (None, Some(_)) if held.is_some() => {
            target.remove(call.store, &[field])?;
            call.changed(c"OM.DEL", &[field], c"om.cas");
            call.drop_if_empty(&target);
        }
        // What is not there stays so.
        (None, _) => {}
    }
    call.reply.number(1);
    Ok(())
}

/// `OM.GETDEL key field`: the value of a field, which is removed, or null.
pub fn getdel(call: &Call<'_>) -> Done {
    let field = call.argument(2);
    check_field(field)?;
    let target = call.write()?;
    let held = value_of(call, &target, field)?;
    if held.is_some() {
        target.remove(call.store, &[field])?;
        call.changed(c"OM.DEL", &[field], c"om.getdel");
        call.drop_if_empty(&target);
    }
    call.reply.maybe(held.as_deref());
    Ok(())
}

/// Returns the number with a fraction that an argument is.
fn float(argument: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(argument).ok()?;
    let is_number = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    text.parse::<f64>().ok().filter(|number| is_number && number.is_finite())
}

/// `OM.INCRBYFLOAT key field increment`: the sum, in 64 bits and without an exponent. A field that is not there counts as 0.
pub fn incrbyfloat(call: &Call<'_>) -> Done {
    let (field, increment) = (call.argument(2), float(call.argument(3)));
    let Some(increment) = increment else { return refuse("value is not a valid float") };
    check_field(field)?;
    let target = call.write()?;
    let old = value_of(call, &target, field)?;
    let before = match &old {
        None => 0.0,
        Some(value) => match float(value) {
            Some(number) => number,
            None => return refuse("the field's value is not a float"),
        },
    };
    let sum = before + increment;
    if !sum.is_finite() {
        return refuse("increment would produce NaN or Infinity");
    }
    // What rounds to zero has no sign.
    let text = (sum + 0.0).to_string();
    set_keeping_time(call, &target, (field, text.as_bytes()), old.is_none(), c"om.incrbyfloat")?;
    call.reply.bytes(text.as_bytes());
    Ok(())
}
