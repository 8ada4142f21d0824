//! Named cursors: a consumer of changes has a file of the folder, and entries from its LSN on are kept.
//!
//! ```text
//! 0     magic; version (4 B), CRC-32C of the other bytes (4 B); the pool's identity, 16 B
//! 32    number of the state, LSN, milliseconds since 1970
//! 4096  another state of the same form: the one with the greater number counts
//! ```
//!
//! # Advance
//!
//! 1. The new state replaces the older one. *A crash leaves either state.*
//! 2. The file is synced.
//!
//! # Create
//!
//! 1. A file gets a state, is synced, and then gets its name, unless another one has it. The folder is synced.
//! 2. The manifest is read. If it keeps entries from a later LSN only, the file is removed: it came too late.
//!
//! # Checkpoint
//!
//! 1. The cursors are listed and synced. *An advance that this thread sees survives.* One that holds back too much is
//!    renamed, so that its consumer finds out.
//! 2. A new manifest says from which LSN on entries are kept.
//! 3. The cursors are listed again: a consumer that the first list missed sees that manifest, or this thread sees its
//!    file.
//! 4. Another manifest leaves out the segments before. *A crash before: the next checkpoint does.*

use std::sync::Arc;
use std::time::SystemTime;

use bristlecone_pm::{Error, Result, Storage, StoredFile};

use super::clock;
use super::manifest::read_manifest;
use super::mutation::{Mutation, is_mutated};
use super::segment::PAGE_BYTES;

/// What the names of files begin with.
pub const PREFIX: &str = "cursor-";
/// What the names of the files of cursors begin with that were dropped for holding back too much.
pub const DROPPED: &str = "dropped-";
const NEW: &str = ".new";
const MAGIC: u64 = u64::from_le_bytes(*b"BRISTCUR");
const VERSION: u64 = 1;
const WORDS: usize = 7;
/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 64;

/// A named cursor of a journal: see [`Pool::create_cursor`](crate::Pool::create_cursor).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalCursor {
    /// Its name.
    pub name: String,
    /// Its LSN: entries from here on are kept.
    pub lsn: u64,
    /// Bytes of the files that are kept for it, and not for the last checkpoint.
    pub pinned_bytes: u64,
    /// When it was advanced last, by the clock of the machine.
    pub time: SystemTime,
    /// Whether it held back too much, and was dropped: it keeps nothing.
    pub dropped: bool,
}

/// What the file of a cursor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    number: u64,
    lsn: u64,
    time: u64,
}

impl State {
    fn encode(&self, uuid: u128) -> Vec<u8> {
        let State { number, lsn, time } = *self;
        let mut words: [u64; WORDS] = [MAGIC, VERSION, uuid as u64, (uuid >> 64) as u64, number, lsn, time];
        words[1] |= u64::from(crc32c::crc32c(words.map(u64::to_le_bytes).as_flattened())) << 32;
        words.map(u64::to_le_bytes).concat()
    }

    fn decode(bytes: &[u8], uuid: u128) -> Option<Self> {
        let word = |at: usize| bytes.get(8 * at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
        let state = Self { number: word(4)?, lsn: word(5)?, time: word(6)? };
        (bytes.get(..WORDS * 8)? == state.encode(uuid)).then_some(state)
    }

    fn read(file: &dyn StoredFile, uuid: u128) -> Result<Option<Self>> {
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        file.read(0, &mut bytes)?;
        let states = bytes.chunks(PAGE_BYTES).filter_map(|bytes| Self::decode(bytes, uuid));
        Ok(states.max_by_key(|state| state.number))
    }

    fn write(&self, file: &dyn StoredFile, uuid: u128) -> Result<()> {
        file.write(self.number % 2 * PAGE_BYTES as u64, &self.encode(uuid))?;
        if is_mutated(Mutation::CursorUnsynced) { Ok(()) } else { file.sync() }
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_right = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_usual);
    if is_right && !name.ends_with(NEW) {
        return Ok(());
    }
    let what = "a cursor's name has 1 to 64 letters, digits, dots, hyphens and underscores, and does not end in .new";
    Err(Error::invalid(format!("{name:?} cannot name a cursor: {what}")))
}

fn file_of(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Creates a cursor at an LSN.
///
/// # Errors
///
/// [`Error::Invalid`] for a name that cannot be, or that a cursor has; [`Error::Pruned`]; errors of the system.
pub fn create(storage: &dyn Storage, name: &str, lsn: u64) -> Result<()> {
    check_name(name)?;
    let uuid = read_manifest(storage)?.uuid;
    let (own, new) = (file_of(name), format!("{PREFIX}{name}{NEW}"));
    let state = State { number: 0, lsn, time: clock::now() };
    let file = storage.create(&new, 0)?;
    file.write(0, &vec![0; 2 * PAGE_BYTES])?;
    state.write(&*file, uuid)?;
    if let Some(old) = storage.open(&own)?
        && State::read(&*old, uuid)?.is_none()
    {
        // That of another pool, which had this folder before.
        storage.remove(&own)?;
    }
    if !storage.rename_new(&new, &own)? {
        storage.remove(&new)?;
        return Err(Error::invalid(format!("a cursor named {name:?} exists already")));
    }
    storage.remove(&format!("{DROPPED}{name}"))?;
    storage.sync()?;
    let oldest = read_manifest(storage)?.kept;
    if lsn < oldest && !is_mutated(Mutation::CursorUnchecked) {
        storage.remove(&own)?;
        storage.sync()?;
        return Err(Error::Pruned { oldest });
    }
    Ok(())
}

/// Removes a cursor, or what is left of a dropped one.
///
/// # Errors
///
/// [`Error::NoSuchCursor`], and errors of the system.
pub fn remove(storage: &dyn Storage, name: &str) -> Result<()> {
    check_name(name)?;
    let files = [file_of(name), format!("{DROPPED}{name}")];
    let all = storage.list()?;
    if !files.iter().any(|file| all.contains(file)) {
        return Err(Error::NoSuchCursor { name: name.to_owned() });
    }
    files.iter().try_for_each(|file| storage.remove(file))?;
    storage.sync()
}

/// Returns the cursors, with those that were dropped; a file that is none is left out.
fn states(storage: &dyn Storage, uuid: u128, sync: bool) -> Result<Vec<(String, State, bool)>> {
    let mut states = Vec::new();
    for file_name in storage.list()? {
        let (name, dropped) = match (file_name.strip_prefix(PREFIX), file_name.strip_prefix(DROPPED)) {
            (Some(name), _) => (name, false),
            (_, Some(name)) => (name, true),
            _ => continue,
        };
        let Some(file) = (!name.ends_with(NEW)).then(|| storage.open(&file_name)).transpose()?.flatten()
        else {
            continue;
        };
        let state = State::read(&*file, uuid)?;
        if sync && !dropped && !is_mutated(Mutation::CursorsUnsynced) {
            // What was read survives, now.
            file.sync()?;
        }
        states.extend(state.map(|state| (name.to_owned(), state, dropped)));
    }
    states.sort_by(|one, next| one.0.cmp(&next.0));
    Ok(states)
}

/// Returns the cursors of a journal whose segments have `segment_bytes`.
///
/// # Errors
///
/// [`Error::Corrupted`], and errors of the system.
pub fn list(storage: &dyn Storage, segment_bytes: u64) -> Result<Vec<JournalCursor>> {
    let manifest = read_manifest(storage)?;
    let cursor = |(name, State { lsn, time, .. }, dropped): (String, State, bool)| JournalCursor {
        name,
        lsn,
        pinned_bytes: if dropped { 0 } else { manifest.segments_pinned(lsn) * segment_bytes },
        time: clock::at(time),
        dropped,
    };
    Ok(states(storage, manifest.uuid, false)?.into_iter().map(cursor).collect())
}

/// Returns the LSN from which on cursors need entries: at most `least`. What was read of them survives.
///
/// # Errors
///
/// Errors of the system.
pub fn needed(storage: &dyn Storage, uuid: u128, least: u64) -> Result<u64> {
    let own = states(storage, uuid, true)?.into_iter().filter(|(_, _, dropped)| !dropped);
    Ok(own.map(|(_, state, _)| state.lsn).fold(least, u64::min))
}

/// Drops cursors before an LSN, so that their consumers find out.
///
/// # Errors
///
/// Errors of the system.
pub fn drop_before(storage: &dyn Storage, uuid: u128, lsn: u64) -> Result<()> {
    for (name, state, dropped) in states(storage, uuid, false)? {
        if !dropped && state.lsn < lsn {
            trace_dropped(&name);
            storage.rename(&file_of(&name), &format!("{DROPPED}{name}"))?;
        }
    }
    Ok(())
}

fn trace_dropped(name: &str) {
    bristlecone_pm::trace_span("a cursor held back too much of the journal, and is dropped", name, || ());
}

/// The cursor of a consumer.
pub struct Cursor {
    storage: Arc<dyn Storage>,
    /// Locked, so that no other consumer has it.
    file: Arc<dyn StoredFile>,
    uuid: u128,
    name: String,
    state: State,
}

impl Cursor {
    /// Takes a cursor for this consumer alone.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchCursor`]; [`Error::CursorDropped`]; [`Error::InUse`] while another consumer has it; errors of the
    /// system.
    pub fn open(storage: &Arc<dyn Storage>, uuid: u128, name: &str) -> Result<Self> {
        check_name(name)?;
        let none = || Error::NoSuchCursor { name: name.to_owned() };
        let Some(file) = storage.open(&file_of(name))? else {
            return Err(dropped(&**storage, uuid, name)?.unwrap_or_else(none));
        };
        file.lock()?;
        let state = State::read(&*file, uuid)?.ok_or_else(none)?;
        Ok(Self { storage: Arc::clone(storage), file, uuid, name: name.to_owned(), state })
    }

    pub fn lsn(&self) -> u64 {
        self.state.lsn
    }

    /// Moves it to an LSN, durably: entries before are not kept for it any more.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an LSN before its own; [`Error::CursorDropped`]; errors of the system.
    pub fn advance(&mut self, lsn: u64) -> Result<()> {
        if lsn < self.state.lsn {
            let own = self.state.lsn;
            return Err(Error::invalid(format!("the cursor is at LSN {own}: it cannot move back to {lsn}")));
        }
        self.expect()?;
        let next = State { number: self.state.number + 1, lsn, time: clock::now() };
        next.write(&*self.file, self.uuid)?;
        self.state = next;
        Ok(())
    }

    /// Returns an error if it was dropped.
    ///
    /// # Errors
    ///
    /// [`Error::CursorDropped`]; [`Error::NoSuchCursor`] if another process removed it; errors of the system.
    pub fn expect(&self) -> Result<()> {
        // A cursor of this name that was created since is another one.
        if let Some(file) = self.storage.open(&file_of(&self.name))?
            && State::read(&*file, self.uuid)? == Some(self.state)
        {
            return Ok(());
        }
        let error = dropped(&*self.storage, self.uuid, &self.name)?;
        Err(error.unwrap_or_else(|| Error::NoSuchCursor { name: self.name.clone() }))
    }
}

/// Returns the error of a cursor that was dropped for holding back too much.
fn dropped(storage: &dyn Storage, uuid: u128, name: &str) -> Result<Option<Error>> {
    let Some(file) = storage.open(&format!("{DROPPED}{name}"))? else { return Ok(None) };
    let lsn = State::read(&*file, uuid)?.map_or(0, |state| state.lsn);
    Ok(Some(Error::CursorDropped { name: name.to_owned(), lsn }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_golden_and_damage_is_noticed() {
        let state = State { number: 3, lsn: 80, time: 9 };
        let bytes = state.encode(7);
        assert_eq!(State::decode(&bytes, 7), Some(state));
        assert_eq!(State::decode(&bytes, 8), None, "another pool's");
        assert_eq!((&bytes[..8], bytes.len()), (&b"BRISTCUR"[..], 56));
        assert_eq!(crc32c::crc32c(&bytes), 1_172_929_792, "the bytes changed: a new version is needed");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(State::decode(&damaged, 7), None, "byte {at}");
            assert_eq!(State::decode(&bytes[..at], 7), None);
        }
    }

    #[test]
    fn names_of_cursors_are_names_of_files() {
        for name in ["a", "audit-log.2_x", &"x".repeat(64)] {
            check_name(name).unwrap();
        }
        for name in ["", "a/b", "a b", "ä", "x.new", "..\0", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
