//! Many keys in a call.

use std::ffi::{c_int, c_void};

use bristlecone_rs::dynamic::Tree;

use crate::argument::{array, bytes, expect_array, give};
use crate::data::{self, KEY, VALUE};
use crate::handle::enter;
use crate::status::{Outcome, call};
use crate::tree::TreeHandle;

/// A key or a value in an array of them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    /// Where it begins.
    pub data: *const c_void,
    /// Its length.
    pub bytes: usize,
}

/// Is shown the value of the key at an index. What holds of `bristlecone_show` holds of it. May be null.
pub type ShowAt = Option<
    unsafe extern "C" fn(context: *mut c_void, index: usize, value: *const c_void, value_bytes: usize),
>;

/// Calls `work` with each index in turn, up to the first error; says how many were done.
///
/// # Safety
///
/// `done` is null, or may be written.
unsafe fn each(count: usize, done: *mut usize, mut work: impl FnMut(usize) -> Outcome) -> Outcome {
    let mut through = 0;
    let ended = (0..count).try_for_each(|index| {
        work(index)?;
        through = index + 1;
        Ok(())
    });
    // SAFETY: as the caller says.
    unsafe { give(done, through) };
    ended
}

/// Looks up `count` keys: `values[i]` is the value of `keys[i]` where `found[i]` is 1, and stays as it was where that is 0.
/// Each lookup sees what was there at its own moment.
///
/// After an error nothing was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_get_many_u64(
    tree: *const TreeHandle,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    found: *mut u8,
) -> c_int {
    call(|| {
        let inside = enter(tree)?;
        let words = inside.words()?;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        expect_array("values", values, count)?;
        expect_array("places for what was found", found, count)?;
        for (index, key) in keys.iter().enumerate() {
            let value = words.get(*key);
            // SAFETY: within the arrays, as the header says.
            unsafe {
                found.add(index).write(u8::from(value.is_some()));
                if let Some(value) = value {
                    values.add(index).write(value);
                }
            }
        }
        Ok(())
    })
}

/// Writes `count` items, one after the other, each of them an atomic step and durable. `*done`, which may be null, says
/// how many of them, from the first on, were written.
///
/// After an error `*done` items were written and those behind them were not; the one amid is as after an error of
/// `bristlecone_put_u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_put_many_u64(
    tree: *const TreeHandle,
    keys: *const u64,
    values: *const u64,
    count: usize,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        unsafe { give(done, 0) };
        let inside = enter(tree)?;
        let words = inside.words()?;
        // SAFETY: as the header says.
        let (keys, values) = unsafe { (array("keys", keys, count)?, array("values", values, count)?) };
        // SAFETY: as the header says.
        unsafe { each(count, done, |index| Ok(words.upsert(keys[index], values[index])?)) }
    })
}

/// Removes `count` keys, one after the other, each of them an atomic step and durable: `removed[i]` says whether
/// `keys[i]` was there. `*done`, which may be null, says how many keys, from the first on, were looked for.
///
/// After an error `*done` keys are gone and those behind them were not looked for; the one amid is as after an error of
/// `bristlecone_remove_u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_many_u64(
    tree: *const TreeHandle,
    keys: *const u64,
    count: usize,
    removed: *mut u8,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        unsafe { give(done, 0) };
        let inside = enter(tree)?;
        let words = inside.words()?;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        expect_array("places for what was removed", removed, count)?;
        let remove = |index: usize| {
            let was_there = words.remove(keys[index])?.is_some();
            // SAFETY: within the array, as the header says.
            unsafe { removed.add(index).write(u8::from(was_there)) };
            Ok(())
        };
        // SAFETY: as the header says.
        unsafe { each(count, done, remove) }
    })
}

/// Shows the value of a key at an index of an array, if it is there.
///
/// # Safety
///
/// As the header says of the arguments.
unsafe fn show_one(tree: &Tree, key: &Bytes, index: usize, show: ShowAt, context: *mut c_void) -> Outcome {
    // SAFETY: as the caller says.
    let key = KEY.read(tree.key_kind(), unsafe { bytes("key", key.data, key.bytes) }?)?;
    tree.get_with(key, |held| {
        if let Some(show) = show {
            let mut buffer = Vec::new();
            let value = data::write(tree.value_kind(), &held, &mut buffer);
            // SAFETY: as the caller says.
            unsafe { show(context, index, value.as_ptr().cast(), value.len()) };
        }
    })?;
    Ok(())
}

/// Looks up `count` keys, and shows the value of each that is there with its index, without copying it. Each lookup sees
/// what was there at its own moment.
///
/// After an error the values of keys before the one that it is about were shown, if they are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_get_many(
    tree: *const TreeHandle,
    keys: *const Bytes,
    count: usize,
    show: ShowAt,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let inside = enter(tree)?;
        let tree = &inside.tree()?.tree;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        // SAFETY: as the header says.
        unsafe {
            each(count, std::ptr::null_mut(), |index| show_one(tree, &keys[index], index, show, context))
        }
    })
}

/// Writes `count` items, one after the other, each of them an atomic step and durable. `*done`, which may be null, says
/// how many of them, from the first on, were written.
///
/// After an error `*done` items were written and those behind them were not; the one amid is as after an error of
/// `bristlecone_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_put_many(
    tree: *const TreeHandle,
    keys: *const Bytes,
    values: *const Bytes,
    count: usize,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        unsafe { give(done, 0) };
        let inside = enter(tree)?;
        let tree = &inside.tree()?.tree;
        // SAFETY: as the header says.
        let (keys, values) = unsafe { (array("keys", keys, count)?, array("values", values, count)?) };
        let put = |index: usize| {
            let (key, value) = (&keys[index], &values[index]);
            // SAFETY: as the header says.
            let (key, value) =
                unsafe { (bytes("key", key.data, key.bytes)?, bytes("value", value.data, value.bytes)?) };
            let (key, value) = (KEY.read(tree.key_kind(), key)?, VALUE.read(tree.value_kind(), value)?);
            Ok(tree.upsert(key, value)?)
        };
        // SAFETY: as the header says.
        unsafe { each(count, done, put) }
    })
}

/// Removes `count` keys, one after the other, each of them an atomic step and durable; absent ones are passed over.
/// `*done`, which may be null, says how many keys, from the first on, were looked for.
///
/// After an error `*done` keys are gone and those behind them were not looked for; the one amid is as after an error of
/// `bristlecone_remove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_many(
    tree: *const TreeHandle,
    keys: *const Bytes,
    count: usize,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        unsafe { give(done, 0) };
        let inside = enter(tree)?;
        let tree = &inside.tree()?.tree;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        let remove = |index: usize| {
            // SAFETY: as the header says.
            let key = unsafe { bytes("key", keys[index].data, keys[index].bytes) }?;
            tree.remove(KEY.read(tree.key_kind(), key)?)?;
            Ok(())
        };
        // SAFETY: as the header says.
        unsafe { each(count, done, remove) }
    })
}
