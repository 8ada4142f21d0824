//! Work on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Applies the same work to all items, on `threads` threads.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((item, result)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|at| items.get(at).zip(results.get(at)))
                {
                    *result.lock().expect("it is locked once") = Some(work(item));
                }
            });
        }
    });
    let results = results.into_iter().map(|result| result.into_inner().expect("it is locked once"));
    results.map(|result| result.expect("every item was worked on")).collect()
}
