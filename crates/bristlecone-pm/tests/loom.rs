//! Model-checks the transfer of slots between threads, and how a writer determines that no follower reads what it
//! reuses. Covers every order of the steps with at most two preemptions.
//!
//! The files of the slots and of the followers' announcements are compiled here again, over loom's atomics. There is no
//! harness: a panic in a model ends the program.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst, fence,
};
use loom::thread;

/// Replaces `src/sync/atomic.rs`.
mod sync {
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize, fence};
}

#[allow(dead_code, reason = "the file serves the whole crate")]
#[path = "../src/alloc/slots.rs"]
mod slots;

#[allow(dead_code, reason = "the file serves the whole crate")]
#[path = "../src/segment/announce.rs"]
mod announce;

use announce::{Announced, EVICTED, IDLE};
use slots::Slots;

const ALL: u64 = 0b11;

/// Two slots and their contents: loom detects unordered reads and writes.
struct Chunk {
    slots: Slots,
    contents: [UnsafeCell<u64>; 2],
    /// Whether the tree refers to the first slot.
    linked: AtomicBool,
}

// SAFETY: loom checks the accesses to the contents.
unsafe impl Sync for Chunk {}
// SAFETY: as above.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new(slots: Slots) -> Arc<Self> {
        let contents = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Self { slots, contents, linked: AtomicBool::new(true) })
    }

    /// Takes all free slots and writes to them; returns which slots they were.
    fn take_and_write(&self) -> u64 {
        let Some((_, free)) = self.slots.take_word() else { return 0 };
        for (slot, contents) in self.contents.iter().enumerate().filter(|(slot, _)| free >> slot & 1 != 0) {
            // SAFETY: the thread that took a slot is the only one to use it; loom reports violations.
            contents.with_mut(|contents| unsafe { *contents = 1 + slot as u64 });
        }
        free
    }

    /// Reads the first slot for the last time, like readers of an earlier epoch, and frees it.
    fn leave_and_give(&self) {
        // SAFETY: it is taken, so no thread writes to it; loom reports violations.
        self.contents[0].with(|contents| unsafe { *contents });
        self.slots.give(0, 1);
    }
}

fn slots_given_back_come_to_one_owner_after_their_last_reader() {
    let chunk = Chunk::new(Slots::new(0, 0, 2));
    assert_eq!(chunk.slots.take_word(), Some((0, ALL)));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let chunk = Arc::clone(&chunk);
            thread::spawn(move || chunk.take_and_write())
        })
        .collect();
    chunk.leave_and_give();
    let taken: Vec<_> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
    assert!(matches!(taken[..], [0, 0] | [0, 1] | [1, 0]), "{taken:?}");
}

fn a_slot_that_leaves_the_tree_is_given_back_once_whatever_a_sweep_finds() {
    let chunk = Chunk::new(Slots::unswept(0, 0, 2));
    let sweep = {
        let chunk = Arc::clone(&chunk);
        thread::spawn(move || {
            let live = chunk.linked.load(Acquire);
            if chunk.slots.know(0) && !live {
                chunk.slots.give(0, 1);
            }
        })
    };
    let taker = {
        let chunk = Arc::clone(&chunk);
        thread::spawn(move || chunk.take_and_write())
    };
    // A thread that removes an item protects its slot before it is unlinked, and frees it an epoch later.
    chunk.slots.know(0);
    chunk.linked.store(false, Release);
    chunk.leave_and_give();
    sweep.join().expect("no slot is freed twice");
    assert!(taker.join().expect("no panic") <= 1);
}

/// What a writer removes from its tree while a follower reads.
struct Followed {
    epoch: AtomicU64,
    announced: Announced,
    linked: AtomicBool,
    /// Read where the writer waits for the reader: loom detects premature reuse.
    node: UnsafeCell<u64>,
    /// Read where the writer may evict the reader.
    record: AtomicU64,
}

// SAFETY: loom checks the accesses to the node.
unsafe impl Sync for Followed {}
// SAFETY: as above.
unsafe impl Send for Followed {}

impl Followed {
    const BEFORE: u64 = 1;
    const AGAIN: u64 = 2;

    fn new() -> Arc<Self> {
        let (node, record) = (UnsafeCell::new(Self::BEFORE), AtomicU64::new(Self::BEFORE));
        let (epoch, linked) = (AtomicU64::new(1), AtomicBool::new(true));
        Arc::new(Self { epoch, announced: Announced::new(), linked, node, record })
    }

    /// Reads like a thread of a follower, twice.
    fn look(followed: &Arc<Self>, read: fn(&Self)) -> thread::JoinHandle<()> {
        let followed = Arc::clone(followed);
        thread::spawn(move || {
            for _ in 0..2 {
                followed.announced.begin(followed.epoch.load(Acquire), true);
                if followed.linked.load(Acquire) {
                    read(&followed);
                }
                followed.announced.end();
            }
        })
    }

    /// Removes everything from the tree; returns the epoch in which threads must have begun.
    fn unlink(&self) -> u64 {
        self.linked.store(false, Release);
        self.epoch.fetch_add(1, AcqRel) + 1
    }

    /// Returns whether no thread that began before still reads.
    fn has_passed(&self, epoch: u64) -> bool {
        // The heavy side, where the kernel does not do its work.
        fence(SeqCst);
        let word = self.announced.get();
        word == IDLE || word >= epoch
    }
}

fn what_a_follower_looks_at_is_not_used_again() {
    let followed = Followed::new();
    let reader = Followed::look(&followed, |followed| {
        // SAFETY: the writer waits for threads that read; loom reports violations.
        followed.node.with(|node| assert_eq!(unsafe { *node }, Followed::BEFORE));
    });
    let epoch = followed.unlink();
    if followed.has_passed(epoch) {
        // SAFETY: no thread reads it any more; loom reports violations.
        followed.node.with_mut(|node| unsafe { *node = Followed::AGAIN });
    }
    reader.join().expect("no panic");
}

fn what_an_expelled_follower_reads_does_not_count() {
    let followed = Followed::new();
    let reader = Followed::look(&followed, |followed| {
        let read = followed.record.load(Relaxed);
        if !followed.announced.is_expelled() {
            assert_eq!(read, Followed::BEFORE, "what was used again counts");
        }
    });
    let epoch = followed.unlink();
    if !followed.has_passed(epoch) {
        followed.announced.evict(epoch);
    }
    // An evicted thread counts as one that began later.
    const { assert!(EVICTED > IDLE) };
    if followed.has_passed(epoch) {
        followed.record.store(Followed::AGAIN, Relaxed);
    }
    reader.join().expect("no panic");
}

fn main() {
    let models: [(&str, fn()); 4] = [
        (
            "slots_given_back_come_to_one_owner_after_their_last_reader",
            slots_given_back_come_to_one_owner_after_their_last_reader,
        ),
        (
            "a_slot_that_leaves_the_tree_is_given_back_once_whatever_a_sweep_finds",
            a_slot_that_leaves_the_tree_is_given_back_once_whatever_a_sweep_finds,
        ),
        ("what_a_follower_looks_at_is_not_used_again", what_a_follower_looks_at_is_not_used_again),
        ("what_an_expelled_follower_reads_does_not_count", what_an_expelled_follower_reads_does_not_count),
    ];
    for (name, model) in models {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
        println!("model {name} ... ok");
    }
}
