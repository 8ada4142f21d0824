//! A table in process memory that grows where it is used.

use std::sync::OnceLock;

/// Values of a page, and pages of a folder.
const FANOUT: usize = 1 << 7;
const FOLDERS: usize = 1 << 6;

type Page<T> = Box<[T]>;
type Folder<T> = Box<[OnceLock<Page<T>>]>;

/// Values by number, in pages that are created when one of their values is first needed. Numbers that are further
/// apart than 2^20 may share a value.
#[derive(Debug)]
pub struct Sparse<T>(OnceLock<Box<[OnceLock<Folder<T>>]>>);

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

fn new_box<T: Default>(length: usize) -> Box<[T]> {
    (0..length).map(|_| T::default()).collect()
}

impl<T: Default> Sparse<T> {
    /// Returns the value of a number, and creates its page if necessary.
    #[inline]
    pub fn of(&self, number: usize) -> &T {
        let folders = self.0.get_or_init(|| new_box(FOLDERS));
        let folder = folders[number / FANOUT / FANOUT % FOLDERS].get_or_init(|| new_box(FANOUT));
        let page = folder[number / FANOUT % FANOUT].get_or_init(|| new_box(FANOUT));
        &page[number % FANOUT]
    }
}

impl<T> Sparse<T> {
    /// Returns the value of a number, if its page exists.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        let folder = self.0.get()?[number / FANOUT / FANOUT % FOLDERS].get()?;
        Some(&folder[number / FANOUT % FANOUT].get()?[number % FANOUT])
    }

    fn pages(&self) -> impl Iterator<Item = &Page<T>> {
        let folders = self.0.get().into_iter().flatten().filter_map(OnceLock::get);
        folders.flatten().filter_map(OnceLock::get)
    }

    /// Returns the values of all pages.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.pages().flatten()
    }

    /// Returns the bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.pages().map(|page| size_of_val(&**page) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn values_are_kept_where_they_were_asked_for() {
        let table = Sparse::<AtomicU32>::default();
        assert!(table.get(0).is_none() && table.bytes() == 0);
        let numbers = [0, 1, 127, 128, 1 << 14, (1 << 20) - 1];
        for number in numbers {
            table.of(number).store(number as u32 + 1, Relaxed);
        }
        for number in numbers {
            assert_eq!(table.get(number).map(|value| value.load(Relaxed)), Some(number as u32 + 1));
        }
        // Four pages of 128 values.
        assert_eq!((table.all().count(), table.bytes()), (4 * 128, 4 * 128 * 4));
        assert!(table.get(2 << 14).is_none());
        assert!(std::ptr::eq(table.of(5), table.of(5 + (1 << 20))));
    }
}
