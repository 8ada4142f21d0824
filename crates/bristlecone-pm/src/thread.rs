//! A small dense number for every running thread, to divide shared state by.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
struct Registry {
    returned: BinaryHeap<Reverse<usize>>,
    next: usize,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { returned: BinaryHeap::new(), next: 0 });

struct Index(usize);

impl Index {
    fn take() -> Self {
        let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        Self(registry.returned.pop().map_or_else(
            || {
                registry.next += 1;
                registry.next - 1
            },
            |Reverse(index)| index,
        ))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        REGISTRY.lock().unwrap_or_else(PoisonError::into_inner).returned.push(Reverse(self.0));
    }
}

thread_local! {
    static INDEX: Index = Index::take();
}

/// The calling thread's number: the smallest that no running thread had when it first asked.
pub fn thread_index() -> usize {
    // While a thread's locals are being destroyed it shares number 0; nobody relies on the number
    // being its own.
    INDEX.try_with(|index| index.0).unwrap_or(0)
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
