//! Trees: opening, creating, closing, and what there is to know about them.

use std::ffi::{CString, c_char, c_int, c_void};

use bristlecone_rs::dynamic::Kind;
use bristlecone_rs::{Design, Error, Finding, dynamic};

use crate::argument::{Versioned, array, fill, give, optional_text, options, text};
use crate::data::size;
use crate::entry::{close, open, with};
use crate::object::OpenPool;
use crate::pool::PoolHandle;
use crate::status::{BRISTLECONE_FAILED, Failure, Outcome};

/// A tree in a pool: an ordered map, for any number of threads. Every write of one key is atomic, and durable when it
/// returns `BRISTLECONE_OK`; readers see only what is durable.
pub struct TreeHandle(());

/// How often something is looked at that others change meanwhile.
const LOOKS: usize = 8;

/// An option of a design, which a tree is created with and keeps.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DesignOption {
    /// Its name: docs/designs/ has them.
    pub name: *const c_char,
    /// Its value.
    pub value: u64,
}

/// How a tree is created. Begin with `BRISTLECONE_TREE_OPTIONS_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TreeOptions {
    /// The bytes of this struct.
    pub struct_bytes: usize,
    /// The design: "sstree" (also if null), "nbtree", "cclbtree", "lodgetree" or "wotree".
    pub design: *const c_char,
    /// Options of the design; those that are left out have their defaults.
    pub options: *const DesignOption,
    /// How many.
    pub option_count: usize,
}

// SAFETY: numbers and pointers, and its size first.
unsafe impl Versioned for TreeOptions {}

/// Bytes of a kind's name, with the zero at its end.
pub const BRISTLECONE_KIND_BYTES: usize = 64;

/// The size of a key or value of a kind that has no fixed one: the header has it.
const ANY_SIZE: usize = usize::MAX;

/// What is known about a tree. Begin with `BRISTLECONE_TREE_INFO_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TreeInfo {
    /// The bytes of this struct.
    pub struct_bytes: usize,
    /// The kind of the keys.
    pub key_kind: [c_char; BRISTLECONE_KIND_BYTES],
    /// The kind of the values.
    pub value_kind: [c_char; BRISTLECONE_KIND_BYTES],
    /// The design.
    pub design: [c_char; BRISTLECONE_KIND_BYTES],
    /// Bytes of every key, or `BRISTLECONE_ANY_SIZE`.
    pub key_bytes: usize,
    /// Bytes of every value, or `BRISTLECONE_ANY_SIZE`.
    pub value_bytes: usize,
    /// Items; exact while no thread writes.
    pub items: u64,
    /// Leaves.
    pub leaves: u64,
    /// Bytes of the pool: whole chunks.
    pub pm_bytes: u64,
    /// Bytes of DRAM.
    pub dram_bytes: u64,
}

// SAFETY: numbers, and its size first.
unsafe impl Versioned for TreeInfo {}

/// Is shown something that a check found: where, and what. Both strings live as long as the call. What holds of
/// `bristlecone_show` holds of it. May be null.
pub type ShowFinding =
    Option<unsafe extern "C" fn(context: *mut c_void, location: *const c_char, what: *const c_char)>;

/// Returns the kinds of keys and of values by their names.
///
/// # Safety
///
/// The pointers are null, or lead to strings.
unsafe fn kinds(keys: *const c_char, values: *const c_char) -> Outcome<(Kind, Kind)> {
    // SAFETY: as the caller says.
    let (keys, values) =
        unsafe { (text("the kind of the keys", keys)?, text("the kind of the values", values)?) };
    Ok((keys.parse()?, values.parse()?))
}

/// Opens the tree of this name with keys and values of these kinds, or creates it, with the default design.
///
/// Kinds are "u64", "str", "bytes", …: the table at the head of this header has them all. A tree of other kinds is
/// `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is as it was; if the tree was to be created it
/// is there wholly or not at all.
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
            // Another thread was faster: its tree is opened.
            Err(Error::TreeExists { .. }) => {}
            // As long as there is no such tree, a reader has none.
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

/// Opens the tree of this name, whatever its kinds are: `bristlecone_tree_get_info` tells. There may be several handles to a
/// tree; each has to be closed.
///
/// Returns `BRISTLECONE_ABSENT` if there is none. After an error there is no handle, and `*tree` is as it was.
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

/// Creates a tree with keys and values of these kinds, of a design and with its options; null is the defaults.
///
/// A tree that exists is `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is as it was; the tree
/// is there wholly or not at all.
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
            Ok(open.has(how.create_dynamic(&keys, &values)?))
        })
    }
}

/// Closes a handle to a tree. Everything that was written stays; iterators that are open go on.
///
/// After an error the handle is open as before: `BRISTLECONE_IN_USE` while a call of another thread on it does not end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_close(tree: *mut TreeHandle) -> c_int {
    close(tree)
}

/// Copies a name into an array of C, cut if it is too long.
pub fn name_of<const N: usize>(text: &str) -> [c_char; N] {
    let mut name = [0; N];
    for (to, byte) in name[..N - 1].iter_mut().zip(text.bytes()) {
        *to = byte as c_char;
    }
    name
}

/// Writes what is known about a tree. After an error `*info` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_get_info(tree: *const TreeHandle, info: *mut TreeInfo) -> c_int {
    with(tree, |tree| {
        let (stats, keys, values) = (tree.stats(), tree.key_kind(), tree.value_kind());
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
        };
        // SAFETY: as the header says.
        unsafe { fill(info, &known) }
    })
}

/// Counts the items of a tree; exact while no thread writes. After an error `*items` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_len(tree: *const TreeHandle, items: *mut u64) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        unsafe { give(items, tree.len()) };
        Ok(())
    })
}

/// Verifies everything that a tree reaches, and shows what is wrong. Exact only while no thread writes.
///
/// Returns `BRISTLECONE_FAILED` if anything is. Nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_check(
    tree: *const TreeHandle,
    show: ShowFinding,
    context: *mut c_void,
) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        unsafe { report(&tree.check(), show, context) }
    })
}

/// Shows what reads came across that is wrong since the tree was opened, without looking for more.
///
/// Returns `BRISTLECONE_FAILED` if there is anything. Nothing is changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_damage(
    tree: *const TreeHandle,
    show: ShowFinding,
    context: *mut c_void,
) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        unsafe { report(&tree.damage(), show, context) }
    })
}

/// Returns a text as C has it: up to its first zero.
pub fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// Shows findings; `Err` if there are any.
///
/// # Safety
///
/// The function takes this context.
pub unsafe fn report(findings: &[Finding], show: ShowFinding, context: *mut c_void) -> Outcome {
    if let Some(show) = show {
        for finding in findings {
            let (location, what) = (c_text(&finding.location), c_text(&finding.what));
            // SAFETY: as the caller says.
            unsafe { show(context, location.as_ptr(), what.as_ptr()) };
        }
    }
    match findings {
        [] => Ok(()),
        [first, others @ ..] => {
            let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
            let what = format!("{}: {}{more}", first.location, first.what);
            Err(Failure::Said(BRISTLECONE_FAILED, what))
        }
    }
}
