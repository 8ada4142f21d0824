//! Commands of several maps.

use std::collections::BTreeMap;

use super::range::wanted;
use super::span::{Span, options};
use super::{Call, Done, Refusal};
use crate::map::Map;
use crate::store::{Change, ID_BYTES, Item, NO_TIME, Time, all_of};

/// `OM.RANGESTORE destination source (min max | PREFIX prefix) [BYLEX] [REV] [LIMIT [offset] count] [MATCH pattern]`: how many fields the
/// destination has then, in place of whatever it had. They keep their times. Without a field it is no key.
pub fn rangestore(call: &Call<'_>) -> Done {
    let span = Span::of(call.argument(3), call.argument(4))?;
    let options = options(&call.arguments(5), &["BYLEX", "REV", "LIMIT", "MATCH"])?;
    let (mut items, mut source) = (Vec::new(), None);
    if let Some(map) = call.read_at(2)? {
        source = Some(map);
        if let Some(mut wanted) = wanted(map, span, options, usize::MAX, call.now_of(map)?) {
            items = wanted.all(call.store, map)?;
        }
    }
    let changes: Vec<Change<'_>> =
        items.iter().map(|(key, value)| (&key[ID_BYTES..], Some(value.as_slice()))).collect();
    let times = source.map_or(Ok(Vec::new()), |map| times_of(call, map, &changes))?;
    let depends_on_time = source.map_or(Ok(false), |map| call.now_of(map).map(|now| now != NO_TIME))?;
    call.replace(&changes, &times, depends_on_time, c"om.rangestore")?;
    call.reply.number(changes.len() as i64);
    Ok(())
}

/// Returns when fields of a map expire: those that have a time.
fn times_of<'a>(call: &Call<'_>, map: Map<'_>, fields: &[Change<'a>]) -> Result<Vec<Time<'a>>, Refusal> {
    match map {
        Map::Large(large) if call.store.has_times(large)? => Ok(call.store.times_of(large, fields)?),
        _ => Ok(Vec::new()),
    }
}

/// `OM.MERGE destination source [source …]`: how many fields of the destination are new. It gets all fields of the sources, with their
/// times; of one field the last source's value and time stay.
pub fn merge(call: &Call<'_>) -> Done {
    let (mut sources, mut depends_on_time) = (Vec::new(), false);
    for at in 2..call.len_of_arguments() {
        if let Some(map) = call.read_at(at)? {
            let now = call.now_of(map)?;
            depends_on_time |= now != NO_TIME;
            let items = call.store.range(map, &all_of(map.id()), now).collect::<Result<Vec<Item>, _>>()?;
            sources.push((map, items));
        }
    }
    let (mut fields, mut times) = (BTreeMap::new(), BTreeMap::new());
    for (map, items) in &sources {
        let written: Vec<Change<'_>> =
            items.iter().map(|(key, value)| (&key[ID_BYTES..], Some(value.as_slice()))).collect();
        written.iter().for_each(|(field, _)| _ = times.remove(field));
        times.extend(times_of(call, *map, &written)?);
        fields.extend(written.into_iter().map(|(field, value)| (field, value.unwrap_or_default())));
    }
    let target = call.write()?;
    if fields.is_empty() {
        call.reply.number(0);
        return Ok(());
    }
    let names: Vec<&[u8]> = fields.keys().copied().collect();
    let there = match target.map {
        None => 0,
        Some(map) => call.store.has(map, &names, target.now)?.iter().filter(|there| **there).count(),
    };
    let (new, times) = (fields.len() - there, times.into_iter().collect::<Vec<Time<'_>>>());
    target.set(call.store, &fields, &times, new as u64)?;
    if depends_on_time {
        let written: Vec<Change<'_>> = fields.iter().map(|(field, value)| (*field, Some(*value))).collect();
        call.changed_to(&written, &times, c"om.merge");
    } else {
        call.changed_as_sent(c"OM.MERGE", call.arguments(1).len(), c"om.merge");
    }
    call.reply.number(new as i64);
    Ok(())
}
