//! The recording medium.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Domain, LINE_BYTES, Medium, Region, Step};

use crate::cache::Mode;
use crate::lines::WordSet;
use crate::memory::{LINE_WORDS, Memory};
use crate::schedule::{At, offer};
use crate::stopped;
use crate::trace::{Event, FILE, Mark, Site, SiteKind};
use crate::watch;

/// A change of the code under test at one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The flush does nothing, or the fence, or the order.
    Remove(Site),
    /// The flush writes back the line after the right one.
    Shift(Site),
    /// The publish comes before the store that preceded it.
    Swap(Site),
    /// The store is seen, but never reaches the medium.
    Lose(Site),
}

/// A medium that carries out every access and records those that matter to a crash. Clones share
/// memory and record.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    memory: Memory,
    /// The address of the memory and how many words it has, at hand.
    base: usize,
    words: usize,
    /// What the code believes in.
    domain: Domain,
    mutation: Option<Mutation>,
    mutated: AtomicBool,
    /// Whether every access offers the next turn to any simulated thread.
    takes_turns: AtomicBool,
    /// How many requests for room are granted, and how many refused after them.
    room: Mutex<(u64, u64)>,
    /// Accesses left before the run counts as hung.
    fuel: AtomicU64,
    trace: Mutex<Vec<Event>>,
    /// Words that were read before this run stored to them.
    reads: WordSet,
    stored: WordSet,
}

/// Events that a record has room for at first: few recoveries have more.
const EVENTS: usize = 256;
/// The name under which the length of the file is made durable.
const EXTEND: Step = "pool extend";
/// Accesses that a run may do: far more than any scenario needs.
const FUEL: u64 = 50_000_000;
/// The same for the recovery of an explored image, its checks and its life.
const EXPLORED_FUEL: u64 = 5_000_000;

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("mutation", &self.0.mutation).finish_non_exhaustive()
    }
}

thread_local! {
    static OWN: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static SIMULATED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The number of the calling thread in traces.
pub(crate) fn thread() -> u32 {
    SIMULATED.get().unwrap_or_else(|| OWN.with(|own| *own))
}

/// The calling thread stands for a simulated one of this number, or for itself.
pub(crate) fn assume_thread(number: Option<u32>) {
    SIMULATED.set(number);
}

impl Sim {
    /// A medium over `memory` with an empty record.
    pub fn new(memory: &Memory) -> Self {
        Self::mutated(memory, None)
    }

    /// A medium under which the code behaves as if it were changed.
    pub fn mutated(memory: &Memory, mutation: Option<Mutation>) -> Self {
        Self::made(memory, Domain::Adr, mutation, FUEL)
    }

    /// A medium of the domain that a mode stands for.
    pub(crate) fn explored(memory: &Memory, mode: Mode, mutation: Option<Mutation>) -> Self {
        Self::made(memory, mode.domain(), mutation, EXPLORED_FUEL)
    }

    fn made(memory: &Memory, domain: Domain, mutation: Option<Mutation>, fuel: u64) -> Self {
        let (mutated, takes_turns) = (AtomicBool::new(false), AtomicBool::new(false));
        let (memory, trace) = (memory.clone(), Mutex::new(Vec::with_capacity(EVENTS)));
        let (base, words) = (memory.base(), memory.reach());
        let (reads, stored) = (WordSet::none(&memory), WordSet::none(&memory));
        let fuel = AtomicU64::new(fuel);
        Self(Arc::new(Inner {
            memory,
            base,
            words,
            domain,
            mutation,
            mutated,
            takes_turns,
            room: Mutex::new((u64::MAX, 0)),
            fuel,
            trace,
            reads,
            stored,
        }))
    }

    /// The domain that pools on the medium are opened in.
    pub fn domain(&self) -> Domain {
        self.0.domain
    }

    /// Returns the bytes of the pool as a process finds them that opens the file: what a crash left behind its
    /// end is gone.
    pub fn region(&self) -> Region {
        let memory = &self.0.memory;
        if let Some(length) = memory.length_word() {
            self.read(length);
        }
        let lost: Vec<u32> = memory.lost_words().collect();
        let at = Location::caller();
        for word in &lost {
            memory.set_word(*word, 0);
            let line = word / LINE_WORDS as u32;
            let (publish, derived, lost) = (None, false, false);
            self.record(Event::Store { word: *word, value: 0, thread: FILE, publish, derived, lost, at });
            self.record(Event::Flush { line, thread: FILE, step: "the end of the file", at });
        }
        if !lost.is_empty() {
            self.record(Event::Fence { thread: FILE, step: "the end of the file", at });
        }
        memory.region()
    }

    /// Has the medium refuse room: it grants so many requests, refuses so many more, and grants the rest.
    pub fn refuse_room(&self, granted: u64, refused: u64) {
        *wait::lock(&self.0.room) = (granted, refused);
    }

    /// From now on every access is a turn of the schedule, or no longer.
    pub(crate) fn take_turns(&self, whether: bool) {
        self.0.takes_turns.store(whether, Ordering::Relaxed);
    }

    fn turn(&self) {
        if self.takes_turns() {
            offer(At::Medium);
        }
    }

    /// Returns whether every access is a turn of the schedule.
    pub fn takes_turns(&self) -> bool {
        self.0.takes_turns.load(Ordering::Relaxed)
    }

    /// A turn where something was decided, or is about to be.
    fn cross(&self) {
        if self.takes_turns() {
            offer(At::Decision);
        }
    }

    /// Whether the mutation changed anything so far.
    pub fn was_mutated(&self) -> bool {
        self.0.mutated.load(Ordering::Relaxed)
    }

    /// Notes that the mutation applies here.
    fn mutates(&self, applies: bool) -> bool {
        if applies {
            self.0.mutated.store(true, Ordering::Relaxed);
        }
        applies
    }

    /// The memory under the medium.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Notes where the scenario stands.
    pub fn mark(&self, mark: Mark) {
        self.record(Event::Mark(mark));
    }

    /// What was recorded since the start or the last call.
    pub fn take_trace(&self) -> Vec<Event> {
        std::mem::replace(&mut *self.trace(), Vec::with_capacity(EVENTS))
    }

    /// The words of which the run read what was there before it.
    pub(crate) fn reads(&self) -> &WordSet {
        &self.0.reads
    }

    /// How many events the record holds.
    pub fn events(&self) -> usize {
        self.trace().len()
    }

    fn trace(&self) -> MutexGuard<'_, Vec<Event>> {
        // A panic of the code under test is a finding, not the end of the record.
        self.0.trace.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn record(&self, event: Event) {
        self.trace().push(event);
    }

    /// Lets the run go on for one more access.
    fn burn(&self) {
        // Threads may forget each other's accesses: it is a bound, not a count.
        let fuel = self.0.fuel.load(Ordering::Relaxed);
        if fuel == 0 && !std::thread::panicking() {
            panic!("the run does not end: millions of accesses so far; {}", watch::place());
        }
        self.0.fuel.store(fuel.saturating_sub(1), Ordering::Relaxed);
    }

    fn word(&self, cell: &AtomicU64) -> u32 {
        self.burn();
        let address = std::ptr::from_ref(cell) as usize;
        let word = address.wrapping_sub(self.0.base) / 8;
        assert!(word < self.0.words, "an access outside the memory");
        word as u32
    }

    /// What was read and stored so far counts as having been there before.
    pub(crate) fn begin_again(&self) {
        self.0.reads.clear();
        self.0.stored.clear();
    }

    fn read(&self, word: u32) {
        if !self.0.stored.contains(word) {
            self.0.reads.add(word);
        }
    }

    /// The first and the last word of a range that is not empty.
    fn ends_of(&self, start: *const u8, bytes: usize) -> [usize; 2] {
        let word_at = |address| self.0.memory.word_at(address).expect("a range outside the memory");
        [start as usize, start as usize + bytes - 1].map(word_at)
    }

    /// Stores and records in one critical section, so that the trace has the order of the memory.
    fn put(&self, cell: &AtomicU64, value: u64, order: Ordering, site: Site) {
        self.turn();
        let word = self.word(cell);
        let lost = self.is_changed(Mutation::Lose(site));
        let (publish, derived) = match site.kind {
            SiteKind::Publish => (Some(site.step), false),
            kind => (None, kind == SiteKind::Derived),
        };
        let event = Event::Store { word, value, thread: thread(), publish, derived, lost, at: site.at };
        self.0.stored.add(word);
        self.0.memory.use_line(word / LINE_WORDS as u32);
        let mut trace = self.trace();
        cell.store(value, order);
        self.insert(&mut trace, event, site);
        drop(trace);
        if publish.is_some() {
            self.cross();
        }
    }

    /// Records a store, before the one that preceded it if the two are swapped.
    fn insert(&self, trace: &mut Vec<Event>, event: Event, site: Site) {
        let swapped = self.0.mutation == Some(Mutation::Swap(site));
        let before = if swapped { last_store(trace, thread()) } else { None };
        self.mutates(before.is_some());
        trace.insert(before.unwrap_or(trace.len()), event);
    }

    /// Whether the code is to behave as if it were changed so, which it does from here on.
    fn is_changed(&self, change: Mutation) -> bool {
        self.mutates(self.0.mutation == Some(change))
    }
}

/// The last store of a thread in the operation under way.
fn last_store(trace: &[Event], by: u32) -> Option<usize> {
    trace
        .iter()
        .enumerate()
        .rev()
        .take_while(|(_, event)| !matches!(event, Event::Mark(_)))
        .find(|(_, event)| matches!(event, Event::Store { thread, .. } if *thread == by))
        .map(|(at, _)| at)
}

impl Medium for Sim {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.turn();
        self.read(self.word(cell));
        cell.load(order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.put(cell, value, order, Site::unnamed(SiteKind::Store, Location::caller()));
    }

    fn store_derived(&self, cell: &AtomicU64, value: u64) {
        self.put(cell, value, Ordering::Relaxed, Site::unnamed(SiteKind::Derived, Location::caller()));
    }

    fn publish(&self, cell: &AtomicU64, value: u64, step: Step) {
        watch::pass(step);
        self.cross();
        let site = Site { kind: SiteKind::Publish, step, at: Location::caller() };
        self.put(cell, value, Ordering::Release, site);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.cross();
        let word = self.word(cell);
        let site = Site::unnamed(SiteKind::Swap, Location::caller());
        self.read(word);
        let mut trace = self.trace();
        let done = cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            self.0.memory.use_line(word / LINE_WORDS as u32);
            let lost = self.is_changed(Mutation::Lose(site));
            let event = Event::Locked { word, value: new, thread: thread(), lost, at: site.at };
            self.insert(&mut trace, event, site);
            self.0.stored.add(word);
        }
        drop(trace);
        self.cross();
        done
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.turn();
        self.burn();
        watch::pass(step);
        let at = Location::caller();
        let site = Site { kind: SiteKind::Flush, step, at };
        if bytes == 0 || self.is_changed(Mutation::Remove(site)) {
            return;
        }
        let memory = &self.0.memory;
        let [first, last] = self.ends_of(start, bytes).map(|word| word / LINE_WORDS);
        debug_assert!(last - first <= bytes / LINE_BYTES + 1);
        let shift = usize::from(self.is_changed(Mutation::Shift(site)));
        let mut trace = self.trace();
        for line in first..=last {
            let line = ((line + shift) % memory.lines()) as u32;
            trace.push(Event::Flush { line, thread: thread(), step, at });
        }
    }

    fn drain(&self, step: Step) {
        self.cross();
        self.burn();
        watch::pass(step);
        let at = Location::caller();
        if !self.is_changed(Mutation::Remove(Site { kind: SiteKind::Fence, step, at })) {
            self.record(Event::Fence { thread: thread(), step, at });
        }
    }

    fn about_to_read(&self, start: *const u8, bytes: usize) {
        self.cross();
        self.burn();
        if bytes > 0 {
            let [first, last] = self.ends_of(start, bytes);
            (first..=last).for_each(|word| self.read(word as u32));
        }
    }

    fn prefetch(&self, _address: *const u8) {
        self.burn();
    }

    fn reached(&self, step: Step) {
        self.cross();
        self.burn();
        watch::pass(step);
        stopped::pass(step);
    }

    fn extended(&self, last: &AtomicU64) {
        self.turn();
        let Some(length) = self.0.memory.length_word() else { return };
        let value = (u64::from(self.word(last)) + 1) * size_of::<u64>() as u64;
        let mut trace = self.trace();
        if value > self.0.memory.length() {
            self.0.memory.set_word(length, value);
            self.0.stored.add(length);
            trace.push(Event::Extended { word: length, value, thread: thread() });
        }
        let at = Location::caller();
        if !self.is_changed(Mutation::Remove(Site { kind: SiteKind::Flush, step: EXTEND, at })) {
            trace.push(Event::Flush { line: length / LINE_WORDS as u32, thread: thread(), step: EXTEND, at });
        }
    }

    fn has_room(&self) -> bool {
        let mut room = wait::lock(&self.0.room);
        match *room {
            (0, 0) => true,
            (0, refused) => {
                *room = (0, refused.saturating_sub(u64::from(refused != u64::MAX)));
                false
            }
            (granted, refused) => {
                *room = (granted.saturating_sub(u64::from(granted != u64::MAX)), refused);
                true
            }
        }
    }

    fn order_line(&self) {
        self.burn();
        let at = Location::caller();
        if !self.is_changed(Mutation::Remove(Site::unnamed(SiteKind::Order, at))) {
            self.record(Event::Order { thread: thread(), at });
        }
    }
}
