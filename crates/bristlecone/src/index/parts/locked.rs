//! An object with a version lock, held by its only writer.

use std::ops::Deref;

use super::optimistic_lock::{OptimisticLock, Version};
use super::sync::spin_loop;

/// A reference to an object with a version lock, whose count orders the changes made under it.
pub trait Guarded: Copy {
    fn lock(&self) -> &OptimisticLock;

    /// Clears its contents, because it is leaving the tree.
    fn clear(&self) {}

    /// Unlocks, with a count above `count`.
    fn unlock_above(&self, count: u64) {
        self.lock().unlock_above(count);
    }
}

/// An object locked by its only writer; unlocked when dropped, also on errors.
pub struct Locked<G: Guarded> {
    guarded: G,
    /// The version at which it was locked.
    pub seen: Version,
    above: u64,
    obsolete: bool,
}

impl<G: Guarded> Locked<G> {
    /// Locks it if it is unchanged since `version`.
    #[inline(always)]
    pub fn at(guarded: G, version: Version) -> Option<Self> {
        // Evaluated lazily: a guard unlocks when it is dropped.
        guarded.lock().upgrade(version).then(|| Self { guarded, seen: version, above: 0, obsolete: false })
    }

    /// Waits until no thread holds the lock, and locks it. Returns `None` if it has left the tree.
    pub fn wait(guarded: G) -> Option<Self> {
        loop {
            let version = guarded.lock().read()?;
            if let Some(locked) = Self::at(guarded, version) {
                return Some(locked);
            }
            spin_loop();
        }
    }

    /// Returns the sequence of the changes made under the lock.
    #[inline(always)]
    pub fn sequence(&self) -> u64 {
        self.lock().count().max(self.above) + 1
    }

    /// Raises sequences above `count` from here on.
    pub fn raise(&mut self, count: u64) {
        self.above = self.above.max(count);
    }

    /// Unlocks an object that has left the tree: a thread that reaches it later restarts from the
    /// root.
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
