//! What no key has any more, and how it is removed in pieces: by a thread, and again from the start after a crash.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bristlecone::Result;

use super::small::len_of;
use super::{ID_BYTES, Note, Store, all_of, borrowed, lock, number};

/// Maps and spaces that may wait for the thread that removes them. While more wait, writers that create maps remove some
/// themselves: twice what they add, so that garbage does not fill the pool.
const WAITING_MAX: usize = 16;
/// Items that a writer removes at least when it helps.
const HELP_ITEMS: usize = 64;
/// Items that are removed in a row when there is no room for a write.
const ROOM_ITEMS: usize = 512;

/// What is to be removed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// The items of a map.
    Map(u64),
    /// All maps of a space.
    Space(u64),
}

/// What a step of the removal did.
#[derive(Clone, Copy, Debug)]
pub struct Swept {
    /// Items that it removed.
    pub items: usize,
    /// Nothing is left.
    pub is_gone: bool,
}

impl Store {
    /// Returns the next thing to be removed, and forgets it.
    pub fn next_garbage(&self) -> Option<Garbage> {
        let mut garbage = lock(&self.garbage);
        // A thread may still copy a map whose key is gone.
        let is_free = |garbage: &Garbage| !matches!(garbage, Garbage::Map(id) if self.is_in_use(*id));
        let at = garbage.iter().rposition(is_free)?;
        Some(garbage.remove(at))
    }

    /// Returns how many maps and spaces wait to be removed.
    pub fn garbage_len(&self) -> usize {
        lock(&self.garbage).len()
    }

    /// Puts back what could not be removed.
    pub fn put_back(&self, garbage: Garbage) {
        lock(&self.garbage).insert(0, garbage);
    }

    /// Removes garbage if much waits: for a writer that has added this many items.
    pub fn help(&self, added: usize) {
        let mut left = 2 * added + HELP_ITEMS;
        while left > 0 && self.garbage_len() > WAITING_MAX {
            let Some(garbage) = self.next_garbage() else { return };
            match self.sweep(garbage, left) {
                Ok(swept) => {
                    left = left.saturating_sub(swept.items.max(1));
                    if !swept.is_gone {
                        lock(&self.garbage).push(garbage);
                    }
                }
                // The thread reports it.
                Err(_) => return self.put_back(garbage),
            }
        }
    }

    /// Calls `write`, and again after the garbage was removed if there was no room.
    pub fn with_room<T>(&self, write: impl Fn() -> Result<T>) -> Result<T> {
        match write() {
            Err(error) if error.is_no_room() && self.remove_garbage() => write(),
            written => written,
        }
    }

    /// Removes all that no key has. Returns whether there was anything.
    #[cold]
    fn remove_garbage(&self) -> bool {
        let mut removed = false;
        while let Some(garbage) = self.next_garbage() {
            loop {
                match self.sweep(garbage, ROOM_ITEMS) {
                    Ok(swept) => {
                        removed |= swept.items > 0;
                        if swept.is_gone {
                            break;
                        }
                        // A map without items, or one that a thread uses.
                        if swept.items == 0 && self.is_waiting() {
                            self.put_back(garbage);
                            return removed && self.collect().is_ok();
                        }
                    }
                    Err(_) => {
                        self.put_back(garbage);
                        return removed;
                    }
                }
            }
        }
        // The tree gives up what was removed only with its next writes.
        removed && self.collect().is_ok()
    }

    /// Returns whether garbage may have to wait for a thread.
    fn is_waiting(&self) -> bool {
        self.open_jobs().iter().any(|job| !job.is_done())
    }

    /// Calls `work` while nothing is removed in the background.
    pub fn without_sweeping<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = lock(&self.sweeping);
        work()
    }

    /// Removes some of what no key has.
    pub fn sweep(&self, garbage: Garbage, items_max: usize) -> Result<Swept> {
        self.without_sweeping(|| match garbage {
            Garbage::Map(id) => self.sweep_map(id, items_max),
            Garbage::Space(space) => self.sweep_space(space, items_max),
        })
    }

    /// Removes some items of a map that no key has, and its note once none is left.
    fn sweep_map(&self, id: u64, items_max: usize) -> Result<Swept> {
        let keys = self.items_of(id).take(items_max).map(|item| item.map(|(key, _)| key));
        let keys: Vec<Vec<u8>> = keys.collect::<Result<_>>()?;
        for key in &keys {
            self.items.remove(key)?;
        }
        let items = keys.len() + self.remove_times(&all_of(id), items_max - keys.len())?;
        let is_gone = items < items_max;
        if is_gone {
            self.meta.remove(&Note::Unattached(id).key())?;
        }
        Ok(Swept { items, is_gone })
    }

    /// Removes some items of a space that no database has, and its note at last.
    fn sweep_space(&self, space: u64, items_max: usize) -> Result<Swept> {
        let swept = self.sweep_small(space, items_max)?;
        if swept.items > 0 {
            return Ok(swept);
        }
        let bounds = all_of(space);
        let Some((key, _)) = self.directory.range(borrowed(&bounds)).next().transpose()? else {
            self.meta.remove(&Note::Flushed(space).key())?;
            return Ok(Swept { items: 0, is_gone: true });
        };
        let id = number(&key[ID_BYTES..])?;
        if self.is_in_use(id) {
            return Ok(Swept { items: 0, is_gone: false });
        }
        let swept = self.sweep_map(id, items_max)?;
        if swept.is_gone {
            self.directory.remove(&key)?;
        }
        Ok(Swept { is_gone: false, ..swept })
    }

    /// Removes some small maps of a space that no database has.
    fn sweep_small(&self, space: u64, items_max: usize) -> Result<Swept> {
        let mut words = Vec::new();
        self.each_small(Some(space), |small, _| {
            words.push(small.word());
            if words.len() < items_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        for word in &words {
            let fields = self.small.remove(*word)?.map_or(0, |entry| len_of(&entry));
            self.small_fields.fetch_sub(fields, Ordering::Relaxed);
        }
        Ok(Swept { items: words.len(), is_gone: false })
    }
}
