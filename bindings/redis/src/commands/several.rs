//! Commands of several maps.

use std::collections::BTreeMap;

use super::range::wanted;
use super::span::{Span, options};
use super::{Call, Done};
use crate::store::{Change, ID_BYTES, Item};

/// `OM.RANGESTORE destination source (min max | PREFIX prefix) [BYLEX] [REV] [LIMIT [offset] count] [MATCH pattern]`: how many fields the
/// destination has then, in place of whatever it had. Without a field it is no key.
pub fn rangestore(call: &Call<'_>) -> Done {
    let span = Span::of(call.argument(3), call.argument(4))?;
    let options = options(&call.arguments(5), &["BYLEX", "REV", "LIMIT", "MATCH"])?;
    let found = call.read_at(2)?.and_then(|map| Some((map, wanted(map, span, options, usize::MAX)?)));
    let items = match found {
        None => Vec::new(),
        Some((map, mut wanted)) => wanted.all(call.store, map)?,
    };
    let changes: Vec<Change<'_>> =
        items.iter().map(|(key, value)| (&key[ID_BYTES..], Some(value.as_slice()))).collect();
    call.replace(1, &changes, c"om.rangestore")?;
    call.reply.number(changes.len() as i64);
    Ok(())
}

/// `OM.MERGE destination source [source …]`: how many fields of the destination are new. It gets all fields of the sources; of values
/// of one field the last source's stays.
pub fn merge(call: &Call<'_>) -> Done {
    let mut items: Vec<Vec<Item>> = Vec::new();
    for at in 2..call.len_of_arguments() {
        if let Some(map) = call.read_at(at)? {
            items.push(call.store.all(map).collect::<Result<_, _>>()?);
        }
    }
    let items = items.iter().flatten();
    let fields: BTreeMap<&[u8], &[u8]> =
        items.map(|(key, value)| (&key[ID_BYTES..], value.as_slice())).collect();
    let target = call.write()?;
    if fields.is_empty() {
        call.reply.number(0);
        return Ok(());
    }
    let names: Vec<&[u8]> = fields.keys().copied().collect();
    let there = match target.map {
        None => 0,
        Some(map) => call.store.has(map, &names)?.iter().filter(|there| **there).count(),
    };
    let new = fields.len() - there;
    target.set(call.store, &fields, new as u64)?;
    call.changed_as_sent(c"OM.MERGE", call.arguments(1).len(), c"om.merge");
    call.reply.number(new as i64);
    Ok(())
}
