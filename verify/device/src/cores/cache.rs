//! Set-associative caches with least-recently-used replacement.

use bristlecone_pm::LINE_BYTES;

/// No line.
const EMPTY: u32 = u32::MAX;

/// The lines in a cache, by their numbers.
pub(super) struct Cache {
    ways: usize,
    sets: Box<[u32]>,
}

impl Cache {
    pub fn new(bytes: usize, ways: usize) -> Self {
        let sets = (bytes / LINE_BYTES / ways).max(1);
        Self { ways, sets: vec![EMPTY; sets * ways].into() }
    }

    fn set(&mut self, line: u32) -> &mut [u32] {
        let sets = (self.sets.len() / self.ways) as u64;
        // Spread by a hash: a set would otherwise depend on the order in which lines were first used.
        let hash = u64::from(line).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let set = ((hash * sets) >> 32) as usize;
        &mut self.sets[set * self.ways..][..self.ways]
    }

    /// Returns whether a line is in the cache, and makes it the most recently used.
    pub fn hit(&mut self, line: u32) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|way| *way == line) else { return false };
        set.copy_within(..at, 1);
        set[0] = line;
        true
    }

    /// Puts a line into the cache that is not there, and returns the one that it replaces.
    pub fn fill(&mut self, line: u32) -> Option<u32> {
        let set = self.set(line);
        let last = set.len() - 1;
        let evicted = set[last];
        set.copy_within(..last, 1);
        set[0] = line;
        (evicted != EMPTY).then_some(evicted)
    }

    /// Removes a line; returns whether it was there.
    pub fn remove(&mut self, line: u32) -> bool {
        let set = self.set(line);
        let Some(at) = set.iter().position(|way| *way == line) else { return false };
        // Empty ways are at the end, where the next one is taken from.
        set.copy_within(at + 1.., at);
        set[set.len() - 1] = EMPTY;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_fill_replaces_the_least_recently_used_line() {
        let mut cache = Cache::new(3 * LINE_BYTES, 3);
        assert!([1, 2, 3].iter().all(|line| cache.fill(*line).is_none()));
        assert!(cache.hit(1) && !cache.hit(9));
        assert_eq!((cache.fill(4), cache.fill(5)), (Some(2), Some(3)));
        assert!(cache.remove(1) && !cache.remove(1) && !cache.hit(1));
        assert_eq!((cache.fill(6), cache.fill(7)), (None, Some(4)));
    }
}
