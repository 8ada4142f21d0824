//! Taking over the index of a process that was killed.
//!
//! 1. Interrupted changes of the lowest level are undone: see [`change`](super::change).
//! 2. The lowest level is walked from its leftmost node, which never changes, and verified. Each node that it reaches is
//!    in use, and each leaf that these refer to. Anything unexpected refuses the whole index.
//! 3. All other nodes and separators become free.
//! 4. The levels above are built again, and get the root. *A kill: the tree is rebuilt from its leaves.*

use bristlecone_pm::ManifestReader;
use bristlecone_pm::sync::{Ordering::Acquire, Ordering::Release};

use super::change::Changes;
use super::hints::Hints;
use super::node::{NodeRef, Nodes};
use super::{KeyCodec, VolatileIndex};
use crate::index::parts::arena::Bits;
use crate::index::parts::optimistic_lock::LockState;
use crate::index::parts::separators::Separators;

/// Maximum number of levels: each node has several children.
const LEVELS_MAX: u32 = 40;

/// An index whose lowest level is known.
pub struct Lowest<K: KeyCodec> {
    index: VolatileIndex<K>,
    /// The nodes of the lowest level in order, each with its low separator.
    nodes: Vec<(u64, u32)>,
    used: Bits,
}

impl<K: KeyCodec> VolatileIndex<K> {
    /// Takes over the index that a killed process had [`save`](Self::save)d for followers, by steps 1 and 2: adds its
    /// leaves to `leaves`, which has all numbers below the number of leaves begun. Returns `None` in doubt.
    pub fn take_over(
        node_bytes: usize,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<impl FnOnce(&mut Bits) -> Option<Lowest<K>> + use<K>> {
        let root = manifest.read_cell()?;
        let changes = Changes::recover(manifest)?;
        let nodes = Nodes::recover(node_bytes, K::INLINE, manifest)?;
        let separators = Separators::recover(K::INLINE, manifest)?;
        let index = Self { changes, ..Self::assemble(nodes, separators, root) };
        Some(|leaves: &mut Bits| index.lowest(leaves))
    }

    fn lowest(self, leaves: &mut Bits) -> Option<Lowest<K>> {
        let mut used = Bits::below(self.nodes.begun());
        self.changes.undo(&self.nodes, |image| used.add(image))?;
        let mut found = Vec::new();
        let mut node = self.leftmost()?;
        loop {
            used.add(node.id).then_some(())?;
            found.push((node.key(0), node.id));
            for at in 0..node.count() {
                leaves.add(node.child(at)).then_some(())?;
            }
            if !matches!(node.lock.try_read(), LockState::Free(_)) {
                node.lock.renew();
            }
            let Some((next, high)) = node.right() else { break };
            let right = self.node_at(next)?;
            (self.is_ordered(node, high.word) && (!K::INLINE || right.key(0) == high.word)).then_some(())?;
            node = right;
        }
        self.is_ordered(node, u64::MAX).then_some(Lowest { index: self, nodes: found, used })
    }

    /// Returns the leftmost node of the lowest level: no change touches a leftmost node's first child.
    fn leftmost(&self) -> Option<NodeRef<'_>> {
        let root = self.root.load(Acquire);
        let mut node = (root < self.nodes.begun()).then(|| self.nodes.get(root))?;
        for _ in 0..LEVELS_MAX {
            if node.level() == 1 {
                return self.node_at(node.id).filter(|node| node.is_leftmost());
            }
            let child = node.child(0);
            node = (child < self.nodes.begun()).then(|| self.nodes.get(child))?;
        }
        None
    }

    /// Returns a node of the lowest level, if it may be one.
    fn node_at(&self, id: u32) -> Option<NodeRef<'_>> {
        let node = (id < self.nodes.begun()).then(|| self.nodes.get(id))?;
        let fits = node.level() == 1 && (1..=self.nodes.capacity()).contains(&node.count());
        (fits && node.count() == node.count_begun()).then_some(node)
    }

    /// Returns whether the separators of a node are possible ones: ascending words below `high`.
    fn is_ordered(&self, node: NodeRef<'_>, high: u64) -> bool {
        if !K::INLINE {
            return (1..node.count()).all(|at| self.separators.may_be(node.key(at)))
                && node.right().is_none_or(|(_, high)| self.separators.may_be(high.word));
        }
        let begins = (usize::from(node.is_leftmost())..node.count()).map(|at| node.key(at));
        let mut last = None;
        let ascending = begins.into_iter().all(|key| last.replace(key).is_none_or(|last| last < key));
        ascending && last.is_none_or(|last| last < high || node.right().is_none())
    }
}

impl<K: KeyCodec> Lowest<K> {
    /// Completes the index by steps 3 and 4. `others` are separators that others than the index hold.
    pub fn complete(self, others: impl Iterator<Item = u64>) -> Option<VolatileIndex<K>> {
        let Self { index, nodes: lowest, used } = self;
        index.nodes.free_others(&used);
        if !K::INLINE {
            let held = lowest.iter().flat_map(|&(_, id)| {
                let node = index.nodes.get(id);
                let keys = (0..node.count()).map(move |at| node.key(at));
                keys.chain(node.right().map(|(_, high)| high.word))
            });
            index.separators.free_others(held.chain(others))?;
        }
        let guard = K::pin();
        let mut above = lowest;
        for (at, (word, _)) in above.iter_mut().enumerate() {
            *word = if at == 0 { 0 } else { K::copy_separator(&index.separators, *word, &guard) };
        }
        let mut level = 1;
        while above.len() > 1 {
            level += 1;
            let parts = (&index.nodes, &index.separators);
            above = VolatileIndex::<K>::build_level(parts, level, above.into_iter()).ok()?;
        }
        index.root.store(above.first()?.1, Release);
        let index = VolatileIndex { hints: Hints::default(), ..index };
        index.tend_hints();
        Some(index)
    }
}
