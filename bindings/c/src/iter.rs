//! Iterators over a tree, from both ends.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bristlecone_rs::dynamic::{self, Datum, Dynamic, Kind};
use bristlecone_rs::{Range, Snapshot, SnapshotRange};

use crate::argument::{expect_array, give};
use crate::data::{self, KEY};
use crate::entry::{close, open};
use crate::exclusive::Exclusive;
use crate::handle::enter;
use crate::object::OpenTree;
use crate::range::{KeyRange, bounds};
use crate::read::there;
use crate::snapshot::OpenSnapshot;
use crate::status::{BRISTLECONE_ABSENT, Failure, Outcome, call};
use crate::tree::TreeHandle;

/// An iterator over the items of a tree, in key order, from both ends: each item is returned by one end only. It may be
/// used while threads write, holds no lock, and returns every key that exists throughout the iteration.
///
/// Only one thread may use it at a time; a second one gets `BRISTLECONE_IN_USE`. It keeps its tree and its pool open.
pub struct IterHandle(());

/// The object of an iterator handle.
pub struct Iter {
    state: Box<Exclusive<State>>,
    pub tree: dynamic::Tree,
    /// The kind of the values that it returns.
    values: Kind,
    _member: Arc<()>,
}

/// The owners that items borrow from.
#[derive(Default)]
struct Lent {
    _tree: Option<Box<dynamic::Tree>>,
    _live: Option<Box<dynamic::ExpiringTree>>,
    _snapshot: Option<Arc<Snapshot>>,
}

/// The mutable state of an iterator. Items are dropped before the trees that they borrow.
struct State {
    items: Items,
    /// The last item, and its bytes that are not stored in it.
    shown: Option<dynamic::Item>,
    packed: (Vec<u8>, Vec<u8>),
    words: (u64, u64),
    _lent: Lent,
}

enum Items {
    Words(Box<Range<'static, u64, u64>>),
    Any(dynamic::Range<'static>),
    Live(dynamic::ExpiringRange<'static>),
    Then(Box<SnapshotRange<'static, Dynamic, Dynamic>>),
}

/// An end of an iterator.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl End {
    fn next<I: DoubleEndedIterator>(self, items: &mut I) -> Option<I::Item> {
        match self {
            Self::Front => items.next(),
            Self::Back => items.next_back(),
        }
    }
}

/// Extends a reference to the lifetime of its target, beyond the borrow of its holder.
///
/// # Safety
///
/// The target must not move, and must be dropped after the last use of the result.
unsafe fn extend<T>(held: &T) -> &'static T {
    // SAFETY: as the caller says.
    unsafe { &*std::ptr::from_ref(held) }
}

impl Iter {
    /// # Safety
    ///
    /// As [`bounds`].
    unsafe fn new(open: &OpenTree, range: *const KeyRange) -> Outcome<Self> {
        // SAFETY: as the caller says.
        let bounds = unsafe { bounds(open.tree.key_kind(), range) }?;
        Self::within(open, &open.tree.bounds(bounds.keys())?)
    }

    /// Returns an iterator over the items within bounds, live ones if the handle shows only these.
    fn within(open: &OpenTree, bounds: &dynamic::Bounds) -> Outcome<Self> {
        if let Some(live) = &open.live {
            let live = live.clone();
            // SAFETY: in a box, which `State` drops after its items; the results of these do not borrow.
            let items = Items::Live(unsafe { extend(&*live) }.range_within(bounds));
            return Ok(Self::of(open, items, Lent { _live: Some(live), ..Lent::default() }));
        }
        let tree = Box::new(open.tree.clone());
        // SAFETY: in a box, which `State` drops after its items; the results of these do not borrow.
        let lent = unsafe { extend(&*tree) };
        let items = match lent.words_within(bounds)? {
            Some(words) => Items::Words(Box::new(words)),
            None => Items::Any(lent.range_within(bounds)),
        };
        Ok(Self::of(open, items, Lent { _tree: Some(tree), ..Lent::default() }))
    }

    /// Returns an iterator over the keys with a prefix.
    fn of_prefix(open: &OpenTree, prefix: &Datum<'_>) -> Outcome<Self> {
        Self::within(open, &open.tree.prefix_bounds(prefix)?)
    }

    /// Returns an iterator over the items of a snapshot.
    ///
    /// # Safety
    ///
    /// As [`bounds`].
    pub unsafe fn of_snapshot(open: &OpenTree, then: &OpenSnapshot, range: *const KeyRange) -> Outcome<Self> {
        // SAFETY: as the caller says.
        let bounds = unsafe { bounds(open.tree.key_kind(), range) }?;
        let (tree, snapshot) = (Box::new(open.tree.clone()), Arc::clone(&then.begun));
        // SAFETY: in a box and an `Arc`, which `State` drops after its items; the results of these do not borrow.
        let (of_tree, of_snapshot) = unsafe { (extend(&*tree), extend(&*snapshot)) };
        let items = Items::Then(Box::new(of_snapshot.tree(of_tree).range(bounds.keys())));
        let lent = Lent { _tree: Some(tree), _snapshot: Some(snapshot), ..Lent::default() };
        Ok(Self::of(open, items, lent))
    }

    fn of(open: &OpenTree, items: Items, _lent: Lent) -> Self {
        let (shown, packed, words) = (None, Default::default(), (0, 0));
        let state = Box::new(Exclusive::new(State { items, shown, packed, words, _lent }));
        Self {
            state,
            tree: open.tree.clone(),
            values: open.value_kind().clone(),
            _member: Arc::clone(&open.member),
        }
    }

    /// Calls `work` with the state, unless another thread uses it.
    #[inline(always)]
    fn alone(&self, work: impl FnOnce(&mut State, (&Kind, &Kind)) -> Outcome) -> Outcome {
        self.state.alone(|state| work(state, (self.tree.key_kind(), &self.values)))
    }
}

impl State {
    /// Advances to an item of words.
    #[inline(always)]
    fn step_words(&mut self, end: End) -> Outcome<(u64, u64)> {
        let item = match &mut self.items {
            Items::Words(items) => end.next(&mut **items).transpose()?,
            Items::Any(items) => end.next(items).transpose()?.map(words_of).transpose()?,
            Items::Live(items) => end.next(items).transpose()?.map(words_of).transpose()?,
            Items::Then(items) => end.next(&mut **items).transpose()?.map(words_of).transpose()?,
        };
        there(item)
    }

    /// Advances; returns the bytes of the key and of the value.
    fn step(&mut self, end: End, kinds: (&Kind, &Kind)) -> Outcome<(&[u8], &[u8])> {
        if let Items::Words(items) = &mut self.items {
            self.words = there(end.next(&mut **items).transpose()?)?;
            return Ok((as_bytes(&self.words.0), as_bytes(&self.words.1)));
        }
        let item = match &mut self.items {
            Items::Words(_) => None,
            Items::Any(items) => end.next(items).transpose()?,
            Items::Live(items) => end.next(items).transpose()?,
            Items::Then(items) => end.next(&mut **items).transpose()?,
        };
        let (key, value) = self.shown.insert(there(item)?);
        self.packed.0.clear();
        self.packed.1.clear();
        Ok((data::write(kinds.0, key, &mut self.packed.0), data::write(kinds.1, value, &mut self.packed.1)))
    }
}

fn words_of(item: dynamic::Item) -> Outcome<(u64, u64)> {
    match item {
        (Datum::U64(key), Datum::U64(value)) => Ok((key, value)),
        _ => Err(Failure::usage("the tree's keys and values are not u64")),
    }
}

fn as_bytes(word: &u64) -> &[u8] {
    // SAFETY: the bytes of a live word.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(word).cast(), size_of::<u64>()) }
}

/// Opens an iterator over the keys of a range; null means all keys. A reversed range is empty.
///
/// After an error there is no iterator, and `*iter` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_open(
    tree: *const TreeHandle,
    range: *const KeyRange,
    iter: *mut *mut IterHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { open(tree, iter, |inside| Iter::new(inside.get()?, range)) }
}

/// Opens an iterator over the keys with a prefix, of a tree whose keys are "str", "bytes" or arrays; others return
/// `BRISTLECONE_USAGE`.
///
/// After an error there is no iterator, and `*iter` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_open_prefix(
    tree: *const TreeHandle,
    prefix: *const c_void,
    prefix_bytes: usize,
    iter: *mut *mut IterHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(tree, iter, |inside| {
            let open = inside.get()?;
            Iter::of_prefix(open, &KEY.passed(open.tree.key_kind(), (prefix, prefix_bytes))?)
        })
    }
}

/// Closes an iterator. After an error it stays open: `BRISTLECONE_IN_USE` while another thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_close(iter: *mut IterHandle) -> c_int {
    close(iter)
}

/// # Safety
///
/// The pointers must be null, or writable.
unsafe fn step(
    iter: *const IterHandle,
    end: End,
    to: [*mut *const c_void; 2],
    bytes: [*mut usize; 2],
) -> c_int {
    call(|| {
        let inside = enter(iter)?;
        inside.get()?.alone(|state, kinds| {
            let (key, value) = state.step(end, kinds)?;
            // SAFETY: as the caller says.
            unsafe {
                give(to[0], key.as_ptr().cast());
                give(bytes[0], key.len());
                give(to[1], value.as_ptr().cast());
                give(bytes[1], value.len());
            }
            Ok(())
        })
    })
}

/// Advances to the next item from the front. The iterator owns its bytes, which are valid until the next call on it.
/// Any of the four pointers may be null.
///
/// Returns `BRISTLECONE_ABSENT` at the end, and again after that; nothing is written then. Any
/// other error ends the iteration: `BRISTLECONE_CORRUPTED` at a damaged item, `BRISTLECONE_NO_WRITER` if the writer of a
/// followed pool has exited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_next(
    iter: *const IterHandle,
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { step(iter, End::Front, [key, value], [key_bytes, value_bytes]) }
}

/// Advances to the next item from the back; otherwise like `bristlecone_iter_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_next_back(
    iter: *const IterHandle,
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { step(iter, End::Back, [key, value], [key_bytes, value_bytes]) }
}

/// # Safety
///
/// The pointers must be null, or writable for `capacity` elements.
unsafe fn step_u64(
    iter: *const IterHandle,
    end: End,
    (keys, values): (*mut u64, *mut u64),
    capacity: usize,
    count: *mut usize,
) -> c_int {
    call(|| {
        expect_array("keys", keys, capacity)?;
        expect_array("values", values, capacity)?;
        let inside = enter(iter)?;
        inside.get()?.alone(|state, _| {
            let mut done = 0;
            let ended = loop {
                if done == capacity {
                    break Ok(());
                }
                match state.step_words(end) {
                    // SAFETY: within the arrays, as the caller says.
                    Ok((key, value)) => unsafe {
                        keys.add(done).write(key);
                        values.add(done).write(value);
                    },
                    Err(Failure::Plain(BRISTLECONE_ABSENT)) if done > 0 => break Ok(()),
                    Err(failure) => break Err(failure),
                }
                done += 1;
            };
            // SAFETY: as the caller says.
            unsafe { give(count, done) };
            ended
        })
    })
}

/// Advances to the next items from the front of a tree of `u64` keys and values, up to `capacity` of them. `*count` is
/// the number of `keys` and `values` written: fewer only at the end.
///
/// Returns `BRISTLECONE_ABSENT`, and a count of 0, at the end. After any error `*count` items were written, and they
/// are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_next_u64(
    iter: *const IterHandle,
    keys: *mut u64,
    values: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { step_u64(iter, End::Front, (keys, values), capacity, count) }
}

/// Advances to the next items from the back, in descending order; otherwise like `bristlecone_iter_next_u64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_iter_next_back_u64(
    iter: *const IterHandle,
    keys: *mut u64,
    values: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { step_u64(iter, End::Back, (keys, values), capacity, count) }
}
