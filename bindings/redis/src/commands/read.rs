//! Commands that read single fields.

use super::{Call, Done, check_field};
use crate::store::{all_of, borrowed, item_key};

/// `OM.GET key field`: the value, or null.
pub fn get(call: &Call<'_>) -> Done {
    check_field(call.argument(2))?;
    let Some(map) = call.read()? else {
        call.reply.null();
        return Ok(());
    };
    let found =
        call.store.items().get_with(&item_key(map.id(), call.argument(2)), |value| call.reply.bytes(value));
    found.unwrap_or_else(|| call.reply.null());
    Ok(())
}

/// `OM.MGET key field [field …]`: an array of values and nulls.
pub fn mget(call: &Call<'_>) -> Done {
    let fields = call.arguments(2);
    fields.iter().try_for_each(|field| check_field(field))?;
    let mut found = vec![None; fields.len()];
    if let Some(map) = call.read()? {
        let keys: Vec<Vec<u8>> = fields.iter().map(|field| item_key(map.id(), field)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        call.store.items().get_many(&keys, &mut found);
    }
    call.reply.array(found.len());
    found.iter().for_each(|value| call.reply.maybe(value.as_deref()));
    Ok(())
}

/// `OM.EXISTS key field`: 1 or 0.
pub fn exists(call: &Call<'_>) -> Done {
    check_field(call.argument(2))?;
    let map = call.read()?;
    let there = map.is_some_and(|map| call.store.items().contains_key(&item_key(map.id(), call.argument(2))));
    call.reply.number(i64::from(there));
    Ok(())
}

/// `OM.LEN key`: how many fields there are.
pub fn len(call: &Call<'_>) -> Done {
    let len = call.read()?.map_or(0, |map| {
        map.len().unwrap_or_else(|| {
            let len = call.store.items().count(borrowed(&all_of(map.id())));
            map.set_len(len);
            len
        })
    });
    call.reply.number(len as i64);
    Ok(())
}
