//! The ancestors of a node: locked before a new entry is added, and completed where one is missing.

use bristlecone_pm::{Medium, Result};
use smallvec::SmallVec;

use super::WoTree;
use super::inner::Aim;
use super::layout::LEVEL_MAX;
use super::nodes::Locked;
use super::read::{Missing, Path};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::optimistic_lock::OptimisticLock;

/// Nodes allocated before a split, so that a full pool fails before anything changes.
pub(super) struct Reserve<'t, K: KeyCodec, M: Medium> {
    tree: &'t WoTree<K, M>,
    nodes: SmallVec<[(u64, &'t OptimisticLock); 4]>,
}

impl<'t, K: KeyCodec, M: Medium> Reserve<'t, K, M> {
    pub fn empty(tree: &'t WoTree<K, M>) -> Self {
        Self { tree, nodes: SmallVec::new() }
    }

    /// Ensures that this number of nodes is reserved. May sweep slots.
    pub fn fill(&mut self, nodes: usize) -> Result<()> {
        while self.nodes.len() < nodes {
            self.tree.nodes.prepare()?;
            let node = self.tree.nodes.alloc()?;
            self.nodes.push((node, self.tree.nodes.lock(node)?));
        }
        Ok(())
    }

    pub fn has(&self, nodes: usize) -> bool {
        self.nodes.len() >= nodes
    }

    pub fn take(&mut self) -> (u64, &'t OptimisticLock) {
        self.nodes.pop().expect("as many nodes as were counted under the locks")
    }
}

impl<K: KeyCodec, M: Medium> Drop for Reserve<'_, K, M> {
    fn drop(&mut self) {
        self.nodes.drain(..).for_each(|(node, _)| self.tree.nodes.unalloc(node));
    }
}

/// Outcome of an attempt to change the shape of the tree.
pub(super) enum Attempt {
    Done,
    /// This number of nodes must be reserved; nothing changed.
    Wants(usize),
    /// An entry is missing above; nothing changed.
    Missing,
}

/// The locked inner nodes that a new entry changes, the lowest first: full ones, which split, and the first
/// with space. While they are locked no entry is added to them, so the necessary number of nodes is known.
pub(super) struct Above<'t> {
    pub inner: SmallVec<[Locked<'t>; 4]>,
    /// Whether all of them are full, or there are none: a root is put above them.
    grows: bool,
}

impl Above<'_> {
    /// Returns the number of nodes that the entry needs.
    pub fn nodes(&self) -> usize {
        if self.grows { self.inner.len() + 1 } else { self.inner.len() - 1 }
    }
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Counts failed attempts because another thread has put a root above this one's nodes, which can happen
    /// once per level.
    pub(super) fn once_more(&self, in_vain: &mut u64) -> Result<()> {
        *in_vain += 1;
        if *in_vain <= LEVEL_MAX {
            Ok(())
        } else {
            Err(self.damaged("a level without its root", self.root()))
        }
    }

    /// Locks the inner nodes that change when an entry is added to the right of `child`, from its parent's
    /// level on. `child` must be locked, and frees must be excluded. Returns `None` if an entry or a root is
    /// missing.
    pub(super) fn lock_above<'t>(
        &'t self,
        mut level: u8,
        mut child: u64,
        aim: Aim<'_, K>,
        path: &Path,
        guard: &K::Guard,
    ) -> Result<Option<Above<'t>>> {
        let mut inner = SmallVec::new();
        loop {
            let Some(locked) = self.lock_inner(aim, level, path.at_level(level), guard)? else {
                if u64::from(level) > LEVEL_MAX {
                    return Err(self.damaged("a tree that is too high", child));
                }
                // A root is put only above locked nodes: this one remains the root, or was none.
                return Ok((self.root() == child).then_some(Above { inner, grows: true }));
            };
            let node = locked.node;
            inner.push(locked);
            self.compact(node);
            if self.place_of(node, child).is_none() {
                return Ok(None);
            }
            if self.count(node) < self.shape.entries {
                return Ok(Some(Above { inner, grows: false }));
            }
            (child, level) = (node, level + 1);
        }
    }

    /// Adds missing entries on the path to a key: entries whose right neighbours were found from the left,
    /// and a root above several nodes. Splits leave none missing, but files of earlier versions may have
    /// them. Returns whether anything was missing.
    pub(super) fn complete(&self, key: K::Ref<'_>, guard: &K::Guard) -> Result<bool> {
        let mut reserve = Reserve::empty(self);
        let (mut wanted, mut in_vain, mut any) = (0, 0, false);
        let mut before = None;
        loop {
            reserve.fill(wanted)?;
            let _pinned = bristlecone_pm::sync::epoch::pin();
            let _shape = bristlecone_pm::sync::wait::read(&self.shape_lock);
            let mut path = Path::default();
            self.descend(Aim::At(key), guard, &mut path)?;
            let Some(Missing { level, left }) = path.missing else { return Ok(any) };
            any = true;
            // If the entry was added and is still not found, either the node was split again or a link is
            // damaged.
            let again = before.replace((level, left)) == Some((level, left));
            match self.enter_right_of(left, level, &path, &mut reserve, guard)? {
                Attempt::Done if again => self.once_more(&mut in_vain)?,
                Attempt::Done => {}
                Attempt::Wants(nodes) => wanted = nodes,
                Attempt::Missing => self.once_more(&mut in_vain)?,
            }
        }
    }

    /// Adds the right neighbour of a node to the level above, unless it is there.
    fn enter_right_of(
        &self,
        left: u64,
        level: u8,
        path: &Path,
        reserve: &mut Reserve<'_, K, M>,
        guard: &K::Guard,
    ) -> Result<Attempt> {
        let Some(left) = self.locked(left)? else { return Ok(Attempt::Missing) };
        let link = self.nodes.link(left.node, level);
        let (right, separator) = (link.next.load(self.medium()), link.high.load(self.medium()));
        if right == 0 {
            return Ok(Attempt::Missing);
        }
        let aim = Aim::At(self.separator(separator, guard));
        let Some(above) = self.lock_above(level + 1, left.node, aim, path, guard)? else {
            return Ok(Attempt::Missing);
        };
        if above.inner.first().is_some_and(|parent| self.place_of(parent.node, right).is_some()) {
            return Ok(Attempt::Done);
        }
        if !reserve.has(above.nodes()) {
            return Ok(Attempt::Wants(above.nodes()));
        }
        self.tell_parent(level + 1, left.node, separator, right, &above.inner, reserve, guard);
        Ok(Attempt::Done)
    }
}
