//! Opening, creating and closing trees, and information about them.

use std::ffi::{CString, c_char, c_int, c_void};
use std::time::Duration;

use bristlecone_rs::dynamic::Kind;
use bristlecone_rs::{Design, Error, Issue, dynamic};

use crate::argument::{Versioned, array, fill, give, optional_text, options, text};
use crate::data::size;
use crate::entry::{close, open, with};
use crate::object::OpenPool;
use crate::pool::PoolHandle;
use crate::status::{BRISTLECONE_FAILED, Failure, Outcome};

/// A tree in a pool: an ordered map, for any number of threads. Every write of one key is atomic, and durable when it
/// returns `BRISTLECONE_OK`; readers see only durable data.
pub struct TreeHandle(());

/// Number of attempts to open a tree that others create or drop meanwhile.
const LOOKS: usize = 8;

/// An option of a design, fixed at the creation of a tree.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DesignOption {
    /// Its name, as listed in docs/designs/.
    pub name: *const c_char,
    /// Its value.
    pub value: u64,
}

/// Options for creating a tree. Begin with `BRISTLECONE_TREE_OPTIONS_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TreeOptions {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// The design: "nbtree" (also if null), "sstree", "cclbtree", "lodgetree" or "wotree".
    pub design: *const c_char,
    /// Options of the design; the others have their defaults.
    pub options: *const DesignOption,
    /// Number of options.
    pub option_count: usize,
    /// Milliseconds that a value of a kind "Expiring<V>" lives if its write names no expiry; 0: it does not expire.
    pub expire_after_ms: u64,
}

// SAFETY: numbers and pointers, and its size first.
unsafe impl Versioned for TreeOptions {}

/// Size of a kind's name in bytes, including the terminating zero.
pub const BRISTLECONE_KIND_BYTES: usize = 64;

/// The size of a key or value of a kind without a fixed one, as defined in the header.
const ANY_SIZE: usize = usize::MAX;

/// Information about a tree. Begin with `BRISTLECONE_TREE_INFO_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TreeInfo {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// The kind of the keys.
    pub key_kind: [c_char; BRISTLECONE_KIND_BYTES],
    /// The kind of the values.
    pub value_kind: [c_char; BRISTLECONE_KIND_BYTES],
    /// The design.
    pub design: [c_char; BRISTLECONE_KIND_BYTES],
    /// Size of every key in bytes, or `BRISTLECONE_ANY_SIZE`.
    pub key_bytes: usize,
    /// Size of every value in bytes, or `BRISTLECONE_ANY_SIZE`.
    pub value_bytes: usize,
    /// Number of items; exact while no thread writes.
    pub items: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Bytes of the pool, in whole chunks.
    pub pm_bytes: u64,
    /// Bytes of DRAM.
    pub dram_bytes: u64,
    /// Milliseconds that a value lives if its write names no expiry; 0: it does not expire.
    pub expire_after_ms: u64,
}

// SAFETY: numbers, and its size first.
unsafe impl Versioned for TreeInfo {}

/// Callback that receives an issue of a check: its location and description. Both strings are valid during the call,
/// under the rules of `bristlecone_show`. May be null.
pub type ShowIssue =
    Option<unsafe extern "C" fn(context: *mut c_void, location: *const c_char, what: *const c_char)>;

/// Parses the names of the kinds of keys and of values.
///
/// # Safety
///
/// The pointers must be null, or point to strings.
unsafe fn kinds(keys: *const c_char, values: *const c_char) -> Outcome<(Kind, Kind)> {
    // SAFETY: as the caller says.
    let (keys, values) =
        unsafe { (text("the kind of the keys", keys)?, text("the kind of the values", values)?) };
    Ok((keys.parse()?, values.parse()?))
}

/// Opens the tree of this name with keys and values of these kinds, or creates it, with the default design.
///
/// Kinds are "u64", "str", "bytes", …: the table at the head of this header lists them all. A tree of other kinds
/// returns `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is unchanged; a tree that was to be
/// created exists completely or not at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_open_or_create(
    pool: *const PoolHandle,
    name: *const c_char,
    key_kind: *const c_char,
    value_kind: *const c_char,
    tree: *mut *mut TreeHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, tree, |inside| {
            let open = inside.get()?;
            let name = text("the name of the tree", name)?;
            let (keys, values) = kinds(key_kind, value_kind)?;
            Ok(open.has(open_or_create(open, name, &keys, &values)?))
        })
    }
}

fn open_or_create(open: &OpenPool, name: &str, keys: &Kind, values: &Kind) -> Outcome<dynamic::Tree> {
    for _ in 0..LOOKS {
        match open.pool.dynamic_tree(name) {
            Err(Error::NoSuchTree { .. }) => {}
            opened => return of_kinds(opened?, keys, values),
        }
        match open.pool.tree_options(name).create_dynamic(keys, values) {
            // Another thread created it first: its tree is opened.
            Err(Error::TreeExists { .. }) => {}
            // A reader cannot open a tree that does not exist yet.
            Err(Error::ReadOnly) => return Err(Error::NoSuchTree { name: name.to_owned() }.into()),
            created => return Ok(created?),
        }
    }
    of_kinds(open.pool.dynamic_tree(name)?, keys, values)
}

fn of_kinds(tree: dynamic::Tree, keys: &Kind, values: &Kind) -> Outcome<dynamic::Tree> {
    let mismatch = |what, found: &Kind, asked: &Kind| Error::Mismatch {
        name: tree.name().to_owned(),
        what,
        found: found.to_string(),
        asked: asked.to_string(),
    };
    if tree.key_kind() != keys {
        return Err(mismatch("keys of type", tree.key_kind(), keys).into());
    }
    if tree.value_kind() != values {
        return Err(mismatch("values of type", tree.value_kind(), values).into());
    }
    Ok(tree)
}

/// Opens the tree of this name with its own kinds: see `bristlecone_tree_get_info`. A tree may have several handles;
/// each must be closed.
///
/// Returns `BRISTLECONE_ABSENT` if it does not exist. After an error there is no handle, and `*tree` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_open(
    pool: *const PoolHandle,
    name: *const c_char,
    tree: *mut *mut TreeHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, tree, |inside| {
            let open = inside.get()?;
            Ok(open.has(open.pool.dynamic_tree(text("the name of the tree", name)?)?))
        })
    }
}

/// Creates a tree with keys and values of these kinds, of a design and with its options; null means the defaults.
///
/// An existing tree returns `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is unchanged; the tree
/// exists completely or not at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_create(
    pool: *const PoolHandle,
    name: *const c_char,
    key_kind: *const c_char,
    value_kind: *const c_char,
    tree_options: *const TreeOptions,
    tree: *mut *mut TreeHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, tree, |inside| {
            let open = inside.get()?;
            let (keys, values) = kinds(key_kind, value_kind)?;
            let asked = options(tree_options)?;
            let mut how = open.pool.tree_options(text("the name of the tree", name)?);
            if let Some(design) = optional_text("the design", asked.design)? {
                how = how.design(design.parse::<Design>()?);
            }
            for option in array("options", asked.options, asked.option_count)? {
                how = how.option(text("the name of an option", option.name)?, option.value);
            }
            if asked.expire_after_ms > 0 {
                how = how.expire_after(Duration::from_millis(asked.expire_after_ms));
            }
            Ok(open.has(how.create_dynamic(&keys, &values)?))
        })
    }
}

/// Closes a handle to a tree. All written data stays; open iterators stay usable.
///
/// After an error the handle stays open: `BRISTLECONE_IN_USE` while a call of another thread on it does not end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_close(tree: *mut TreeHandle) -> c_int {
    close(tree)
}

/// Copies a name into an array of C, truncated if it is too long.
pub fn name_of<const N: usize>(text: &str) -> [c_char; N] {
    let mut name = [0; N];
    for (to, byte) in name[..N - 1].iter_mut().zip(text.bytes()) {
        *to = byte as c_char;
    }
    name
}

/// Writes information about a tree. After an error `*info` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_get_info(tree: *const TreeHandle, info: *mut TreeInfo) -> c_int {
    with(tree, |open| {
        let (tree, values) = (&open.tree, open.value_kind());
        let (stats, keys) = (tree.stats()?, tree.key_kind());
        let known = TreeInfo {
            struct_bytes: 0,
            key_kind: name_of(&keys.to_string()),
            value_kind: name_of(&values.to_string()),
            design: name_of(tree.design().name()),
            key_bytes: size(keys).unwrap_or(ANY_SIZE),
            value_bytes: size(values).unwrap_or(ANY_SIZE),
            items: stats.items,
            leaves: stats.leaves,
            pm_bytes: stats.pm_bytes,
            dram_bytes: stats.dram_bytes,
            expire_after_ms: tree.expire_after().map_or(0, |time| time.as_millis() as u64),
        };
        // SAFETY: as the header says.
        unsafe { fill(info, &known) }
    })
}

/// Counts the items of a tree; exact while no thread writes. After an error `*items` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_len(tree: *const TreeHandle, items: *mut u64) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        unsafe { give(items, tree.tree.len()?) };
        Ok(())
    })
}

/// Verifies everything reachable from a tree, and reports damage. Exact only while no thread writes.
///
/// Returns `BRISTLECONE_FAILED` if there is any. Nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_check(
    tree: *const TreeHandle,
    show: ShowIssue,
    context: *mut c_void,
) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        unsafe { report(&tree.tree.check(), show, context) }
    })
}

/// Reports the damage that reads have found since the tree was opened, without a further check.
///
/// Returns `BRISTLECONE_FAILED` if there is any. Nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_damage(
    tree: *const TreeHandle,
    show: ShowIssue,
    context: *mut c_void,
) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        unsafe { report(&tree.tree.damage(), show, context) }
    })
}

/// Returns a text as a string of C: up to its first zero.
pub fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// Passes issues to the callback; returns `Err` if there are any.
///
/// # Safety
///
/// The function must accept this context.
pub unsafe fn report(issues: &[Issue], show: ShowIssue, context: *mut c_void) -> Outcome {
    if let Some(show) = show {
        for issue in issues {
            let (location, what) = (c_text(&issue.location), c_text(&issue.what));
            // SAFETY: as the caller says.
            unsafe { show(context, location.as_ptr(), what.as_ptr()) };
        }
    }
    match issues {
        [] => Ok(()),
        [first, others @ ..] => {
            let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
            let what = format!("{}: {}{more}", first.location, first.what);
            Err(Failure::Said(BRISTLECONE_FAILED, what))
        }
    }
}
