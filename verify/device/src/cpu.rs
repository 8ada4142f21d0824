//! The processor's cache: set-associative, least recently used, written back.

use bristlecone_pm::LINE_BYTES;

use super::counts::Writer;
use super::profile::Processor;

/// A line in the cache: its number, the writer that dirtied it, and whether it is dirty.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way(u64);

const EMPTY: Way = Way(u64::MAX);
const DIRTY: u64 = 1 << 8;

impl Way {
    fn clean(line: usize) -> Self {
        Self((line as u64) << 16)
    }

    fn holds(self, line: usize) -> bool {
        self.0 >> 16 == line as u64
    }

    fn dirtied(self, by: Writer) -> Self {
        Self(self.0 & !0xffff | DIRTY | u64::from(by.0))
    }

    fn writer(self) -> Option<Writer> {
        (self != EMPTY && self.0 & DIRTY != 0).then_some(Writer(self.0 as u8))
    }
}

/// The lines of the device that are in the processor's cache.
pub(super) struct Cache {
    ways: usize,
    sets: Vec<Way>,
}

/// Result of an access.
pub(super) struct Touched {
    pub hit: bool,
    /// A dirty line that was evicted.
    pub evicted: Option<(usize, Writer)>,
}

impl Cache {
    pub fn new(processor: &Processor) -> Self {
        let ways = processor.ways.max(1);
        let sets = (processor.cache_bytes / LINE_BYTES / ways).max(1);
        Self { ways, sets: vec![EMPTY; sets * ways] }
    }

    fn set(&mut self, line: usize) -> &mut [Way] {
        let sets = (self.sets.len() / self.ways) as u64;
        // Spread by a hash, as in processors: otherwise strides would crowd a few sets.
        let hash = (line as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = ((u128::from(hash) * u128::from(sets)) >> 64) as usize;
        &mut self.sets[set * self.ways..][..self.ways]
    }

    /// Loads a line, or stores to it.
    pub fn touch(&mut self, line: usize, store: Option<Writer>) -> Touched {
        let set = self.set(line);
        let found = set.iter().position(|way| way.holds(line));
        let evicted = if found.is_none() { set[set.len() - 1] } else { EMPTY };
        let way = found.map_or(Way::clean(line), |at| set[at]);
        set.copy_within(..found.unwrap_or(set.len() - 1), 1);
        set[0] = store.map_or(way, |by| way.dirtied(by));
        Touched { hit: found.is_some(), evicted: evicted.writer().map(|by| ((evicted.0 >> 16) as usize, by)) }
    }

    /// Cleans a line; returns the writer that dirtied it, if it was dirty. The line stays in the cache.
    pub fn clean(&mut self, line: usize) -> Option<Writer> {
        let way = self.set(line).iter_mut().find(|way| way.holds(line))?;
        let writer = way.writer();
        *way = Way::clean(line);
        writer
    }

    /// Cleans and evicts a line; returns the writer that dirtied it, if it was dirty.
    pub fn evict(&mut self, line: usize) -> Option<Writer> {
        let set = self.set(line);
        let at = set.iter().position(|way| way.holds(line))?;
        let writer = set[at].writer();
        // Empty ways are at the end, where the next one is taken from.
        set.copy_within(at + 1.., at);
        set[set.len() - 1] = EMPTY;
        writer
    }

    /// Cleans every line.
    pub fn clean_all(&mut self, mut each: impl FnMut(usize, Writer)) {
        for way in &mut self.sets {
            if let Some(by) = way.writer() {
                let line = (way.0 >> 16) as usize;
                *way = Way::clean(line);
                each(line, by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Writer = Writer(5);

    fn cache(lines: usize) -> Cache {
        let processor = Processor { cache_bytes: lines * LINE_BYTES, ways: lines, ..Processor::default() };
        Cache::new(&processor)
    }

    #[test]
    fn cpu_cache_touch_when_full_evicts_the_least_recently_used_and_writes_only_dirty_lines() {
        let mut cache = cache(3);
        assert!(!cache.touch(1, Some(BY)).hit && !cache.touch(2, None).hit && !cache.touch(3, Some(BY)).hit);
        assert!(cache.touch(1, None).hit, "a load leaves a dirty line dirty");
        let touched = cache.touch(4, None);
        assert!(!touched.hit && touched.evicted.is_none(), "2 was clean");
        assert_eq!(cache.touch(5, None).evicted, Some((3, BY)));
        assert_eq!(cache.touch(6, None).evicted, Some((1, BY)));
    }

    #[test]
    fn cpu_cache_evict_gives_up_a_line_and_leaves_room_for_another() {
        let mut cache = cache(2);
        cache.touch(1, Some(BY));
        cache.touch(2, Some(BY));
        assert_eq!((cache.evict(2), cache.evict(2), cache.evict(9)), (Some(BY), None, None));
        assert!(cache.touch(3, None).evicted.is_none() && cache.touch(1, None).hit);
        assert!(!cache.touch(2, None).hit);
    }

    #[test]
    fn cpu_cache_clean_writes_a_dirty_line_once_and_keeps_it() {
        let mut cache = cache(4);
        cache.touch(0, Some(BY));
        assert_eq!((cache.clean(0), cache.clean(0), cache.clean(9)), (Some(BY), None, None));
        assert!(cache.touch(0, None).hit);
        cache.touch(0, Some(BY));
        let mut cleaned = Vec::new();
        cache.clean_all(|line, by| cleaned.push((line, by)));
        assert_eq!((cleaned, cache.clean(0)), (vec![(0, BY)], None));
    }
}
