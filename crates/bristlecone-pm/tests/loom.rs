//! How slots change hands, in every order of the steps, as far as threads preempt each other twice.
//!
//! The file of the slots is compiled here once more, over loom's atomics. There is no harness: a
//! panic in a model ends the program.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use loom::thread;

/// In the place of `src/sync/atomic.rs`.
mod sync {
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize};
}

#[allow(dead_code, reason = "the file serves the whole crate")]
#[path = "../src/alloc/slots.rs"]
mod slots;

use slots::Slots;

const ALL: u64 = 0b11;

/// Two slots and what is in them: loom notices a thread that reads or writes there unordered.
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

    /// Takes what is free and writes to all of it; which slots that was.
    fn take_and_write(&self) -> u64 {
        let Some((_, free)) = self.slots.take_word() else { return 0 };
        for (slot, contents) in self.contents.iter().enumerate().filter(|(slot, _)| free >> slot & 1 != 0) {
            // SAFETY: the thread that took a slot is alone with it; loom reports if not.
            contents.with_mut(|contents| unsafe { *contents = 1 + slot as u64 });
        }
        free
    }

    /// Looks at the first slot for the last time, as readers of an earlier epoch, and frees it.
    fn leave_and_give(&self) {
        // SAFETY: it is taken, so no thread writes to it; loom reports if not.
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
    // A thread that removes an item keeps its slot before it is unlinked, and frees it an epoch later.
    chunk.slots.know(0);
    chunk.linked.store(false, Release);
    chunk.leave_and_give();
    sweep.join().expect("no slot is freed twice");
    assert!(taker.join().expect("no panic") <= 1);
}

fn main() {
    let models: [(&str, fn()); 2] = [
        (
            "slots_given_back_come_to_one_owner_after_their_last_reader",
            slots_given_back_come_to_one_owner_after_their_last_reader,
        ),
        (
            "a_slot_that_leaves_the_tree_is_given_back_once_whatever_a_sweep_finds",
            a_slot_that_leaves_the_tree_is_given_back_once_whatever_a_sweep_finds,
        ),
    ];
    for (name, model) in models {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
        println!("model {name} ... ok");
    }
}
