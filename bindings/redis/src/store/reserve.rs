//! Room that is kept for names and times to live, so that a full pool does not lose them.
//!
//! `RENAME`, `EXPIRE` and the like are commands of the server: it tells of them when they are carried out, and a module cannot refuse
//! them. So a tree that nothing reads keeps some room. 1. An entry of the directory that finds no room drops that tree, and
//! is written. 2. Before anything else is written the tree is made again, of what is left. 3. The thread that removes what no
//! key has fills it up, once there is room.
//!
//! A batch sets room aside for the worst case of all that it changes. In a full pool there may be room for each of its
//! writes and not for that. So what the server tells is then written step by step, in an order in which recovery finishes
//! what a crash has interrupted.

use std::sync::atomic::Ordering;

use bristlecone::{Error, Result, Tree};

use super::directory::place;
use super::{Note, Store, damaged, item_key, lock, number};
use crate::map::Small;

/// The tree's name.
const NAME: &str = "redis.reserve";
/// Values in it, of [`VALUE_BYTES`] each: eleven chunks beside that of its leaves, 24 MiB together. Entries of large and of small
/// maps may need one for each length, and each of their trees one for leaves; exchanging databases sets seven aside.
const VALUES: u64 = 174;
const VALUE_BYTES: usize = 120 << 10;
/// Pools that are smaller keep none.
const POOL_BYTES_MIN: u64 = 128 << 20;

impl Store {
    /// Returns whether all of the room is kept. Small pools do without.
    pub fn has_reserve(&self) -> bool {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Keeps as much room as is missing.
    ///
    /// # Errors
    ///
    /// Those of a write, for want of room above all. What room there is is kept then.
    pub fn make_reserve(&self) -> Result<()> {
        let _held = lock(&self.reserve);
        if self.has_reserve() {
            return Ok(());
        }
        if self.max_bytes() >= POOL_BYTES_MIN {
            self.collect()?;
            self.fill_reserve()?;
        }
        self.reserved.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn fill_reserve(&self) -> Result<()> {
        let tree: Tree<u64, Vec<u8>> = self.pool.tree(NAME)?;
        let value = vec![0; VALUE_BYTES];
        (0..VALUES).try_for_each(|number| match tree.contains_key(number)? {
            true => Ok(()),
            false => tree.upsert(number, &value),
        })
    }

    /// Makes the tree of items give up what was removed: it does so with its own writes. Map 0 is none.
    pub fn collect(&self) -> Result<()> {
        let key = item_key(0, b"");
        // It does not matter whether this finds room.
        _ = self.items.upsert(&key, &[0; 1000]);
        self.items.remove(&key).map(drop)
    }

    fn drop_reserve(&self) -> Result<()> {
        match self.pool.drop_tree(NAME) {
            Err(Error::NoSuchTree { .. }) => Ok(()),
            dropped => dropped,
        }
    }

    /// Writes what must not fail for want of room: if it does, once more with the room that was kept.
    pub(super) fn with_reserve<T>(&self, write: impl Fn() -> Result<T>) -> Result<T> {
        match write() {
            Err(error) if error.is_no_room() => {
                let _held = lock(&self.reserve);
                self.drop_reserve()?;
                let written = write();
                self.reserved.store(false, Ordering::Relaxed);
                // What is left of it is kept; the rest follows once there is room.
                _ = self.fill_reserve();
                written
            }
            written => written,
        }
    }

    /// Writes what [`attach`](Self::attach) does, step by step. Recovery finishes it.
    pub(super) fn attach_by_steps(&self, id: u64, from: Option<u64>, to: u64, value: &[u8]) -> Result<()> {
        self.remove_by_steps(&mut lock(&self.detached))?;
        let moving = Note::Moving(id).key();
        let moved_from = from.filter(|from| *from != to);
        if let Some(from) = moved_from {
            let spaces = [from.to_be_bytes(), to.to_be_bytes()].concat();
            self.with_reserve(|| self.meta.upsert(&moving, &spaces))?;
        }
        self.with_reserve(|| self.directory.upsert(&place(to, id), value))?;
        if let Some(from) = moved_from {
            self.directory.remove(&place(from, id))?;
            self.meta.remove(&moving)?;
        }
        if from.is_none() {
            self.meta.remove(&Note::Unattached(id).key())?;
        }
        Ok(())
    }

    /// Does the same for a small map that moves to another place, or stays.
    pub(super) fn attach_small_by_steps(&self, from: Small, to: Small, value: &[u8]) -> Result<()> {
        self.remove_by_steps(&mut lock(&self.detached))?;
        let moving = Note::Moving(from.id()).key();
        if from != to {
            let words = [from.word().to_be_bytes(), to.word().to_be_bytes(), [0; 8]].concat();
            self.with_reserve(|| self.meta.upsert(&moving, &words))?;
        }
        self.with_reserve(|| self.small.upsert(to.word(), value))?;
        if from != to {
            self.small.remove(from.word())?;
            self.meta.remove(&moving)?;
        }
        Ok(())
    }

    /// Finishes a move between databases that a crash has interrupted. The note has two spaces or, and a third number, the words of
    /// a small map.
    pub(super) fn finish_move(&self, id: u64, places: &[u8]) -> Result<()> {
        let (from, to) = places.split_at_checked(8).ok_or_else(|| damaged("a move"))?;
        match to.split_at_checked(8) {
            Some((to, [_, ..])) => {
                if self.small.contains_key(number(to)?)? {
                    self.small.remove(number(from)?)?;
                }
            }
            _ => {
                if self.directory.get(&place(number(to)?, id))?.is_some() {
                    self.directory.remove(&place(number(from)?, id))?;
                }
            }
        }
        self.meta.remove(&Note::Moving(id).key()).map(drop)
    }
}
