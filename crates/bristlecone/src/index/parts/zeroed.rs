//! Sparse tables with the length for the maximum pool size: memory is allocated only when it is touched.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use bristlecone_pm::Zeroed;

/// Returns a box of `len` zeroed values.
pub fn zeroed<T: Zeroed>(len: usize) -> Box<[T]> {
    let layout = Layout::array::<T>(len).expect("a table that fits the address space");
    if layout.size() == 0 {
        return Box::default();
    }
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: this many values of zeros, which are valid, in memory that was allocated as a box of them would be.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start.cast(), len)) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use bristlecone_pm::sync::AtomicU64;

    use super::*;

    #[test]
    fn tables_begin_as_zeros_and_go() {
        for len in [0, 1, 1 << 20] {
            let table = zeroed::<AtomicU64>(len);
            assert!(table.len() == len && table.iter().all(|word| word.load(Relaxed) == 0));
        }
    }

    #[test]
    fn a_long_table_takes_no_memory_before_it_is_used() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        let table = zeroed::<AtomicU64>(1 << 28);
        table[1 << 27].store(7, Relaxed);
        assert!(resident() - before < 64 << 20, "{} bytes", resident() - before);
    }
}
