//! Something under a version lock, held by its only writer.

use std::ops::Deref;

use super::optimistic_lock::{OptimisticLock, Version};
use super::sync::spin_loop;

/// A reference to something that has a version lock, whose count orders what is done under it.
pub trait Guarded: Copy {
    fn lock(&self) -> &OptimisticLock;

    /// Forgets what it holds: it is leaving the tree.
    fn clear(&self) {}

    /// Unlocks, with a count above `count`.
    fn unlock_above(&self, count: u64) {
        self.lock().unlock_above(count);
    }
}

/// What is held by the only writer it may have; given back when dropped, also on errors.
pub struct Locked<G: Guarded> {
    guarded: G,
    /// What it was locked at.
    pub seen: Version,
    above: u64,
    obsolete: bool,
}

impl<G: Guarded> Locked<G> {
    /// Locks it if it is still what was read at `version`.
    #[inline(always)]
    pub fn at(guarded: G, version: Version) -> Option<Self> {
        // Lazily: a guard that is made is a guard that unlocks.
        guarded.lock().upgrade(version).then(|| Self { guarded, seen: version, above: 0, obsolete: false })
    }

    /// Waits until no thread holds it, and locks it. `None`: it has left the tree.
    pub fn wait(guarded: G) -> Option<Self> {
        loop {
            let version = guarded.lock().read()?;
            if let Some(locked) = Self::at(guarded, version) {
                return Some(locked);
            }
            spin_loop();
        }
    }

    /// Returns the sequence of what is done under the lock.
    #[inline(always)]
    pub fn sequence(&self) -> u64 {
        self.lock().count().max(self.above) + 1
    }

    /// Raises sequences: they are above `count` from here on.
    pub fn raise(&mut self, count: u64) {
        self.above = self.above.max(count);
    }

    /// Unlocks what has left the tree: a thread that comes to it later starts again from the root.
    pub fn retire(mut self) {
        self.obsolete = true;
    }
}

impl<G: Guarded> Deref for Locked<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guarded
    }
}

impl<G: Guarded> Drop for Locked<G> {
    fn drop(&mut self) {
        if self.obsolete {
            self.guarded.clear();
            self.lock().unlock_obsolete();
        } else {
            self.guarded.unlock_above(self.above);
        }
    }
}
