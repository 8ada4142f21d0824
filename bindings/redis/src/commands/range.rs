//! Commands that read or remove fields in order.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};

use bristlecone::Result as Read;

use super::aside::Source;
use super::found::{Found, Wanted};
use super::glob::Pattern;
use super::long::{self, Replies};
use super::span::{Edge, Options, Span, narrowed, options};
use super::{Call, Done, Refusal, Target, aside, check_field, integer, is, refuse};
use crate::map::Map;
use crate::store::{Bounds, ID_BYTES, Item, NO_TIME, all_of, borrowed, is_over};

/// Fields that `OM.RANGE` returns if no limit is given.
pub const LIMIT: usize = 10_000;
/// Fields that `OM.SCAN` returns if no count is given.
const COUNT: usize = 10;
/// Fields that a call of `OM.SCAN` looks at, whatever count is given.
const LOOKED_AT: usize = 1000;
/// Fields that a pop removes itself. A thread removes more.
const COUNT_MAX: usize = 1000;

/// Returns what a range command wants of a map; `None`: nothing can be in it.
pub fn wanted(map: Map<'_>, span: Span<'_>, options: Options, limit: usize, now: u64) -> Option<Wanted> {
    let span = if options.backward { span.reversed() } else { span };
    let bounds = span.bounds(map.id())?;
    let bounds = match &options.pattern {
        None => bounds,
        Some(pattern) => narrowed(bounds, map.id(), pattern)?,
    };
    let Options { backward, skip, limit: given, values, pattern } = options;
    Some(Wanted { bounds, backward, skip, limit: given.unwrap_or(limit), values, pattern, now })
}

/// `OM.RANGE key (min max | PREFIX prefix) [BYLEX] [REV] [LIMIT [offset] count] [MATCH pattern] [WITHVALUES]`: fields in order, with
/// their values after them if asked for. With `REV` the larger bound stands first. A negative count is none. What is long is read
/// by a thread of its own.
pub fn range(call: &Call<'_>) -> Done {
    let span = Span::of(call.argument(2), call.argument(3))?;
    let options = options(&call.arguments(4), &["BYLEX", "REV", "LIMIT", "MATCH", "WITHVALUES"])?;
    let Some(map) = call.read()? else {
        call.reply.array(0);
        return Ok(());
    };
    let Some(mut wanted) = wanted(map, span, options, LIMIT, call.now_of(map)?) else {
        call.reply.array(0);
        return Ok(());
    };
    let (found, all) = wanted.read(call.store, map, false)?;
    if all {
        call.reply.array(found.len() * wanted.elements());
        found.reply(&wanted, call.reply);
    } else {
        aside::run(call, aside::rest_of(wanted, found));
    }
    Ok(())
}

/// Fields that a command counts itself, before it leaves the rest to a thread.
const COUNTED: u64 = 10_000;

/// Replies how many items of a large map there are within bounds. `ended` gets to know how many are stored, expired ones included.
pub fn reply_count(
    call: &Call<'_>,
    bounds: &Bounds,
    pattern: Option<Pattern>,
    now: u64,
    ended: impl FnOnce(u64) + Send + 'static,
) -> Done {
    let (mut count, mut looked_at, mut last) = (0u64, 0, None);
    let matches = move |key: &[u8]| pattern.as_ref().is_none_or(|pattern| pattern.matches(&key[ID_BYTES..]));
    call.store.items().for_each_in(borrowed(bounds), |key, _| {
        count += u64::from(matches(key));
        looked_at += 1;
        if looked_at < COUNTED {
            return ControlFlow::Continue(());
        }
        last = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    let Some(last) = last else {
        ended(count);
        call.reply.number((count - call.store.over_within(bounds, now, matches)?) as i64);
        return Ok(());
    };
    let (bounds, rest) = (bounds.clone(), (Bound::Excluded(last), bounds.1.clone()));
    aside::run(
        call,
        Box::new(move |reply, source, gone| {
            let counted = count_rest(source, &rest, &matches, gone)
                .and_then(|rest| Ok((count + rest, over_within(source, &bounds, now, &matches)?)));
            match counted {
                _ if gone.load(Ordering::Relaxed) => {}
                Ok((count, over)) => {
                    ended(count);
                    reply.number((count - over) as i64);
                }
                Err(error) => reply.error(&format!("ERR the range cannot be read: {error}")),
            }
        }),
    );
    Ok(())
}

/// Returns how many items are stored within bounds and match, unless the client is gone.
fn count_rest(
    source: &Source,
    bounds: &Bounds,
    matches: impl Fn(&[u8]) -> bool,
    gone: &AtomicBool,
) -> Read<u64> {
    let mut count = 0;
    for item in source.range(bounds, NO_TIME) {
        count += u64::from(matches(&item?.0));
        if gone.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(count)
}

/// Returns how many of them have expired.
fn over_within(source: &Source, bounds: &Bounds, now: u64, matches: impl Fn(&[u8]) -> bool) -> Read<u64> {
    let mut over = 0;
    if now != NO_TIME {
        for time in source.times(bounds) {
            let (key, time) = time?;
            over += u64::from(is_over(&time, now) && matches(&key));
        }
    }
    Ok(over)
}

/// Replies how many fields of a map are within bounds.
fn count_within(call: &Call<'_>, map: Map<'_>, bounds: &Bounds, pattern: Option<Pattern>) -> Done {
    let now = call.now_of(map)?;
    if let Map::Large(_) = map {
        return reply_count(call, bounds, pattern, now, |_| {});
    }
    let mut all = Wanted {
        bounds: bounds.clone(),
        backward: false,
        skip: 0,
        limit: usize::MAX,
        values: false,
        pattern,
        now,
    };
    call.reply.number(all.all(call.store, map)?.len() as i64);
    Ok(())
}

/// `OM.COUNT key (min max | PREFIX prefix) [MATCH pattern]`: how many fields there are.
pub fn count(call: &Call<'_>) -> Done {
    let span = Span::of(call.argument(2), call.argument(3))?;
    let options = options(&call.arguments(4), &["BYLEX", "MATCH"])?;
    let found = call.read()?.and_then(|map| Some((map, wanted(map, span, options, usize::MAX, NO_TIME)?)));
    match found {
        None => call.reply.number(0),
        Some((map, wanted)) => count_within(call, map, &wanted.bounds, wanted.pattern)?,
    }
    Ok(())
}

/// `OM.RANK key field [REV]`: how many fields are before a field, or with `REV` behind it; null if it is not there.
pub fn rank(call: &Call<'_>) -> Done {
    let (field, backward) = match call.arguments(2)[..] {
        [field] => (field, false),
        [field, word] if is(word, "REV") => (field, true),
        [_, word] => return refuse(format!("syntax error at {:?}", String::from_utf8_lossy(word))),
        _ => return Err(Refusal::Arity),
    };
    check_field(field)?;
    let map = match call.read()? {
        Some(map) if call.store.has_field(map, field, call.now_of(map)?)? => map,
        _ => {
            call.reply.null();
            return Ok(());
        }
    };
    let span = if backward {
        Span::Between(Edge::Beside(field), Edge::Last)
    } else {
        Span::Between(Edge::First, Edge::Beside(field))
    };
    match span.bounds(map.id()) {
        None => call.reply.number(0),
        Some(bounds) => count_within(call, map, &bounds, None)?,
    }
    Ok(())
}

/// `OM.DELRANGE key (min max | PREFIX prefix) [BYLEX] [LIMIT [offset] count] [MATCH pattern]`: how many fields were removed, in one
/// step.
pub fn delrange(call: &Call<'_>) -> Done {
    let span = Span::of(call.argument(2), call.argument(3))?;
    let options = options(&call.arguments(4), &["BYLEX", "LIMIT", "MATCH"])?;
    let target = call.write()?;
    let found = target.map.and_then(|map| Some((map, wanted(map, span, options, usize::MAX, target.now)?)));
    let Some((map, mut wanted)) = found else {
        call.reply.number(0);
        return Ok(());
    };
    // What has holes is removed here, however much it is.
    let has_holes = wanted.pattern.is_some() || wanted.skip > 0;
    if let (Map::Large(large), false) = (map, has_holes) {
        let whole = wanted.clone();
        // Nothing is removed that cannot be read.
        let (found, all) = wanted.read(call.store, map, true)?;
        if all {
            return remove_found(call, &target, &found);
        }
        if long::remove(call, &target, large, whole.clone(), Replies::Count, c"om.delrange") {
            return Ok(());
        }
        wanted = whole;
    }
    let items = wanted.all(call.store, map)?;
    if !items.is_empty() {
        let fields: Vec<&[u8]> = items.iter().map(|(key, _)| &key[ID_BYTES..]).collect();
        target.remove(call.store, &fields)?;
        tell_removed(call, &target, &fields, c"om.delrange");
    }
    call.reply.number(items.len() as i64);
    Ok(())
}

fn remove_found(call: &Call<'_>, target: &Target<'_>, found: &Found) -> Done {
    let fields = found.fields();
    if !fields.is_empty() {
        target.remove_row(call.store, &fields)?;
        tell_removed(call, target, &fields, c"om.delrange");
    }
    call.reply.number(fields.len() as i64);
    Ok(())
}

/// Tells of fields that were removed, and removes a key without fields.
fn tell_removed(call: &Call<'_>, target: &Target<'_>, fields: &[&[u8]], event: &std::ffi::CStr) {
    call.changed(c"OM.DEL", fields, event);
    call.drop_if_empty(target);
}

/// `OM.POPMIN key [n]`: the first fields, each with its value, which are removed.
pub fn popmin(call: &Call<'_>) -> Done {
    pop(call, false, c"om.popmin")
}

/// `OM.POPMAX key [n]`: the last fields, each with its value, which are removed; the last one first.
pub fn popmax(call: &Call<'_>) -> Done {
    pop(call, true, c"om.popmax")
}

fn pop(call: &Call<'_>, backward: bool, event: &'static std::ffi::CStr) -> Done {
    let count = match call.arguments(2)[..] {
        [] => 1,
        [count] => match usize::try_from(integer(count)?) {
            Ok(count) => count,
            Err(_) => return refuse("value is out of range, must be positive"),
        },
        _ => return Err(Refusal::Arity),
    };
    let target = call.write()?;
    if let (Some(Map::Large(large)), true) = (target.map, count > COUNT_MAX) {
        let bounds = all_of(large.id());
        let wanted =
            Wanted { bounds, backward, skip: 0, limit: count, values: true, pattern: None, now: target.now };
        if large.len().is_none_or(|len| len > COUNT_MAX as u64)
            && long::remove(call, &target, large, wanted, Replies::Items, event)
        {
            return Ok(());
        }
    }
    let items = match target.map {
        None => Vec::new(),
        Some(map) => pop_from(call, &target, map, count, backward, event)?,
    };
    reply_items(call, &items);
    Ok(())
}

/// Removes the first or the last fields of a map, and returns them.
pub fn pop_from(
    call: &Call<'_>,
    target: &Target<'_>,
    map: Map<'_>,
    count: usize,
    backward: bool,
    event: &std::ffi::CStr,
) -> Result<Vec<Item>, Refusal> {
    let range = call.store.range(map, &all_of(map.id()), target.now);
    let items: Read<Vec<Item>> =
        if backward { range.rev().take(count).collect() } else { range.take(count).collect() };
    let items = items?;
    if !items.is_empty() {
        let fields: Vec<&[u8]> = items.iter().map(|(key, _)| &key[ID_BYTES..]).collect();
        target.remove_row(call.store, &fields)?;
        tell_removed(call, target, &fields, event);
    }
    Ok(items)
}

/// `OM.SCAN key cursor [MATCH pattern] [COUNT n]`: the next cursor, and fields with their values. The first cursor is `0`, and so is
/// the one after the last field. A field that is there from the first call to the last is returned once. A call looks at `n`
/// fields, and at [`LOOKED_AT`] at most.
pub fn scan(call: &Call<'_>) -> Done {
    let min = match call.argument(2) {
        b"0" => Edge::First,
        [b'>', field @ ..] => Edge::Beside(field),
        _ => return refuse("invalid cursor"),
    };
    let (count, pattern) = scan_options(&call.arguments(3))?;
    let span = Span::Between(min, Edge::Last);
    let found = call.read()?.and_then(|map| Some((map, span.bounds(map.id())?)));
    let found = found.and_then(|(map, bounds)| match &pattern {
        None => Some((map, bounds)),
        Some(pattern) => Some((map, narrowed(bounds, map.id(), pattern)?)),
    });
    let mut items: Vec<Item> = found.map_or_else::<Result<_, Refusal>, _, _>(
        || Ok(Vec::new()),
        |(map, bounds)| {
            let items = call.store.range(map, &bounds, call.now_of(map)?);
            Ok(items.take(count.saturating_add(1)).collect::<Read<_>>()?)
        },
    )?;
    let more = items.len() > count;
    items.truncate(count);
    let cursor = match items.last() {
        Some((last, _)) if more => [b">", &last[ID_BYTES..]].concat(),
        _ => b"0".to_vec(),
    };
    if let Some(pattern) = pattern {
        items.retain(|(key, _)| pattern.matches(&key[ID_BYTES..]));
    }
    call.reply.array(2);
    call.reply.bytes(&cursor);
    reply_items(call, &items);
    Ok(())
}

fn scan_options(arguments: &[&[u8]]) -> Result<(usize, Option<Pattern>), Refusal> {
    let (mut count, mut pattern) = (COUNT, None);
    for pair in arguments.chunks(2) {
        match *pair {
            [word, number] if is(word, "COUNT") => match usize::try_from(integer(number)?) {
                Ok(number) if number > 0 => count = number.min(LOOKED_AT),
                _ => return refuse("syntax error: COUNT must be positive"),
            },
            [word, glob] if is(word, "MATCH") => pattern = Some(Pattern::new(glob)),
            _ => return refuse("syntax error: only MATCH pattern and COUNT n may follow the cursor"),
        }
    }
    Ok((count, pattern))
}

/// Replies fields and values in one array.
fn reply_items(call: &Call<'_>, items: &[Item]) {
    call.reply.array(2 * items.len());
    for (key, value) in items {
        call.reply.bytes(&key[ID_BYTES..]);
        call.reply.bytes(value);
    }
}
