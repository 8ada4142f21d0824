//! Common code for entering and leaving calls.

use std::ffi::{c_int, c_void};

use bristlecone_rs::dynamic::{Datum, Tree};

use crate::argument::{give, place};
use crate::data::{KEY, VALUE};
use crate::handle::{self, Inside, enter};
use crate::object::{Handle, InPool, Object, Open, OpenTree};
use crate::status::{Outcome, call};
use crate::tree::TreeHandle;

/// Bytes as passed by C: their start and their number.
pub type Passed = (*const c_void, usize);

/// Opens an object within that of a handle: `make` creates it, and `*to` becomes its handle.
///
/// # Safety
///
/// `to` must be null, or writable.
pub unsafe fn open<H: Handle, T: Handle>(
    from: *const H,
    to: *mut *mut T,
    make: impl FnOnce(&Inside<H>) -> Outcome<T::Open>,
) -> c_int
where
    Object: From<T::Open>,
{
    call(|| {
        let (inside, to) = (enter(from)?, place(to)?);
        let handle = handle::put(make(&inside)?.into())?;
        // SAFETY: as the caller says.
        unsafe { give(to, handle) };
        Ok(())
    })
}

/// Closes a handle, and drops its object.
pub fn close<H: Handle>(handle: *const H) -> c_int {
    call(|| {
        handle::close(handle, |object| {
            *object = None;
            Ok(())
        })
    })
}

/// Closes a handle, and ends its object by `end`: the handle is closed even if that fails. In a forked child nothing
/// is ended, and the handle stays open.
pub fn finish<H: Handle>(handle: *const H, end: impl FnOnce(H::Open) -> Outcome) -> c_int {
    call(|| {
        enter(handle)?.get()?;
        handle::close(handle, |object| object.take().and_then(H::Open::taken).map_or(Ok(()), end))
    })
}

/// Calls `work` with an open tree, of all entries or of live values.
#[inline]
pub fn with(tree: *const TreeHandle, work: impl FnOnce(&OpenTree) -> Outcome) -> c_int {
    call(|| work(enter(tree)?.get()?))
}

/// Calls `work` with an open tree and a key of it.
///
/// # Safety
///
/// The pointer must point to as many bytes as its length says.
#[inline]
pub unsafe fn with_key(
    tree: *const TreeHandle,
    key: Passed,
    work: impl FnOnce(&OpenTree, &Datum<'_>) -> Outcome,
) -> c_int {
    // SAFETY: as the caller says.
    with(tree, |open| work(open, &unsafe { KEY.passed(open.tree.key_kind(), key) }?))
}

/// Calls `work` with an open tree, and a key and a value of it.
///
/// # Safety
///
/// The pointers must point to as many bytes as their lengths say.
#[inline]
pub unsafe fn with_item(
    tree: *const TreeHandle,
    key: Passed,
    value: Passed,
    work: impl FnOnce(&OpenTree, &Datum<'_>, &Datum<'_>) -> Outcome,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { with_key(tree, key, |open, key| work(open, key, &VALUE.passed(open.value_kind(), value)?)) }
}

/// Calls `work` with an object begun in a pool, and a tree of that pool.
pub fn in_pool<H: Handle<Open = InPool<T>>, T>(
    handle: *const H,
    tree: *const TreeHandle,
    work: impl FnOnce(&T, &OpenTree) -> Outcome,
) -> c_int
where
    InPool<T>: Open,
{
    call(|| {
        let (inside, of_tree) = (enter(handle)?, enter(tree)?);
        let open = inside.get()?;
        work(&open.begun, of_tree.get_of(&open.member)?)
    })
}

/// Calls `work` with an object begun in a pool, and a key of a tree of that pool.
///
/// # Safety
///
/// The pointer must point to as many bytes as its length says.
pub unsafe fn in_pool_with_key<H: Handle<Open = InPool<T>>, T>(
    handle: *const H,
    tree: *const TreeHandle,
    key: Passed,
    work: impl FnOnce(&T, &Tree, &Datum<'_>) -> Outcome,
) -> c_int
where
    InPool<T>: Open,
{
    in_pool(handle, tree, |begun, open| {
        // SAFETY: as the caller says.
        work(begun, &open.tree, &unsafe { KEY.passed(open.tree.key_kind(), key) }?)
    })
}
