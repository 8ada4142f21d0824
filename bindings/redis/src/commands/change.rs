//! Commands that change single fields, or several in one step.

use std::collections::{BTreeMap, BTreeSet};

use super::{Call, Done, Refusal, check_field, check_value, integer, is, refuse};
use crate::map::Map;
use crate::store::item_key;

fn value_of(call: &Call<'_>, map: Option<&Map>, field: &[u8]) -> Option<Vec<u8>> {
    map.and_then(|map| call.store.items().get(&item_key(map.id(), field)))
}

/// Returns which of the fields are there.
fn present(call: &Call<'_>, map: Option<&Map>, fields: &[&[u8]]) -> Vec<bool> {
    let mut found = vec![false; fields.len()];
    if let Some(map) = map {
        let keys: Vec<Vec<u8>> = fields.iter().map(|field| item_key(map.id(), field)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        call.store.items().contains_many(&keys, &mut found);
    }
    found
}

/// `OM.SET key field value [field value …] [NX|XX]`: how many fields are new; with `NX` (no field is there yet) or `XX`
/// (all are) 1 if they were written, and 0 if none was.
pub fn set(call: &Call<'_>) -> Done {
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
    if let (Some(map), [field, value], None) = (target.map, &arguments[..], only_new) {
        let new = call.store.put(map.id(), field, value)?;
        map.grow(i64::from(new));
        call.changed_verbatim(c"om.set");
        call.reply.number(i64::from(new));
        return Ok(());
    }
    let fields: BTreeMap<&[u8], &[u8]> = arguments.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let names: Vec<&[u8]> = fields.keys().copied().collect();
    let there = present(call, target.map, &names);
    let new = there.iter().filter(|there| !**there).count() as u64;
    if only_new.is_some_and(|new| there.contains(&new)) {
        call.reply.number(0);
        return Ok(());
    }
    target.set(call.store, &fields, new)?;
    call.changed_as_sent(c"OM.SET", 1 + arguments.len(), c"om.set");
    call.reply.number(if only_new.is_some() { 1 } else { new as i64 });
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
    if let [field] = &arguments[..] {
        let removed = call.store.take(map.id(), field)?;
        if removed {
            map.grow(-1);
            call.changed_verbatim(c"om.del");
            call.drop_if_empty(&target);
        }
        call.reply.number(i64::from(removed));
        return Ok(());
    }
    let fields: Vec<&[u8]> = arguments.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let there = present(call, Some(map), &fields);
    let removed: Vec<&[u8]> =
        fields.into_iter().zip(there).filter_map(|(field, there)| there.then_some(field)).collect();
    if !removed.is_empty() {
        target.remove(call.store, map, &removed)?;
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
    let old = value_of(call, target.map, field);
    let before = match &old {
        None => 0,
        Some(value) => integer(value).or_else(|_| refuse("the field's value is not an integer"))?,
    };
    let Some(sum) = before.checked_add(increment) else {
        return refuse("increment or decrement would overflow");
    };
    let text = sum.to_string();
    target.set(call.store, &BTreeMap::from([(field, text.as_bytes())]), u64::from(old.is_none()))?;
    call.changed(c"OM.SET", &[field, text.as_bytes()], c"om.incrby");
    call.reply.number(sum);
    Ok(())
}

/// `OM.CAS key field expected new`: 1 if the field had the expected value and has the new one, 0 if nothing changed.
pub fn cas(call: &Call<'_>) -> Done {
    let (field, expected, new) = (call.argument(2), call.argument(3), call.argument(4));
    check_field(field)?;
    check_value(new)?;
    let target = call.write()?;
    if value_of(call, target.map, field).as_deref() != Some(expected) {
        call.reply.number(0);
        return Ok(());
    }
    target.set(call.store, &BTreeMap::from([(field, new)]), 0)?;
    call.changed(c"OM.SET", &[field, new], c"om.cas");
    call.reply.number(1);
    Ok(())
}
