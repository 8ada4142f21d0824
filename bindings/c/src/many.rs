//! Multi-key calls.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use bristlecone_rs::ManyError;
use bristlecone_rs::dynamic::{Datum, Tree};

use crate::argument::{array, expect_array, give};
use crate::data::{self, KEY, VALUE};
use crate::entry::Passed;
use crate::handle::{Inside, enter};
use crate::status::{Failure, Outcome, call};
use crate::tree::TreeHandle;

/// Number of items that are passed on at a time.
const GROUP: usize = 256;

/// A key or a value in an array of them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    /// Its first byte.
    pub data: *const c_void,
    /// Its length.
    pub bytes: usize,
}

impl Bytes {
    fn passed(&self) -> Passed {
        (self.data, self.bytes)
    }
}

/// Callback that receives the value of the key at an index, under the rules of `bristlecone_show`. May be null.
pub type ShowAt = Option<
    unsafe extern "C" fn(context: *mut c_void, index: usize, value: *const c_void, value_bytes: usize),
>;

/// Passes on groups of items, up to the first error; reports the number of completed items.
///
/// # Safety
///
/// `done` must be null, or writable.
unsafe fn each_group(
    count: usize,
    done: *mut usize,
    mut change: impl FnMut(Range<usize>) -> Result<(), (usize, Failure)>,
) -> Outcome {
    let mut through = 0;
    let mut ended = Ok(());
    while through < count && ended.is_ok() {
        let end = (through + GROUP).min(count);
        match change(through..end) {
            Ok(()) => through = end,
            Err((within, failure)) => {
                through += within;
                ended = Err(failure);
            }
        }
    }
    // SAFETY: as the caller says.
    unsafe { give(done, through) };
    ended
}

/// Calls `work` with a tree after setting the number of completed items to zero.
///
/// # Safety
///
/// `done` must be null, or writable.
unsafe fn from_none(
    tree: *const TreeHandle,
    done: *mut usize,
    work: impl FnOnce(Inside<TreeHandle>) -> Outcome,
) -> c_int {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { give(done, 0) };
        work(enter(tree)?)
    })
}

/// Returns the progress of a failed call of the library.
fn stopped(error: ManyError) -> (usize, Failure) {
    (error.done, error.error.into())
}

/// Passes on data up to the first that cannot be converted; those behind it are not touched.
fn change_data<T>(
    indices: Range<usize>,
    datum: impl FnMut(usize) -> Outcome<T>,
    change: impl FnOnce(&[T]) -> Result<(), ManyError>,
) -> Result<(), (usize, Failure)> {
    let mut data = Vec::with_capacity(indices.len());
    let converted = indices.map(datum).try_for_each(|datum| {
        data.push(datum?);
        Ok(())
    });
    change(&data).map_err(stopped)?;
    converted.map_err(|failure| (data.len(), failure))
}

/// Looks up `count` keys in groups, which is faster than one by one: `values[i]` is the value of `keys[i]` if
/// `found[i]` is 1, and unchanged if it is 0. Each lookup reads at its own point in time.
///
/// After an error nothing was written, except after `BRISTLECONE_NO_WRITER`, where this is unknown.
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
        for index in 0..count {
            // SAFETY: within the array, as the header says.
            unsafe { found.add(index).write(0) };
        }
        // SAFETY: within the arrays, as the header says.
        words.get_many_with(keys, |index, value| unsafe {
            values.add(index).write(value);
            found.add(index).write(1);
        })?;
        Ok(())
    })
}

/// Writes `count` items, one after the other. Each write is atomic and durable. `*done`, which may be null, is the
/// number of items, from the first on, that were written.
///
/// After an error `*done` items were written and those behind them were not, except after
/// `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_put_many_u64(
    tree: *const TreeHandle,
    keys: *const u64,
    values: *const u64,
    count: usize,
    done: *mut usize,
) -> c_int {
    let changes = |inside: Inside<TreeHandle>| {
        let words = inside.words()?;
        // SAFETY: as the header says.
        let (keys, values) = unsafe { (array("keys", keys, count)?, array("values", values, count)?) };
        let mut items = [(0, 0); GROUP];
        let put = |group: Range<usize>| {
            let items = &mut items[..group.len()];
            for (item, index) in items.iter_mut().zip(group) {
                *item = (keys[index], values[index]);
            }
            words.upsert_many(items).map_err(stopped)
        };
        // SAFETY: as the header says.
        unsafe { each_group(count, done, put) }
    };
    // SAFETY: as the header says.
    unsafe { from_none(tree, done, changes) }
}

/// Removes `count` keys, one after the other. Each removal is atomic and durable: `removed[i]` says whether `keys[i]`
/// existed. `*done`, which may be null, is the number of keys, from the first on, that were processed.
///
/// After an error `*done` keys are removed and those behind them were not processed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_many_u64(
    tree: *const TreeHandle,
    keys: *const u64,
    count: usize,
    removed: *mut u8,
    done: *mut usize,
) -> c_int {
    let changes = |inside: Inside<TreeHandle>| {
        let words = inside.words()?;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        expect_array("places for what was removed", removed, count)?;
        let mut old = Vec::new();
        let remove = |group: Range<usize>| {
            let ended = words.remove_many(&keys[group.clone()], &mut old);
            for (index, value) in group.zip(&old) {
                // SAFETY: within the array, as the header says.
                unsafe { removed.add(index).write(u8::from(value.is_some())) };
            }
            ended.map_err(stopped)
        };
        // SAFETY: as the header says.
        unsafe { each_group(count, done, remove) }
    };
    // SAFETY: as the header says.
    unsafe { from_none(tree, done, changes) }
}

/// Passes the value of a key at an index of an array to the callback, if it exists.
///
/// # Safety
///
/// The arguments must be as the header says.
unsafe fn show_one(tree: &Tree, key: &Bytes, index: usize, show: ShowAt, context: *mut c_void) -> Outcome {
    // SAFETY: as the caller says.
    let key = unsafe { KEY.passed(tree.key_kind(), key.passed()) }?;
    tree.get_with(&key, |held| {
        if let Some(show) = show {
            let mut buffer = Vec::new();
            let value = data::write(tree.value_kind(), held, &mut buffer);
            // SAFETY: as the caller says.
            unsafe { show(context, index, value.as_ptr().cast(), value.len()) };
        }
    })?;
    Ok(())
}

/// Looks up `count` keys, and passes the value of each existing one with its index to the callback, without copying it.
/// Each lookup reads at its own point in time.
///
/// After an error the callback has received the values of the existing keys before the one that failed.
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
        let tree = inside.get()?.entries()?;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        // SAFETY: as the header says.
        unsafe {
            keys.iter().enumerate().try_for_each(|(index, key)| show_one(tree, key, index, show, context))
        }
    })
}

/// Writes `count` items, one after the other. Each write is atomic and durable. `*done`, which may be null, is the
/// number of items, from the first on, that were written.
///
/// After an error `*done` items were written and those behind them were not, except after
/// `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_put_many(
    tree: *const TreeHandle,
    keys: *const Bytes,
    values: *const Bytes,
    count: usize,
    done: *mut usize,
) -> c_int {
    let changes = |inside: Inside<TreeHandle>| {
        let tree = inside.get()?.entries()?;
        // SAFETY: as the header says.
        let (keys, values) = unsafe { (array("keys", keys, count)?, array("values", values, count)?) };
        let item = |index: usize| {
            let (key, value) = (&keys[index], &values[index]);
            // SAFETY: as the header says.
            let key = unsafe { KEY.passed(tree.key_kind(), key.passed()) }?;
            // SAFETY: as the header says.
            let value = unsafe { VALUE.passed(tree.value_kind(), value.passed()) }?;
            Ok((key, value))
        };
        let put = |group: Range<usize>| {
            change_data(group, item, |items: &[(Datum<'_>, Datum<'_>)]| {
                tree.upsert_many(&items.iter().map(|(key, value)| (key, value)).collect::<Vec<_>>())
            })
        };
        // SAFETY: as the header says.
        unsafe { each_group(count, done, put) }
    };
    // SAFETY: as the header says.
    unsafe { from_none(tree, done, changes) }
}

/// Removes `count` keys, one after the other; absent ones are skipped. Each removal is atomic and durable. `*done`,
/// which may be null, is the number of keys, from the first on, that were processed.
///
/// After an error `*done` keys are removed and those behind them were not processed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_many(
    tree: *const TreeHandle,
    keys: *const Bytes,
    count: usize,
    done: *mut usize,
) -> c_int {
    let changes = |inside: Inside<TreeHandle>| {
        let tree = inside.get()?.entries()?;
        // SAFETY: as the header says.
        let keys = unsafe { array("keys", keys, count) }?;
        let key = |index: usize| {
            // SAFETY: as the header says.
            unsafe { KEY.passed(tree.key_kind(), keys[index].passed()) }
        };
        let mut old = Vec::new();
        let remove = |group: Range<usize>| {
            change_data(group, key, |keys: &[Datum<'_>]| {
                tree.remove_many(&keys.iter().collect::<Vec<_>>(), &mut old)
            })
        };
        // SAFETY: as the header says.
        unsafe { each_group(count, done, remove) }
    };
    // SAFETY: as the header says.
    unsafe { from_none(tree, done, changes) }
}
