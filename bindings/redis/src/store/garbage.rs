//! What no key has any more, and how it is removed in pieces: by a thread, and again from the start after a crash.

use bristlecone::Result;

use super::{ID_BYTES, Note, Store, all_of, borrowed, lock, number};

/// What is to be removed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// The items of a map.
    Map(u64),
    /// All maps of a space.
    Space(u64),
}

impl Store {
    /// Returns the next thing to be removed, and forgets it.
    pub fn next_garbage(&self) -> Option<Garbage> {
        lock(&self.garbage).pop()
    }

    /// Returns how many maps and spaces wait to be removed.
    pub fn garbage_len(&self) -> usize {
        lock(&self.garbage).len()
    }

    /// Puts back what could not be removed.
    pub fn put_back(&self, garbage: Garbage) {
        lock(&self.garbage).insert(0, garbage);
    }

    /// Calls `work` while nothing is removed in the background.
    pub fn without_sweeping<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = lock(&self.sweeping);
        work()
    }

    /// Removes some of what no key has. Returns whether it is gone.
    pub fn sweep(&self, garbage: Garbage, items_max: usize) -> Result<bool> {
        self.without_sweeping(|| match garbage {
            Garbage::Map(id) => self.sweep_map(id, items_max),
            Garbage::Space(space) => self.sweep_space(space, items_max),
        })
    }

    /// Removes some items of a map that no key has, and its note once none is left. Returns whether it is gone.
    fn sweep_map(&self, id: u64, items_max: usize) -> Result<bool> {
        let bounds = all_of(id);
        let keys: Vec<Vec<u8>> =
            self.items.range(borrowed(&bounds)).take(items_max).map(|(key, _)| key).collect();
        for key in &keys {
            self.items.remove(key)?;
        }
        if keys.len() < items_max {
            self.meta.remove(&Note::Unattached(id).key())?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Removes some items of a space that no database has, and its note at last. Returns whether it is gone.
    fn sweep_space(&self, space: u64, items_max: usize) -> Result<bool> {
        let bounds = all_of(space);
        let Some((key, _)) = self.directory.range(borrowed(&bounds)).next() else {
            self.meta.remove(&Note::Flushed(space).key())?;
            return Ok(true);
        };
        if self.sweep_map(number(&key[ID_BYTES..])?, items_max)? {
            self.directory.remove(&key)?;
        }
        Ok(false)
    }
}
