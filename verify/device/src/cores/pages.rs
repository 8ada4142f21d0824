//! Numbers of lines, in the order in which their pages are first used: independent of addresses, which differ from run
//! to run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bristlecone_pm::LINE_BYTES;

const PAGE_BYTES: usize = 4096;
/// Number of lines of a page.
pub(super) const PAGE_LINES: u32 = (PAGE_BYTES / LINE_BYTES) as u32;

/// Hashes one number.
#[derive(Default)]
struct OneNumber(u64);

impl Hasher for OneNumber {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_usize(&mut self, number: usize) {
        self.0 = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// The pages in use.
#[derive(Default)]
pub(super) struct Pages {
    numbers: HashMap<usize, u32, BuildHasherDefault<OneNumber>>,
    addresses: Vec<usize>,
    last: (usize, u32),
}

impl Pages {
    /// Returns the number of the line of an address, and whether its page is new.
    #[inline]
    pub fn line(&mut self, address: usize) -> (u32, bool) {
        let (page, within) = (address / PAGE_BYTES, (address % PAGE_BYTES / LINE_BYTES) as u32);
        if self.last.0 == page {
            return (self.last.1 + within, false);
        }
        let next = self.addresses.len() as u32 * PAGE_LINES;
        let first = *self.numbers.entry(page).or_insert(next);
        if first == next {
            assert!(next < u32::MAX - PAGE_LINES, "more lines than the directory holds");
            self.addresses.push(page * PAGE_BYTES);
        }
        self.last = (page, first);
        (first + within, first == next)
    }

    /// Returns the address of a line.
    pub fn address(&self, line: u32) -> usize {
        self.addresses[(line / PAGE_LINES) as usize] + (line % PAGE_LINES) as usize * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_by_the_first_use_of_their_pages() {
        let mut pages = Pages::default();
        assert_eq!(pages.line(0x7000_0040), (1, true));
        assert_eq!(pages.line(0x7000_0fff), (63, false));
        assert_eq!(pages.line(0x1000), (64, true));
        assert_eq!(pages.line(0x7000_0000), (0, false));
        assert_eq!((pages.address(63), pages.address(64)), (0x7000_0fc0, 0x1000));
    }
}
