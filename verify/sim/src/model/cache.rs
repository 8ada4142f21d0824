//! The crash model: contents that the medium certainly has, and contents that it may have.
//!
//! Every store is part of one global order. A flush promises the earlier stores to its line, once
//! the *same thread* fences or, on x86, succeeds in a locked instruction. Promised stores are in
//! every image; of the rest, each line keeps its own choice, independently.

use std::sync::Arc;

use crate::model::image::{Kept, Possible, Unpromised};
use crate::model::lines::{LineMap, WordSet, difference};
use crate::model::memory::{LINE_WORDS, Line, Memory};
use crate::model::mode::Mode;
use crate::model::trace::Event;

/// The state of all lines after a prefix of a trace.
#[derive(Clone)]
pub struct Cache {
    mode: Mode,
    base: Arc<[Line]>,
    /// Durable lines that differ from the base.
    durable: LineMap<Line>,
    /// Words whose durable value was stored since, a bit each.
    overwritten: LineMap<u8>,
    /// Stores not promised yet; lines that were dirty once stay, with an empty list.
    dirty: LineMap<Vec<Unpromised>>,
    underway: LineMap<Vec<(u32, u64)>>,
    stores: u64,
    /// Number of orders of each thread.
    groups: LineMap<u64>,
}

impl Cache {
    /// Creates the cache of a memory that is entirely durable.
    pub fn new(mode: Mode, memory: &Memory) -> Self {
        let base = (0..memory.lines() as u32).map(|line| memory.line(line)).collect();
        Self::over(mode, base, LineMap::default())
    }

    pub(crate) fn over(mode: Mode, base: Arc<[Line]>, durable: LineMap<Line>) -> Self {
        let (overwritten, dirty, groups) = (LineMap::default(), LineMap::default(), LineMap::default());
        Self { mode, base, durable, overwritten, dirty, underway: LineMap::default(), stores: 0, groups }
    }

    /// Makes the durable contents the new base of images.
    pub(crate) fn rebase(&mut self) {
        let mut base = self.base.to_vec();
        for (line, contents) in self.durable.drain() {
            base[line as usize] = contents;
        }
        self.base = base.into();
    }

    pub(crate) fn base(&self) -> &Arc<[Line]> {
        &self.base
    }

    pub(crate) fn durable(&self) -> &LineMap<Line> {
        &self.durable
    }

    /// Returns a hash of the durable contents.
    pub(crate) fn durable_hash(&self) -> u64 {
        let hash = |(line, contents): (&u32, &Line)| difference(&self.base, *line, contents);
        self.durable.iter().map(hash).fold(0, u64::wrapping_add)
    }

    /// Returns the words that hold, in every image, a value stored since the cache began.
    pub(crate) fn overwritten(&self, memory: &Memory) -> WordSet {
        let words = WordSet::none(memory);
        // A dirty line may keep these words, or newer ones: both were stored since.
        self.overwritten.iter().for_each(|(line, bits)| words.add_of_line(*line, *bits));
        words
    }

    /// Returns and clears the overwritten words: from now on only later stores count.
    pub(crate) fn take_overwritten(&mut self, memory: &Memory) -> WordSet {
        let words = self.overwritten(memory);
        self.overwritten.clear();
        words
    }

    /// Returns the number of stores fed so far.
    pub(crate) fn stores(&self) -> u64 {
        self.stores
    }

    pub(crate) fn durable_line(&self, line: u32) -> Line {
        *self.durable.get(&line).unwrap_or(&self.base[line as usize])
    }

    /// Takes one event into account.
    pub fn feed(&mut self, event: &Event) {
        match *event {
            Event::Store { lost: true, .. } => {}
            Event::Store { word, value, thread, .. } => self.store(word, value, thread),
            Event::Extended { word, value, thread } => self.keep_back(word, value, thread),
            Event::Flush { line, thread, .. } => {
                self.underway.entry(thread).or_default().push((line, self.stores));
            }
            Event::Fence { thread, .. } => self.promise(thread),
            Event::Locked { word, value, thread, lost, .. } => {
                // Neither ARM's instruction nor page write-back is known to wait for flushes.
                if self.mode != Mode::Subset {
                    self.promise(thread);
                }
                if !lost {
                    self.store(word, value, thread);
                }
            }
            Event::Order { thread, .. } => *self.groups.entry(thread).or_default() += 1,
            Event::Mark(_) => {}
        }
    }

    fn store(&mut self, word: u32, value: u64, thread: u32) {
        if self.mode != Mode::Eadr {
            return self.keep_back(word, value, thread);
        }
        let (line, word) = (word / LINE_WORDS as u32, word as usize % LINE_WORDS);
        self.stores += 1;
        self.durable.entry(line).or_insert_with(|| self.base[line as usize])[word] = value;
        *self.overwritten.entry(line).or_default() |= 1 << word;
    }

    /// Records a store that is not on the medium yet.
    fn keep_back(&mut self, word: u32, value: u64, thread: u32) {
        let (line, word) = (word / LINE_WORDS as u32, word as usize % LINE_WORDS);
        self.stores += 1;
        let (number, group) = (self.stores, self.groups.get(&thread).copied().unwrap_or_default());
        let store = Unpromised { word, value, number, thread, group };
        self.dirty.entry(line).or_default().push(store);
    }

    fn promise(&mut self, thread: u32) {
        let Some(underway) = self.underway.get_mut(&thread) else { return };
        for (line, upto) in underway.drain(..) {
            let Some(stores) = self.dirty.get_mut(&line) else {
                continue;
            };
            let promised = stores.iter().take_while(|store| store.number <= upto).count();
            if promised == 0 {
                continue;
            }
            let contents = self.durable.entry(line).or_insert_with(|| self.base[line as usize]);
            let overwritten = self.overwritten.entry(line).or_default();
            for store in stores.drain(..promised) {
                contents[store.word] = store.value;
                *overwritten |= 1 << store.word;
            }
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the possible contents of each line if the crash comes now.
    pub(crate) fn possible(&self) -> Possible {
        let kept = |(line, stores): (&u32, &Vec<Unpromised>)| {
            Kept::new(*line, self.durable_line(*line), stores, self.mode)
        };
        let mut lines: Vec<_> =
            self.dirty.iter().filter(|(_, stores)| !stores.is_empty()).map(kept).collect();
        lines.sort_unstable_by_key(|kept| kept.line);
        Possible::new(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bristlecone_pm::{Flushed, Medium, Persist};
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::medium::sim::Sim;

    /// Returns all images of the first line that a crash could leave now, by their first two words.
    fn images(sim: &Sim, mode: Mode, memory: &Memory) -> BTreeSet<[u64; 2]> {
        let mut cache = Cache::new(mode, memory);
        sim.take_trace().iter().for_each(|event| cache.feed(event));
        let durable = cache.durable_line(0);
        match cache.possible().lines.iter().find(|kept| kept.line == 0) {
            Some(kept) => kept.contents.iter().map(|line| [line[0], line[1]]).collect(),
            None => [[durable[0], durable[1]]].into(),
        }
    }

    /// Runs on fresh memory and returns the images in prefix and in subset mode.
    fn both(run: impl Fn(&Sim, &Memory)) -> [BTreeSet<[u64; 2]>; 2] {
        [Mode::Prefix, Mode::Subset].map(|mode| {
            let (zeroed, memory) = (Memory::new(256), Memory::new(256));
            let sim = Sim::new(&memory);
            run(&sim, &memory);
            images(&sim, mode, &zeroed)
        })
    }

    fn put(sim: &Sim, memory: &Memory, at: usize, value: u64) {
        memory.words(at, 1)[0].store(sim, value);
    }

    #[test]
    fn cache_unflushed_stores_leave_a_prefix_of_the_line_or_any_choice_of_its_words() {
        let [prefix, subset] = both(|sim, memory| {
            put(sim, memory, 0, 1);
            put(sim, memory, 1, 2);
            put(sim, memory, 0, 3);
        });
        assert_eq!(prefix, [[0, 0], [1, 0], [1, 2], [3, 2]].into());
        assert_eq!(subset, [[0, 0], [0, 2], [1, 0], [1, 2], [3, 0], [3, 2]].into());
    }

    #[test]
    fn cache_order_within_line_in_subset_mode_leaves_prefixes() {
        let [prefix, subset] = both(|sim, memory| {
            put(sim, memory, 0, 1);
            let _ = sim.ordered_within_line();
            put(sim, memory, 1, 2);
        });
        assert_eq!(prefix, [[0, 0], [1, 0], [1, 2]].into());
        assert_eq!(subset, prefix);
    }

    #[test]
    fn cache_order_within_line_of_one_thread_leaves_others_unordered() {
        let elsewhere = |run: &(dyn Fn() + Sync)| {
            std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
        };
        // Another thread's store is before the order, after it, or the order is another thread's.
        let [_, subset] = both(|sim, memory| {
            elsewhere(&|| put(sim, memory, 0, 1));
            let _ = sim.ordered_within_line();
            put(sim, memory, 1, 2);
        });
        assert_eq!(subset, [[0, 0], [1, 0], [0, 2], [1, 2]].into());
        let [_, subset] = both(|sim, memory| {
            put(sim, memory, 0, 1);
            elsewhere(&|| _ = sim.ordered_within_line());
            put(sim, memory, 1, 2);
        });
        assert_eq!(subset, [[0, 0], [1, 0], [0, 2], [1, 2]].into());
        // Each thread has its own order: 1 before 2, and 5 before 6.
        let [_, subset] = both(|sim, memory| {
            put(sim, memory, 0, 1);
            elsewhere(&|| {
                put(sim, memory, 1, 5);
                let _ = sim.ordered_within_line();
                put(sim, memory, 0, 6);
            });
            let _ = sim.ordered_within_line();
            put(sim, memory, 1, 2);
        });
        // Word 0 holds 6 only with 5 or a later value, word 1 holds 2 only with 1 or a later value.
        assert_eq!(subset, [[0, 0], [1, 0], [0, 5], [1, 5], [6, 5], [1, 2], [6, 2]].into());
    }

    #[test]
    fn cache_fence_after_flush_promises_what_preceded_the_flush() {
        let both = both(|sim, memory| {
            put(sim, memory, 0, 1);
            let flushed = sim.flush(&memory.words(0, 1)[0], "here");
            put(sim, memory, 1, 2);
            let _ = sim.fence(flushed, "here");
        });
        assert_eq!(both, [[[1, 0], [1, 2]].into(), [[1, 0], [1, 2]].into()]);
    }

    #[test]
    fn cache_flush_or_fence_alone_promises_nothing() {
        for flushes in [true, false] {
            let [prefix, _] = both(|sim, memory| {
                put(sim, memory, 0, 1);
                if flushes {
                    let _ = sim.flush(&memory.words(0, 1)[0], "here");
                } else {
                    let _ = sim.fence(Flushed::none(), "here");
                }
            });
            assert_eq!(prefix, [[0, 0], [1, 0]].into());
        }
    }

    #[test]
    fn cache_fence_of_another_thread_promises_nothing() {
        let [prefix, _] = both(|sim, memory| {
            put(sim, memory, 0, 1);
            let _flushed = sim.flush(&memory.words(0, 1)[0], "here");
            std::thread::scope(|scope| scope.spawn(|| sim.fence(Flushed::none(), "there")).join())
                .map(|durable| _ = durable)
                .expect("no panic");
        });
        assert_eq!(prefix, [[0, 0], [1, 0]].into());
    }

    #[test]
    fn cache_locked_instruction_is_a_fence_only_on_x86_and_if_it_succeeds() {
        for (current, images) in [(0, vec![[1, 0]]), (7, vec![[0, 0], [1, 0]])] {
            let [prefix, subset] = both(|sim, memory| {
                put(sim, memory, 0, 1);
                let _ = sim.flush(&memory.words(0, 1)[0], "here");
                let other = &memory.words(8, 1)[0];
                let proof = sim.ordered_within_line();
                assert_eq!(other.publish_if(sim, current, 1, &proof).is_ok(), current == 0);
            });
            assert_eq!((prefix, subset), (images.into_iter().collect(), [[0, 0], [1, 0]].into()));
        }
    }

    #[test]
    fn cache_crash_in_eadr_mode_loses_nothing() {
        let (zeroed, memory) = (Memory::new(256), Memory::new(256));
        let sim = Sim::new(&memory);
        put(&sim, &memory, 0, 1);
        put(&sim, &memory, 1, 2);
        assert_eq!(images(&sim, Mode::Eadr, &zeroed), [[1, 2]].into());
    }

    #[test]
    #[should_panic(expected = "outside the memory")]
    fn sim_store_outside_its_memory_panics() {
        Sim::new(&Memory::new(64)).store(&AtomicU64::new(0), 1, Ordering::Relaxed);
    }
}
