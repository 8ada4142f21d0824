//! Bulk build of the index in one pass over ordered leaves.

use bristlecone_pm::sync::AtomicU32;
use bristlecone_pm::{Memory, Result};

use super::change::Changes;
use super::node::{Edge, Nodes, Separator};
use super::{KeyCodec, VolatileIndex};
use crate::index::parts::separators::Separators;

impl<K: KeyCodec> VolatileIndex<K> {
    /// Returns an index over at least one leaf, in ascending order of their low fences; the first
    /// leaf begins at minus infinity whatever its key. Nodes are filled to three quarters.
    pub fn build<'k>(
        node_bytes: usize,
        leaves: impl IntoIterator<Item = (K::Ref<'k>, u32)>,
        memory: &Memory,
    ) -> Result<Self> {
        let nodes = Nodes::new(node_bytes, K::INLINE, memory)?;
        let separators = Separators::new(K::INLINE, memory)?;
        let leaves = leaves.into_iter().enumerate();
        let entries = leaves.map(|(at, (fence, leaf))| {
            (if at == 0 { 0 } else { K::make_separator(&separators, fence) }, leaf)
        });
        let mut level = 1;
        let mut above = Self::build_level((&nodes, &separators), level, entries)?;
        while above.len() > 1 {
            level += 1;
            above = Self::build_level((&nodes, &separators), level, above.into_iter())?;
        }
        let root = above.first().expect("an index has at least one leaf").1;
        let index = Self::assemble(nodes, separators, memory.cell_of(AtomicU32::new(root)));
        let index = Self { changes: Changes::new(memory), ..index };
        index.tend_hints();
        Ok(index)
    }

    /// Builds one level; returns the entries of the next one.
    pub(super) fn build_level(
        (nodes, separators): (&Nodes, &Separators),
        level: u32,
        entries: impl Iterator<Item = (u64, u32)>,
    ) -> Result<Vec<(u64, u32)>> {
        let guard = K::pin();
        let fill = nodes.capacity() * 3 / 4;
        let mut above: Vec<(u64, u32)> = Vec::new();
        for (key, child) in entries {
            let key = Separator::of::<K>(separators, key, &guard);
            let full = above.last().is_none_or(|&(_, id)| nodes.get(id).count() == fill);
            if full {
                let edge = if above.is_empty() { Edge::Left } else { Edge::Inside };
                let id = nodes.alloc(level, edge)?;
                if let Some(&(_, left)) = above.last() {
                    nodes.get(left).set_right(Some((id, key.copy::<K>(separators, &guard))));
                }
                above.push((key.copy::<K>(separators, &guard).word, id));
            }
            let node = nodes.get(above[above.len() - 1].1);
            node.insert(node.count(), key, child);
        }
        for &(_, id) in &above {
            nodes.get(id).rank_all::<K>(separators, &guard);
            nodes.get(id).lock.unlock();
        }
        if let [(first, _)] = above[..] {
            // A root has no parent to keep the key.
            K::retire_separator(separators, first, &guard);
        }
        Ok(above)
    }
}
