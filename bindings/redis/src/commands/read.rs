//! Commands that read single fields.

use super::range::reply_count;
use super::{Call, Done, check_field};
use crate::map::Map;
use crate::store::all_of;

/// `OM.GET key field`: the value, or null.
pub fn get(call: &Call<'_>) -> Done {
    let field = call.argument(2);
    check_field(field)?;
    let Some(map) = call.read()? else {
        call.reply.null();
        return Ok(());
    };
    Ok(call.store.show_value(map, field, call.now_of(map)?, |value| call.reply.maybe(value))?)
}

/// `OM.MGET key field [field …]`: an array of values and nulls.
pub fn mget(call: &Call<'_>) -> Done {
    let fields = call.arguments(2);
    fields.iter().try_for_each(|field| check_field(field))?;
    let mut found = vec![None; fields.len()];
    if let Some(map) = call.read()? {
        found = call.store.values(map, &fields, call.now_of(map)?)?;
    }
    call.reply.array(found.len());
    found.iter().for_each(|value| call.reply.maybe(value.as_deref()));
    Ok(())
}

/// `OM.EXISTS key field`: 1 or 0.
pub fn exists(call: &Call<'_>) -> Done {
    check_field(call.argument(2))?;
    let is_there = match call.read()? {
        Some(map) => call.store.has_field(map, call.argument(2), call.now_of(map)?)?,
        None => false,
    };
    call.reply.number(i64::from(is_there));
    Ok(())
}

/// `OM.LEN key`: how many fields there are. Those of a large map are counted the first time, in a thread if they are many.
pub fn len(call: &Call<'_>) -> Done {
    match call.read()? {
        None => call.reply.number(0),
        Some(map @ Map::Large(large)) if call.known_len(large).is_none() => {
            let (counting, now) = (large.count(), call.now_of(map)?);
            return reply_count(call, &all_of(large.id()), None, now, move |len| counting.end(len));
        }
        Some(map) => call.reply.number(call.len(map)? as i64),
    }
    Ok(())
}
