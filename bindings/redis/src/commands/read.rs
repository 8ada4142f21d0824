//! Commands that read single fields.

use super::{Call, Done, check_field};

/// `OM.GET key field`: the value, or null.
pub fn get(call: &Call<'_>) -> Done {
    check_field(call.argument(2))?;
    let Some(map) = call.read()? else {
        call.reply.null();
        return Ok(());
    };
    let value = call.store.value(map.id(), call.argument(2))?;
    call.reply.maybe(value.as_deref());
    Ok(())
}

/// `OM.MGET key field [field …]`: an array of values and nulls.
pub fn mget(call: &Call<'_>) -> Done {
    let fields = call.arguments(2);
    fields.iter().try_for_each(|field| check_field(field))?;
    let mut found = vec![None; fields.len()];
    if let Some(map) = call.read()? {
        for (value, field) in found.iter_mut().zip(&fields) {
            *value = call.store.value(map.id(), field)?;
        }
    }
    call.reply.array(found.len());
    found.iter().for_each(|value| call.reply.maybe(value.as_deref()));
    Ok(())
}

/// `OM.EXISTS key field`: 1 or 0.
pub fn exists(call: &Call<'_>) -> Done {
    check_field(call.argument(2))?;
    let value = call.read()?.map_or(Ok(None), |map| call.store.value(map.id(), call.argument(2)))?;
    let there = value.is_some();
    call.reply.number(i64::from(there));
    Ok(())
}

/// `OM.LEN key`: how many fields there are.
pub fn len(call: &Call<'_>) -> Done {
    let len = match call.read()? {
        None => 0,
        Some(map) => call.len(map)?,
    };
    call.reply.number(len as i64);
    Ok(())
}
