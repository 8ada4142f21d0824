//! A small dense number for every running thread, to divide shared state by.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use crate::wait;

#[derive(Default)]
struct Registry {
    returned: BinaryHeap<Reverse<usize>>,
    next: usize,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { returned: BinaryHeap::new(), next: 0 });

struct Index {
    own: usize,
    /// What the thread goes by.
    current: Cell<usize>,
}

impl Index {
    fn take() -> Self {
        let mut registry = wait::lock(&REGISTRY);
        let own = registry.returned.pop().map_or_else(
            || {
                registry.next += 1;
                registry.next - 1
            },
            |Reverse(index)| index,
        );
        Self { own, current: Cell::new(own) }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        wait::lock(&REGISTRY).returned.push(Reverse(self.own));
    }
}

thread_local! {
    static INDEX: Index = Index::take();
}

/// The calling thread's number: the smallest that no running thread had when it first asked.
/// While a thread's locals are being destroyed it shares number 0.
#[inline]
pub fn thread_index() -> usize {
    own_thread_index().unwrap_or(0)
}

/// The same, but none where the number might be another thread's too.
#[inline]
pub fn own_thread_index() -> Option<usize> {
    INDEX.try_with(|index| index.current.get()).ok()
}

/// From now on the calling thread stands for a simulated one of this number; with `None`, for itself.
pub fn assume_thread_index(number: Option<usize>) {
    let _ = INDEX.try_with(|index| index.current.set(number.unwrap_or(index.own)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_threads_differ() {
        let here = thread_index();
        let there = std::thread::spawn(thread_index).join().unwrap();
        assert_ne!(here, there);
        assert_eq!(here, thread_index());
    }
}
