//! Commands that read or remove fields in order.

use std::ops::Bound;
use std::sync::atomic::AtomicBool;

use bristlecone::Result as Read;

use super::aside::Part;
use super::found::Wanted;
use super::{Call, Done, Refusal, Target, aside, integer, is, refuse};
use crate::map::Map;
use crate::store::{Bounds, ID_BYTES, Item, all_of, item_key};

/// Fields that `OM.RANGE` returns if no limit is given.
pub const LIMIT: usize = 10_000;
/// Fields that `OM.SCAN` returns if no count is given.
const COUNT: usize = 10;

/// A bound as `ZRANGE … BYLEX` has it.
enum Edge<'a> {
    First,
    Last,
    At(&'a [u8]),
    Beside(&'a [u8]),
}

fn edge(argument: &[u8]) -> Result<Edge<'_>, Refusal> {
    match argument {
        b"-" => Ok(Edge::First),
        b"+" => Ok(Edge::Last),
        [b'[', field @ ..] => Ok(Edge::At(field)),
        [b'(', field @ ..] => Ok(Edge::Beside(field)),
        _ => refuse("min or max not valid string range item"),
    }
}

/// Returns where a range begins and ends; `None`: nothing can be in it.
fn bounds(id: u64, min: &Edge<'_>, max: &Edge<'_>) -> Option<Bounds> {
    let all = all_of(id);
    let from = match min {
        Edge::First => all.0,
        Edge::Last => return None,
        Edge::At(field) => Bound::Included(item_key(id, field)),
        Edge::Beside(field) => Bound::Excluded(item_key(id, field)),
    };
    let to = match max {
        Edge::First => return None,
        Edge::Last => all.1,
        Edge::At(field) => Bound::Included(item_key(id, field)),
        Edge::Beside(field) => Bound::Excluded(item_key(id, field)),
    };
    let in_order = match (&from, &to) {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from < to
        }
        _ => true,
    };
    in_order.then_some((from, to))
}

/// What stands behind the bounds of a range.
struct Options {
    backward: bool,
    limit: Option<usize>,
    values: bool,
}

fn options(arguments: &[&[u8]], may_return: bool) -> Result<Options, Refusal> {
    let mut options = Options { backward: false, limit: None, values: false };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if is(word, "BYLEX") {
        } else if is(word, "REV") && may_return {
            options.backward = true;
        } else if is(word, "WITHVALUES") && may_return {
            options.values = true;
        } else if is(word, "LIMIT") {
            let Some(limit) = rest.next() else { return refuse("syntax error: LIMIT needs a number") };
            options.limit = Some(usize::try_from(integer(limit)?).unwrap_or(usize::MAX));
        } else {
            return refuse(format!("syntax error at {:?}", String::from_utf8_lossy(word)));
        }
    }
    Ok(options)
}

/// `OM.RANGE key min max [BYLEX] [REV] [LIMIT n] [WITHVALUES]`: fields in order, with their values after them if asked for.
/// With `REV` the larger bound stands first. A negative limit is none. What is long is read by a thread of its own.
pub fn range(call: &Call<'_>) -> Done {
    let (one, other) = (edge(call.argument(2))?, edge(call.argument(3))?);
    let options = options(&call.arguments(4), true)?;
    let (min, max) = if options.backward { (other, one) } else { (one, other) };
    let bounds = call.read()?.and_then(|map| bounds(map.id(), &min, &max));
    let Some(bounds) = bounds else {
        call.reply.array(0);
        return Ok(());
    };
    let limit = options.limit.unwrap_or(LIMIT);
    let wanted = Wanted { bounds, backward: options.backward, limit, values: options.values };
    let (found, all) = wanted.read(call.store)?;
    if all {
        call.reply.array(found.len() * (1 + usize::from(wanted.values)));
        found.reply(&wanted, call.reply);
    } else if let Err(part) = aside::reply(call, Box::new(Part { wanted, found })) {
        let rest = call.store.range(&part.wanted.after(&part.found));
        aside::send(call.reply, &part, rest, &AtomicBool::new(false));
    }
    Ok(())
}

/// `OM.DELRANGE key min max [BYLEX] [LIMIT n]`: how many fields were removed, in one step.
pub fn delrange(call: &Call<'_>) -> Done {
    let (min, max) = (edge(call.argument(2))?, edge(call.argument(3))?);
    let options = options(&call.arguments(4), false)?;
    let target = call.write()?;
    let found = target.map.and_then(|map| Some((map, bounds(map.id(), &min, &max)?)));
    let Some((map, bounds)) = found else {
        call.reply.number(0);
        return Ok(());
    };
    let range = call.store.range(&bounds).take(options.limit.unwrap_or(usize::MAX));
    let items: Vec<Item> = range.collect::<Read<_>>()?;
    remove(call, &target, map, &items, c"om.delrange")?;
    call.reply.number(items.len() as i64);
    Ok(())
}

fn remove(call: &Call<'_>, target: &Target<'_>, map: &Map, items: &[Item], event: &std::ffi::CStr) -> Done {
    if items.is_empty() {
        return Ok(());
    }
    let fields: Vec<&[u8]> = items.iter().map(|(key, _)| &key[ID_BYTES..]).collect();
    target.remove(call.store, map, &fields)?;
    call.changed(c"OM.DEL", &fields, event);
    call.drop_if_empty(target);
    Ok(())
}

/// `OM.POPMIN key [n]`: the first fields, each with its value, which are removed.
pub fn popmin(call: &Call<'_>) -> Done {
    pop(call, false, c"om.popmin")
}

/// `OM.POPMAX key [n]`: the last fields, each with its value, which are removed; the last one first.
pub fn popmax(call: &Call<'_>) -> Done {
    pop(call, true, c"om.popmax")
}

fn pop(call: &Call<'_>, backward: bool, event: &std::ffi::CStr) -> Done {
    let count = match call.arguments(2)[..] {
        [] => 1,
        [count] => match usize::try_from(integer(count)?) {
            Ok(count) => count,
            Err(_) => return refuse("value is out of range, must be positive"),
        },
        _ => return Err(Refusal::Arity),
    };
    let target = call.write()?;
    let Some(map) = target.map else {
        call.reply.array(0);
        return Ok(());
    };
    let bounds = all_of(map.id());
    let range = call.store.range(&bounds);
    let items: Read<Vec<Item>> =
        if backward { range.rev().take(count).collect() } else { range.take(count).collect() };
    let items = items?;
    remove(call, &target, map, &items, event)?;
    call.reply.array(2 * items.len());
    for (key, value) in &items {
        call.reply.bytes(&key[ID_BYTES..]);
        call.reply.bytes(value);
    }
    Ok(())
}

/// `OM.SCAN key cursor [COUNT n]`: the next cursor, and fields with their values. The first cursor is `0`, and so is the one after the
/// last field. A field that is there from the first call to the last is returned once.
pub fn scan(call: &Call<'_>) -> Done {
    let min = match call.argument(2) {
        b"0" => Edge::First,
        [b'>', field @ ..] => Edge::Beside(field),
        _ => return refuse("invalid cursor"),
    };
    let count = match call.arguments(3)[..] {
        [] => COUNT,
        [word, count] if is(word, "COUNT") => match usize::try_from(integer(count)?) {
            Ok(count) if count > 0 => count,
            _ => return refuse("syntax error: COUNT must be positive"),
        },
        _ => return refuse("syntax error: only COUNT n may follow the cursor"),
    };
    let bounds = call.read()?.and_then(|map| bounds(map.id(), &min, &Edge::Last));
    let mut items: Vec<Item> = bounds.map_or_else(
        || Ok(Vec::new()),
        |bounds| call.store.range(&bounds).take(count.saturating_add(1)).collect::<Read<_>>(),
    )?;
    let more = items.len() > count;
    items.truncate(count);
    let cursor = match items.last() {
        Some((last, _)) if more => [b">", &last[ID_BYTES..]].concat(),
        _ => b"0".to_vec(),
    };
    call.reply.array(2);
    call.reply.bytes(&cursor);
    call.reply.array(2 * items.len());
    for (key, value) in &items {
        call.reply.bytes(&key[ID_BYTES..]);
        call.reply.bytes(value);
    }
    Ok(())
}
