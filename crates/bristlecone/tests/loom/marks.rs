//! NBTree's marks of pending flushes.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use loom::thread;

use crate::active_threads::full_barrier;
use crate::expect_failure;
use crate::pending::Pending;

/// A line of a leaf: its current value, and its durable value.
struct Line {
    pending: Pending,
    value: AtomicU64,
    durable: AtomicU64,
}

impl Line {
    const NUMBER: usize = 4;

    fn new() -> Arc<Self> {
        let pending = Pending::default();
        Arc::new(Self { pending, value: AtomicU64::new(0), durable: AtomicU64::new(0) })
    }

    /// Models a flush and its fence, for the values visible to the flushing thread.
    fn flush(&self) {
        self.durable.fetch_max(self.value.load(Relaxed), Relaxed);
    }

    fn write(&self, value: u64) {
        let note = self.pending.enter(Self::NUMBER);
        self.value.fetch_max(value, AcqRel);
        self.pending.note_removed(-1);
        self.flush();
        self.pending.leave(note);
    }

    /// Reads like every reader: helps if a flush is pending.
    fn read(&self) -> u64 {
        let value = self.value.load(Acquire);
        if self.pending.is_flushing(Self::NUMBER) {
            self.flush();
        }
        value
    }
}

pub fn what_is_shown_is_durable() {
    let line = Line::new();
    let writers: Vec<_> = (1..=2)
        .map(|value| {
            let line = Arc::clone(&line);
            thread::spawn(move || line.write(value))
        })
        .collect();
    let shown = line.read();
    let durable = line.durable.load(Relaxed);
    assert!(durable >= shown, "{shown} was shown, {durable} is durable");
    for writer in writers {
        writer.join().expect("the writer does not panic");
    }
    assert!(!line.pending.is_flushing_anywhere());
    assert_eq!((line.pending.removed(), line.durable.load(Relaxed)), (-2, 2));
}

/// Lets two writers change a value while a thread asks them to stop. If that thread finds no mark,
/// it relies on the value being stable.
fn stop_writers(looks: bool, barrier: fn()) {
    let leaf = Arc::new((Pending::default(), AtomicU64::new(0), AtomicU64::new(0)));
    let write = |value: u64| {
        let leaf = Arc::clone(&leaf);
        thread::spawn(move || {
            let (pending, still, held) = &*leaf;
            let note = pending.enter(Line::NUMBER);
            if !looks || still.load(Relaxed) == 0 {
                held.fetch_or(value, AcqRel);
            }
            pending.leave(note);
        })
    };
    let writers = [write(1), write(2)];
    let (pending, still, held) = &*leaf;
    still.fetch_or(1, Relaxed);
    barrier();
    let seen = (!pending.is_flushing_anywhere()).then(|| held.load(Relaxed));
    for writer in writers {
        writer.join().expect("the writer does not panic");
    }
    assert!(seen.is_none_or(|seen| seen == held.load(Relaxed)), "a value changed that stays");
}

pub fn values_of_a_leaf_whose_writers_stopped_stay() {
    stop_writers(true, full_barrier);
}

/// Writers must check for the stop after their marks.
pub fn without_its_look_a_writer_is_missed() {
    expect_failure(|| stop_writers(false, full_barrier));
}

/// The thread that stops them must check the marks behind a barrier.
pub fn without_its_barrier_a_leaf_misses_a_writer() {
    expect_failure(|| stop_writers(true, || {}));
}
