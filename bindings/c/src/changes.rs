//! The change stream of a pool with a journal, and its cursors.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bristlecone_rs::dynamic::{Datum, Kind};
use bristlecone_rs::{Changed, Changes, JournalChange, JournalChanges, JournalEntry, Stopper, TreeEntry};

use crate::argument::{Versioned, fill, give, text};
use crate::data;
use crate::entry::{close, open};
use crate::exclusive::Exclusive;
use crate::handle::enter;
use crate::object::InPool;
use crate::pool::PoolHandle;
use crate::status::{BRISTLECONE_ABSENT, BRISTLECONE_CORRUPTED, BRISTLECONE_FAILED, Failure, Outcome, call};

/// The durable changes of a pool, in the order of their LSNs. Only one thread may use it at a time; a second one gets
/// `BRISTLECONE_IN_USE`, except from `bristlecone_changes_stop`. It keeps its pool open.
pub struct ChangesHandle(());

/// The object of a stream's handle.
pub type OpenChanges = InPool<Stream>;

/// A key got a value.
pub const BRISTLECONE_CHANGE_PUT: i32 = 1;
/// A key was removed.
pub const BRISTLECONE_CHANGE_REMOVE: i32 = 2;
/// A tree was created. If it was created with items, they follow in the same entry.
pub const BRISTLECONE_CHANGE_CREATE: i32 = 3;
/// A tree was dropped, with all items.
pub const BRISTLECONE_CHANGE_DROP: i32 = 4;
/// A tree was renamed.
pub const BRISTLECONE_CHANGE_RENAME: i32 = 5;
/// All items of a tree were removed.
pub const BRISTLECONE_CHANGE_CLEAR: i32 = 6;
/// A change that this version of the interface does not know.
pub const BRISTLECONE_CHANGE_OTHER: i32 = 7;
/// The durable end of the journal.
pub const BRISTLECONE_DURABLE_END: u64 = u64::MAX;

/// One change of a stream. Begin with `BRISTLECONE_CHANGE_INIT`. Pointers are valid until the next call on the stream.
///
/// The changes of one commit have the same `lsn`, and were applied together; the last of them has `is_last`. An entry is a
/// write, up to 16 writes of a call with several keys, a batch or transaction, or a change of the trees.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Change {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// LSN of the entry.
    pub lsn: u64,
    /// LSN from which a later stream continues behind the entry.
    pub next_lsn: u64,
    /// When the entry was written to the journal: milliseconds since 1970, never less than in an earlier entry.
    pub time_ms: u64,
    /// What happened: one of `BRISTLECONE_CHANGE_…`.
    pub what: i32,
    /// For a put or remove, whether the key was present before: 1, 0, or -1 if the write did not look, the commit is
    /// very long, or its process was killed before the commit was complete. Otherwise -1.
    pub existed: i32,
    /// Whether it is the last change of its entry.
    pub is_last: i32,
    /// Number of the tree, which no other tree had at the same time. Changes with `BRISTLECONE_CHANGE_CLEAR`.
    pub tree_id: u32,
    /// Name of the tree before the change; of a created tree, its name.
    pub tree: *const c_char,
    /// Kind of its keys.
    pub key_kind: *const c_char,
    /// Kind of its values.
    pub value_kind: *const c_char,
    /// The key of a put or remove. It may be null if it has no bytes.
    pub key: *const c_void,
    /// Its length.
    pub key_bytes: usize,
    /// The new value of a put. It may be null if it has no bytes.
    pub value: *const c_void,
    /// Its length.
    pub value_bytes: usize,
    /// New name of a renamed tree; otherwise null.
    pub renamed_to: *const c_char,
    /// New number of a cleared tree; otherwise `tree_id`.
    pub new_tree_id: u32,
}

// SAFETY: numbers and pointers, and its size first.
unsafe impl Versioned for Change {}

/// A cursor of a journal, which `bristlecone_pool_cursors` passes on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Cursor {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// Its name.
    pub name: *const c_char,
    /// Its LSN: entries from here on are kept.
    pub lsn: u64,
    /// Bytes of the files that are kept only for it.
    pub pinned_bytes: u64,
    /// When it was advanced last: milliseconds since 1970.
    pub time_ms: u64,
    /// Whether it held back too much and was dropped: it keeps nothing.
    pub dropped: i32,
}

/// Callback that receives a cursor, which is valid during the call. It may use the library. It must return: neither
/// `longjmp` nor a C++ exception may leave it.
pub type ShowCursor = Option<unsafe extern "C" fn(context: *mut c_void, cursor: *const Cursor)>;

/// A stream, and the change that it showed last.
pub struct Stream {
    stopper: Stopper,
    state: Box<Exclusive<State>>,
}

struct State {
    /// The last entry, and the rest of it.
    entry: Option<JournalEntry>,
    rest: Option<Rest>,
    /// Whether it could not be read to its end.
    has_failed: bool,
    changes: Changes,
    shown: Shown,
}

/// The changes of an entry from the next one on.
struct Rest {
    next: JournalChange,
    behind: JournalChanges,
}

/// What the pointers of a change point to.
#[derive(Default)]
struct Shown {
    change: Option<JournalChange>,
    packed: (Vec<u8>, Vec<u8>),
    tree: Option<ShownTree>,
    renamed_to: CString,
}

/// The tree of the last change: most changes in a row are of the same.
struct ShownTree {
    entry: Arc<TreeEntry>,
    names: [CString; 3],
    /// `None`: this version does not know them, and the library refuses changes of keys.
    kinds: Option<(Kind, Kind)>,
}

/// Returns a name as a string of C. The names of trees and kinds contain no zeros.
fn named(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

impl ShownTree {
    fn new(entry: &Arc<TreeEntry>) -> Self {
        let spec = &entry.spec;
        let names = [&spec.name, &spec.key_kind, &spec.value_kind].map(|name| named(name));
        let kinds = spec.key_kind.parse().ok().zip(spec.value_kind.parse().ok());
        Self { entry: Arc::clone(entry), names, kinds }
    }
}

impl Stream {
    fn new(changes: Changes) -> Self {
        let stopper = changes.stopper();
        let state = State { entry: None, rest: None, has_failed: false, changes, shown: Shown::default() };
        Self { stopper, state: Box::new(Exclusive::new(state)) }
    }
}

impl State {
    /// Advances to the next change.
    fn step(&mut self, time: Duration) -> Outcome<Change> {
        if self.has_failed {
            let lsn = self.entry.as_ref().map_or(0, JournalEntry::lsn);
            let what = format!("the entry at LSN {lsn} could not be read: open another stream there");
            return Err(Failure::Said(BRISTLECONE_FAILED, what));
        }
        if self.rest.is_none() {
            let Some(entry) = self.changes.next_within(time)? else {
                return Err(Failure::Said(BRISTLECONE_ABSENT, "no further change is durable".to_owned()));
            };
            self.entry = Some(entry);
        }
        let shown = self.step_within();
        self.has_failed = shown.is_err();
        shown
    }

    /// Advances to the next change of the entry.
    fn step_within(&mut self) -> Outcome<Change> {
        let entry = self.entry.as_ref().ok_or_else(no_change)?;
        let rest = if let Some(rest) = self.rest.take() { Some(rest) } else { Rest::of(entry.changes()?)? };
        let Rest { next, behind } = rest.ok_or_else(no_change)?;
        self.rest = Rest::of(behind)?;
        let time = entry.time().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut change = self.shown.show(next)?;
        change.lsn = entry.lsn();
        change.next_lsn = entry.next_lsn();
        change.time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        change.is_last = self.rest.is_none().into();
        Ok(change)
    }
}

/// An entry has at least one change.
fn no_change() -> Failure {
    Failure::Said(BRISTLECONE_CORRUPTED, "an entry of the journal without changes".to_owned())
}

impl Rest {
    fn of(mut changes: JournalChanges) -> Outcome<Option<Self>> {
        Ok(changes.next().transpose()?.map(|next| Self { next, behind: changes }))
    }
}

impl Shown {
    /// Keeps a change, and returns it without what its entry says.
    fn show(&mut self, change: JournalChange) -> Outcome<Change> {
        let Self { change: kept, packed, tree: shown_tree, renamed_to } = self;
        let JournalChange { tree, change, .. } = kept.insert(change);
        let same = shown_tree.take().filter(|shown| Arc::ptr_eq(&shown.entry, tree));
        let ShownTree { names, kinds, .. } = shown_tree.insert(same.unwrap_or_else(|| ShownTree::new(tree)));
        packed.0.clear();
        packed.1.clear();
        let (what, existed, key, value) = match &*change {
            Changed::Put { key, value, existed } => {
                (BRISTLECONE_CHANGE_PUT, *existed, Some(key), Some(value))
            }
            Changed::Remove { key, existed } => (BRISTLECONE_CHANGE_REMOVE, *existed, Some(key), None),
            Changed::Create => (BRISTLECONE_CHANGE_CREATE, None, None, None),
            Changed::Drop => (BRISTLECONE_CHANGE_DROP, None, None, None),
            Changed::Rename { to } => {
                *renamed_to = named(to);
                (BRISTLECONE_CHANGE_RENAME, None, None, None)
            }
            Changed::Clear { .. } => (BRISTLECONE_CHANGE_CLEAR, None, None, None),
            _ => (BRISTLECONE_CHANGE_OTHER, None, None, None),
        };
        let (key, key_bytes) = shown(kinds.as_ref().map(|kinds| &kinds.0), key, &mut packed.0)?;
        let (value, value_bytes) = shown(kinds.as_ref().map(|kinds| &kinds.1), value, &mut packed.1)?;
        let is_rename = what == BRISTLECONE_CHANGE_RENAME;
        Ok(Change {
            struct_bytes: 0,
            lsn: 0,
            next_lsn: 0,
            time_ms: 0,
            what,
            existed: existed.map_or(-1, i32::from),
            is_last: 0,
            tree_id: tree.id.0,
            tree: names[0].as_ptr(),
            key_kind: names[1].as_ptr(),
            value_kind: names[2].as_ptr(),
            key,
            key_bytes,
            value,
            value_bytes,
            renamed_to: if is_rename { renamed_to.as_ptr() } else { std::ptr::null() },
            new_tree_id: if let Changed::Clear { id } = &*change { id.0 } else { tree.id.0 },
        })
    }
}

/// Returns the bytes of a key or value of a kind.
fn shown(
    kind: Option<&Kind>,
    datum: Option<&Datum<'_>>,
    packed: &mut Vec<u8>,
) -> Outcome<(*const c_void, usize)> {
    let Some(datum) = datum else { return Ok((std::ptr::null(), 0)) };
    let bytes = data::write(kind.ok_or_else(no_change)?, datum, packed);
    Ok((bytes.as_ptr().cast(), bytes.len()))
}

/// Opens a stream of the durable changes of a pool whose domain is `BRISTLECONE_DOMAIN_JOURNAL`, from an LSN on: 0 for the
/// first one, or the `next_lsn` of a change that was seen before.
///
/// Returns `BRISTLECONE_PRUNED` if a checkpoint has removed the entry at that LSN, and `BRISTLECONE_USAGE` for a pool
/// without a journal, or an LSN behind the durable end. After an error there is no stream, and `*changes` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_changes_open(
    pool: *const PoolHandle,
    from_lsn: u64,
    changes: *mut *mut ChangesHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, changes, |inside| {
            let open = inside.get()?;
            Ok(open.holding(Stream::new(open.pool.changes(from_lsn)?)))
        })
    }
}

/// Opens a stream at a cursor, which `bristlecone_changes_advance` moves. One stream at a time has the cursor.
///
/// Returns `BRISTLECONE_ABSENT` if no cursor has this name, `BRISTLECONE_PRUNED` if it was dropped because it held back
/// too much, and `BRISTLECONE_IN_USE` while another stream has it. After an error there is no stream, and `*changes` is
/// unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_changes_open_cursor(
    pool: *const PoolHandle,
    cursor: *const c_char,
    changes: *mut *mut ChangesHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, changes, |inside| {
            let open = inside.get()?;
            Ok(open.holding(Stream::new(open.pool.changes_of(text("the name of the cursor", cursor)?)?)))
        })
    }
}

/// Writes the next change, for which it waits up to `timeout_ms`; a negative time has no end.
///
/// Returns `BRISTLECONE_ABSENT` if no change became durable in this time, or once the stream was stopped; later calls may
/// find more. Returns `BRISTLECONE_PRUNED` if the next entry is not kept any more. After an error `*change` is unchanged.
/// If an entry could not be read to its end, all later calls return `BRISTLECONE_FAILED`: another stream can be opened at
/// its LSN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_changes_next(
    changes: *const ChangesHandle,
    timeout_ms: i64,
    change: *mut Change,
) -> c_int {
    call(|| {
        let time = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        let inside = enter(changes)?;
        inside.get()?.begun.state.alone(|state| {
            // SAFETY: as the header says. Nothing is taken off the stream for a struct that cannot be written.
            unsafe { expect_struct(change) }?;
            // SAFETY: as above.
            unsafe { fill(change, &state.step(time)?) }
        })
    })
}

/// # Safety
///
/// As [`fill`].
unsafe fn expect_struct(change: *mut Change) -> Outcome {
    // SAFETY: as the caller says.
    let asked = unsafe { crate::argument::size_of_struct(change.cast_const()) }?;
    if asked < std::mem::offset_of!(Change, new_tree_id) {
        return Err(Failure::usage("a struct bristlecone_change that is too short: use its initializer"));
    }
    Ok(())
}

/// Ends the waiting of another thread in `bristlecone_changes_next`, and all later waiting on this stream: entries that
/// were not read yet need another stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_changes_stop(changes: *const ChangesHandle) -> c_int {
    call(|| {
        enter(changes)?.get()?.begun.stopper.stop();
        Ok(())
    })
}

/// Moves the cursor of a stream to an LSN, durably: usually the `next_lsn` of the last change of an entry whose effects are
/// durable. The next stream of the cursor begins there, also after a crash.
///
/// Returns `BRISTLECONE_USAGE` for a stream without a cursor, for an LSN before that of the cursor, and for one behind
/// the entries that the stream has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_changes_advance(changes: *const ChangesHandle, lsn: u64) -> c_int {
    call(|| enter(changes)?.get()?.begun.state.alone(|state| Ok(state.changes.advance(lsn)?)))
}

/// Closes a stream. Its cursor stays. After an error it stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_changes_close(changes: *mut ChangesHandle) -> c_int {
    close(changes)
}

/// Creates a cursor: entries from its LSN on are kept until it is moved or dropped, up to a limit. With
/// `BRISTLECONE_DURABLE_END` it begins behind the last durable entry. Its LSN is written to `*begun`, which may be null.
///
/// A name has 1 to 64 letters, digits, dots, hyphens and underscores. Returns `BRISTLECONE_USAGE` for another name, or one
/// that a cursor has, and `BRISTLECONE_PRUNED` if the entry at the LSN is not kept any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_create_cursor(
    pool: *const PoolHandle,
    name: *const c_char,
    lsn: u64,
    begun: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let name = unsafe { text("the name of the cursor", name) }?;
        let lsn = (lsn != BRISTLECONE_DURABLE_END).then_some(lsn);
        let at = enter(pool)?.get()?.pool.create_cursor(name, lsn)?;
        // SAFETY: as the header says.
        unsafe { give(begun, at) };
        Ok(())
    })
}

/// Removes a cursor, or what is left of one that was dropped. The next checkpoint removes what was kept for it. Returns
/// `BRISTLECONE_ABSENT` if no cursor has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_drop_cursor(pool: *const PoolHandle, name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let name = unsafe { text("the name of the cursor", name) }?;
        Ok(enter(pool)?.get()?.pool.drop_cursor(name)?)
    })
}

fn no_journal() -> Failure {
    Failure::Said(BRISTLECONE_ABSENT, "the pool does not write a journal".to_owned())
}

/// Passes each cursor of the pool's journal to a callback, ordered by name, and each one that was dropped for holding back
/// too much. Returns `BRISTLECONE_ABSENT` for a pool that does not write a journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_cursors(
    pool: *const PoolHandle,
    show: ShowCursor,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let show = show.ok_or_else(|| Failure::usage("the function is null"))?;
        let inside = enter(pool)?;
        let status = inside.get()?.pool.journal_status()?;
        for cursor in status.ok_or_else(no_journal)?.cursors {
            let name = CString::new(cursor.name).unwrap_or_default();
            let time = cursor.time.duration_since(UNIX_EPOCH).unwrap_or_default();
            let passed = Cursor {
                struct_bytes: size_of::<Cursor>(),
                name: name.as_ptr(),
                lsn: cursor.lsn,
                pinned_bytes: cursor.pinned_bytes,
                time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                dropped: cursor.dropped.into(),
            };
            // SAFETY: as the header says.
            unsafe { show(context, &passed) };
        }
        Ok(())
    })
}
