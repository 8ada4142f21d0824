//! Changes of the lowest level that a kill may interrupt: where the index outlives a kill, a node is copied before it
//! changes, and the next process restores it. Upper levels need no copy, because they are built again.
//!
//! # Change (of a locked node of the lowest level)
//! 1. The node is copied to an image, and the slot names the node. *A kill: the image equals the node.*
//! 2. The node changes. A new right node is complete before step 3. *A kill: the node is restored, and no link leads to
//!    the right node, which is free.*
//! 3. The slot no longer names the node. *A kill from here on: the change is complete; only the lock remains, and the
//!    levels above are built again.*
//! 4. The node is unlocked.
//!
//! A kill interrupts each thread between two of its stores, in the order of the program. Fences of the compiler are
//! therefore enough.

use std::sync::atomic::compiler_fence;

use bristlecone_pm::sync::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use bristlecone_pm::{Manifest, ManifestReader, Memory, SharedCell, Zeroed, omits, own_thread_index};
use crossbeam_utils::CachePadded;

use super::node::{NodeRef, Nodes};

/// Number of threads that can change nodes at a time. Others make the index one that a kill loses.
const SLOTS: usize = 16;
const FREE: u64 = 0;
/// A thread copies a node.
const COPYING: u64 = 1;
/// Added to the number of a node that is being changed.
const NAMED: u64 = 2;

#[derive(Debug, Default)]
#[repr(C)]
struct Slot {
    state: AtomicU64,
    /// The node that holds the image, plus one.
    image: AtomicU32,
}

/// Slots of changes that are under way, visible to the next process.
#[derive(Debug, Default)]
#[repr(C)]
struct Table {
    /// Number of changes without an image.
    unprotected: AtomicU64,
    slots: [CachePadded<Slot>; SLOTS],
}

// SAFETY: atomics, for which zero is a value.
unsafe impl Zeroed for Table {}

/// The changes of an index that are under way. `None`: the index does not outlive a kill.
#[derive(Debug, Default)]
pub struct Changes(Option<SharedCell<Table>>);

/// A change of a node, until this is dropped, which must precede the unlock.
pub struct Change<'a> {
    table: Option<&'a Table>,
    slot: Option<&'a Slot>,
}

impl Changes {
    pub fn new(memory: &Memory) -> Self {
        Self(memory.outlives_a_kill().then(|| memory.cell()))
    }

    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        manifest.push_optional_cell(self.0.as_ref())
    }

    /// Passes over the location.
    pub fn follow(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        manifest.read().map(|_| Self(None))
    }

    pub fn recover(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        manifest.read_cell().map(|table| Self(Some(table)))
    }

    /// Change 1: begins to change a locked node.
    pub fn begin<'a>(&'a self, nodes: &Nodes, node: NodeRef<'_>) -> Change<'a> {
        let table = self.0.as_deref().filter(|_| !omits("index change.1"));
        let Some(table) = table else { return Change { table: None, slot: None } };
        let first = own_thread_index().unwrap_or(0);
        let free = |slot: &&CachePadded<Slot>| {
            slot.state.load(Relaxed) == FREE
                && slot.state.compare_exchange(FREE, COPYING, Acquire, Relaxed).is_ok()
        };
        let mut slots = (0..SLOTS).map(|at| &table.slots[(first + at) % SLOTS]);
        let slot: Option<&Slot> = slots.find(free).map(|slot| &**slot);
        let slot = slot.filter(|slot| {
            let image = Self::image(slot, nodes);
            if image.is_none() {
                slot.state.store(FREE, Relaxed);
            }
            image.is_some_and(|image| {
                nodes.get(image).copy_from(node);
                compiler_fence(SeqCst);
                slot.state.store(u64::from(node.id) + NAMED, Release);
                true
            })
        });
        if slot.is_none() {
            table.unprotected.fetch_add(1, SeqCst);
        }
        compiler_fence(SeqCst);
        Change { table: Some(table), slot }
    }

    fn image(slot: &Slot, nodes: &Nodes) -> Option<u32> {
        if slot.image.load(Relaxed) == 0 {
            slot.image.store(nodes.alloc_image()? + 1, Relaxed);
        }
        Some(slot.image.load(Relaxed) - 1)
    }

    /// Restores the nodes that were being changed, and calls `kept` with each image. Returns `None` if a node cannot
    /// be restored.
    pub fn undo(&self, nodes: &Nodes, mut kept: impl FnMut(u32) -> bool) -> Option<()> {
        let table = self.0.as_deref()?;
        (table.unprotected.load(Relaxed) == 0).then_some(())?;
        for slot in &table.slots {
            let image = slot.image.load(Relaxed).checked_sub(1);
            image.is_none_or(|image| image < nodes.begun() && kept(image)).then_some(())?;
            if let Some(node) = slot.state.load(Relaxed).checked_sub(NAMED) {
                let node = u32::try_from(node).ok().filter(|&node| node < nodes.begun())?;
                if !omits("index takeover.1") {
                    nodes.get(node).copy_from(nodes.get(image?));
                }
            }
            slot.state.store(FREE, Relaxed);
        }
        Some(())
    }
}

impl Drop for Change<'_> {
    /// Change 3.
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        match (self.slot, self.table) {
            (Some(slot), _) => slot.state.store(FREE, Release),
            (None, Some(table)) => _ = table.unprotected.fetch_sub(1, SeqCst),
            (None, None) => {}
        }
        compiler_fence(SeqCst);
    }
}
