//! The log of a node in a pool: entries by index, the vote, and what else a node keeps for itself.
//!
//! ```text
//! log.pool   entries   u64 -> bytes          a byte 0 and an encoded entry, or a byte 1, its length and its first part
//!            parts     (u64, u32) -> bytes   the parts behind the first one of entries that are longer than a value
//!            meta      str -> bytes          vote, committed, purged, generation
//! ```
//!
//! 1. Append writes entries in ascending order, the parts of each before its head. *A crash leaves the first entries.*
//! 2. Truncate removes entries in descending order. *A crash leaves the first entries, and no hole.*
//! 3. Purge writes the last purged id, then removes entries in ascending order. *After a crash, entries up to that id
//!    may remain: no reader sees them, and the next opening removes them.* Both happen only once the state machine
//!    durably contains the entries; until then the purge holds for readers alone.
//!
//! In the domain `journal`, what a power failure leaves is a state that a kill could have left earlier: a prefix of the
//! writes. Only appended entries and votes are waited for. A truncate or purge that is undone by a power failure is as
//! one that was not called yet, since the entries that follow it in the journal are undone, too.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bristlecone::{Error, Pool, Result, Ticket, Tree, VALUE_BYTES_MAX};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::Options;
use crate::codec::{decode, encode};

const WHOLE: u8 = 0;
const SPLIT: u8 = 1;
/// Bytes before the first part of a long entry: the kind, and the length.
const HEAD_BYTES: usize = 9;

/// Names of what is stored beside the entries.
pub mod names {
    pub const VOTE: &str = "vote";
    pub const COMMITTED: &str = "committed";
    pub const PURGED: &str = "purged";
    pub const GENERATION: &str = "generation";
}

/// The id of a purged entry: its index, and the encoded id, whose type only openraft knows.
type Purged = (u64, Vec<u8>);

/// Makes a state machine durable; returns whether it contains the entry of an index.
type Covers = Box<dyn Fn(u64) -> Result<bool> + Send + Sync>;

/// A purge of entries that the state machine does not contain yet.
///
/// openraft purges the entries that a received snapshot contains before it is installed. Entries that are removed then
/// would be missing after a kill, which leaves the old state machine. So readers do not see them, and they are removed
/// behind the installation.
#[derive(Debug)]
enum Deferred {
    None,
    Until(Purged),
    /// The installation failed, and openraft stops.
    Failed,
}

/// The pool of a log.
pub struct Log {
    pub pool: Pool,
    covers: OnceLock<Covers>,
    deferred: watch::Sender<Deferred>,
    /// Held while a purge is decided on.
    purging: Mutex<()>,
    entries: Tree<u64, &'static [u8]>,
    parts: Tree<(u64, u32), &'static [u8]>,
    meta: Tree<&'static str, &'static [u8]>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("pool", &self.pool)
            .field("deferred", &self.deferred)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Opens or creates the log in a pool.
    pub fn open(pool: Pool, options: &Options) -> Result<Self> {
        // The last one to be created.
        let is_new = pool.trees()?.iter().all(|tree| tree.spec.name != "meta");
        let log = Self {
            entries: options.tree(&pool, "entries", is_new)?,
            parts: options.tree(&pool, "parts", is_new)?,
            meta: options.tree(&pool, "meta", is_new)?,
            pool: pool.clone(),
            covers: OnceLock::new(),
            deferred: watch::Sender::new(Deferred::None),
            purging: Mutex::new(()),
        };
        log.finish_purge()?;
        log.expect_no_hole()?;
        Ok(log)
    }

    fn finish_purge(&self) -> Result<()> {
        if let Some(purged) = self.purged_index()? {
            self.remove_up_to(purged)?;
        }
        // Parts of an entry whose head was not written.
        match self.last_index()? {
            Some(last) => self.parts.remove_range((Bound::Excluded((last, u32::MAX)), Bound::Unbounded)),
            None => self.parts.remove_range(..),
        }
        .map(drop)
    }

    fn expect_no_hole(&self) -> Result<()> {
        let first = self.entries.keys().next().transpose()?;
        let (Some(first), Some(last)) = (first, self.last_index()?) else { return Ok(()) };
        let count = self.entries.len()?;
        if count == last - first + 1 {
            return Ok(());
        }
        let what = format!("{count} entries of {}", last - first + 1);
        Err(Error::corrupted(what, format!("log entries {first} to {last}")))
    }

    /// Returns whether nothing was ever stored.
    pub fn is_unused(&self) -> Result<bool> {
        Ok(self.meta.is_empty()? && self.entries.is_empty()?)
    }

    /// Returns a value by name.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let found = self.meta.get(name)?;
        found.map(|bytes| decode(&bytes, format!("{name:?} of the log"))).transpose()
    }

    /// Writes a value by name; the ticket tells when it is durable.
    pub fn write<T: Serialize>(&self, name: &'static str, value: &T) -> Result<Ticket> {
        let bytes = encode(value)?;
        Ok(self.pool.with_ticket(|| self.meta.upsert(name, &bytes))?.1)
    }

    /// Removes a value by name.
    pub fn erase(&self, name: &'static str) -> Result<Ticket> {
        Ok(self.pool.with_ticket(|| self.meta.remove(name))?.1)
    }

    fn last_purged(&self) -> Result<Option<Purged>> {
        match &*self.deferred.borrow() {
            Deferred::Until(purged) => Ok(Some(purged.clone())),
            Deferred::None | Deferred::Failed => self.read(names::PURGED),
        }
    }

    fn purged_index(&self) -> Result<Option<u64>> {
        Ok(self.last_purged()?.map(|(index, _)| index))
    }

    /// Returns the id of the last purged entry.
    pub fn purged<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let found = self.last_purged()?;
        found.map(|(_, id)| decode(&id, "the last purged id")).transpose()
    }

    fn last_index(&self) -> Result<Option<u64>> {
        self.entries.keys().next_back().transpose()
    }

    /// Returns the last entry that is not purged.
    pub fn last<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let (Some(last), purged) = (self.last_index()?, self.purged_index()?) else { return Ok(None) };
        if purged.is_some_and(|purged| last <= purged) {
            return Ok(None);
        }
        Ok(self.entries(last..=last, usize::MAX)?.pop())
    }

    /// Returns entries in order, at least one if there is one, and no more once they have `limit` bytes.
    pub fn entries<T: DeserializeOwned>(&self, range: impl RangeBounds<u64>, limit: usize) -> Result<Vec<T>> {
        let purged = self.purged_index()?.map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (later(range.start_bound().cloned(), purged), range.end_bound().cloned());
        let (mut found, mut bytes, mut expected) = (Vec::new(), 0, None);
        for item in self.entries.range(bounds) {
            let (index, head) = item?;
            if let Some(missing) = expected.filter(|expected| *expected != index) {
                self.expect_purged(missing)?;
                found.clear();
            }
            let Some(entry) = self.whole(index, head)? else { break };
            bytes += entry.len();
            found.push(decode(&entry, format!("log entry {index}"))?);
            if bytes >= limit {
                break;
            }
            expected = index.checked_add(1);
        }
        Ok(found)
    }

    /// Fails unless an entry is missing because it was purged while the caller read.
    fn expect_purged(&self, missing: u64) -> Result<()> {
        match self.purged_index()? {
            Some(purged) if purged >= missing => Ok(()),
            _ => Err(Error::corrupted("a missing entry", format!("log entry {missing}"))),
        }
    }

    /// Returns the bytes of an entry from its head; `None` if it was removed meanwhile.
    fn whole(&self, index: u64, mut head: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let broken = |what: &str| Error::corrupted(what, format!("log entry {index}"));
        match head.first() {
            Some(&WHOLE) => {
                head.remove(0);
                return Ok(Some(head));
            }
            Some(&SPLIT) if head.len() > HEAD_BYTES => {}
            _ => return Err(broken("an unknown kind of entry")),
        }
        let mut entry = head.split_off(HEAD_BYTES);
        let bytes = u64::from_le_bytes(head[1..].try_into().map_err(|_| broken("a torn head"))?);
        for number in 0.. {
            if entry.len() as u64 >= bytes {
                break;
            }
            match self.parts.get((index, number))? {
                Some(part) => entry.extend_from_slice(&part),
                None if self.entries.contains_key(index)? => return Err(broken("a missing part")),
                None => return Ok(None),
            }
        }
        if entry.len() as u64 == bytes { Ok(Some(entry)) } else { Err(broken("parts of another length")) }
    }

    /// Appends entries, whose indexes ascend by one; the ticket tells when they are durable.
    pub fn append(&self, entries: &[(u64, Vec<u8>)]) -> Result<Ticket> {
        let write = || entries.iter().try_for_each(|(index, entry)| self.put(*index, entry));
        Ok(self.pool.with_ticket(write)?.1)
    }

    fn put(&self, index: u64, entry: &[u8]) -> Result<()> {
        if entry.len() < VALUE_BYTES_MAX {
            let mut head = Vec::with_capacity(1 + entry.len());
            head.push(WHOLE);
            head.extend_from_slice(entry);
            return self.entries.upsert(index, &head);
        }
        let (first, rest) = entry.split_at(VALUE_BYTES_MAX - HEAD_BYTES);
        for (number, part) in rest.chunks(VALUE_BYTES_MAX).enumerate() {
            self.parts.upsert((index, number as u32), part)?;
        }
        let length = (entry.len() as u64).to_le_bytes();
        self.entries.upsert(index, &[&[SPLIT][..], &length, first].concat())
    }

    /// Removes the entries from an index on, the last one first.
    pub fn truncate(&self, from: u64) -> Result<()> {
        let remove = || {
            while let Some(last) = self.last_index()?.filter(|last| *last >= from) {
                self.entries.remove(last)?;
            }
            self.parts.remove_range((from, 0)..)
        };
        self.pool.with_ticket(remove).map(drop)
    }

    /// Names the state machine, which must contain entries before they are removed.
    pub fn attach(&self, covers: Covers) {
        // A log has one.
        let _ = self.covers.set(covers);
    }

    fn is_covered(&self, index: u64) -> Result<bool> {
        self.covers.get().map_or(Ok(true), |covers| covers(index))
    }

    /// Removes the entries up to an index, whose encoded id is given, or defers that: see [`Deferred`].
    pub fn purge(&self, index: u64, id: Vec<u8>) -> Result<()> {
        let _deciding = self.lock();
        if self.purged_index()?.is_some_and(|purged| purged > index) {
            return Ok(());
        }
        if self.is_covered(index)? {
            return self.purge_now((index, id));
        }
        self.deferred.send_replace(Deferred::Until((index, id)));
        Ok(())
    }

    /// Removes the entries of a deferred purge, which the state machine now contains.
    pub fn settle(&self) -> Result<()> {
        let _deciding = self.lock();
        let purged = match &*self.deferred.borrow() {
            Deferred::Until(purged) => purged.clone(),
            Deferred::None | Deferred::Failed => return Ok(()),
        };
        if self.is_covered(purged.0)? {
            self.purge_now(purged)?;
            self.deferred.send_replace(Deferred::None);
        }
        Ok(())
    }

    /// Ends the wait for an installation that failed.
    pub fn fail(&self) {
        let _deciding = self.lock();
        if matches!(&*self.deferred.borrow(), Deferred::Until(_)) {
            self.deferred.send_replace(Deferred::Failed);
        }
    }

    /// Waits until entries from an index on would follow stored ones, or a state machine that contains all before them.
    pub async fn wait_for_predecessor(&self, first: u64) -> Result<()> {
        let mut deferred = self.deferred.subscribe();
        loop {
            match &*deferred.borrow_and_update() {
                Deferred::None => return Ok(()),
                Deferred::Until(_) if self.last_index()?.is_some_and(|last| last + 1 >= first) => {
                    return Ok(());
                }
                Deferred::Until(_) => {}
                Deferred::Failed => {
                    return Err(Error::invalid("a snapshot was not installed: open the store again"));
                }
            }
            // The sender is here, too.
            let _ = deferred.changed().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.purging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn purge_now(&self, (index, id): Purged) -> Result<()> {
        let purged = encode(&(index, id))?;
        let remove = || {
            self.meta.upsert(names::PURGED, &purged)?;
            self.remove_up_to(index)
        };
        self.pool.with_ticket(remove).map(drop)
    }

    fn remove_up_to(&self, index: u64) -> Result<()> {
        self.entries.remove_range(..=index)?;
        self.parts.remove_range(..=(index, u32::MAX)).map(drop)
    }
}

/// Returns the later one of two starts, of which the second is excluded or open.
fn later(start: Bound<u64>, purged: Bound<u64>) -> Bound<u64> {
    let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(last)) = (start, purged) else {
        return if start == Bound::Unbounded { purged } else { start };
    };
    if from > last { start } else { purged }
}
