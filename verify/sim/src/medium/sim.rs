//! The recording medium.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Domain, Region};

use crate::medium::mutation::Mutation;
use crate::medium::thread::{At, thread};
use crate::medium::watch;
use crate::model::lines::WordSet;
use crate::model::memory::{LINE_WORDS, Memory};
use crate::model::mode::Mode;
use crate::model::trace::{Event, FILE, Mark, Site, SiteKind};

/// A medium that executes every access and records those that matter to a crash. Clones share memory and
/// record.
#[derive(Clone)]
pub struct Sim(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) memory: Memory,
    /// The address of the memory and its number of words, cached.
    base: usize,
    words: usize,
    /// The domain of the code under test.
    domain: Domain,
    mutation: Option<Mutation>,
    mutated: AtomicBool,
    /// Whether simulated threads may switch at every access.
    takes_turns: AtomicBool,
    /// The function that switches threads.
    offer: OnceLock<fn(At)>,
    /// Number of space requests that are granted, and number refused after them.
    pub(super) room: Mutex<(u64, u64)>,
    /// Remaining accesses before the run counts as hung.
    step_budget: AtomicU64,
    trace: Mutex<Vec<Event>>,
    /// Words that were read before this run stored to them.
    pub(super) reads: WordSet,
    pub(super) stored: WordSet,
}

/// Initial capacity of a record: few recoveries have more events.
const EVENTS: usize = 256;
/// Maximum number of accesses of a run: far more than any scenario needs.
const STEP_BUDGET: u64 = 50_000_000;
/// Maximum number of accesses in the recovery of an explored image, its checks and its continuation.
const EXPLORED_STEP_BUDGET: u64 = 5_000_000;

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("mutation", &self.0.mutation).finish_non_exhaustive()
    }
}

impl Sim {
    /// Creates a medium over `memory` with an empty record.
    pub fn new(memory: &Memory) -> Self {
        Self::mutated(memory, None)
    }

    /// Creates a medium that applies a mutation to the code.
    pub fn mutated(memory: &Memory, mutation: Option<Mutation>) -> Self {
        Self::made(memory, Domain::Adr, mutation, STEP_BUDGET)
    }

    /// Creates a medium with the domain of a mode.
    pub(crate) fn explored(memory: &Memory, mode: Mode, mutation: Option<Mutation>) -> Self {
        Self::made(memory, mode.domain(), mutation, EXPLORED_STEP_BUDGET)
    }

    fn made(memory: &Memory, domain: Domain, mutation: Option<Mutation>, step_budget: u64) -> Self {
        let (mutated, takes_turns) = (AtomicBool::new(false), AtomicBool::new(false));
        let (memory, trace) = (memory.clone(), Mutex::new(Vec::with_capacity(EVENTS)));
        let (base, words) = (memory.base(), memory.reach());
        let (reads, stored) = (WordSet::none(&memory), WordSet::none(&memory));
        let step_budget = AtomicU64::new(step_budget);
        Self(Arc::new(Inner {
            memory,
            base,
            words,
            domain,
            mutation,
            mutated,
            takes_turns,
            offer: OnceLock::new(),
            room: Mutex::new((u64::MAX, 0)),
            step_budget,
            trace,
            reads,
            stored,
        }))
    }

    /// Returns the domain in which pools on the medium are opened.
    pub fn domain(&self) -> Domain {
        self.0.domain
    }

    /// Returns the bytes of the pool as seen by a process that opens the file: data behind its end is lost.
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

    /// Makes the medium refuse space: it grants some requests, then refuses some, and grants the rest.
    pub fn refuse_room(&self, granted: u64, refused: u64) {
        *wait::lock(&self.0.room) = (granted, refused);
    }

    /// Sets the function that may switch threads at every access from now on; `None` ends this.
    pub(crate) fn take_turns(&self, offer: Option<fn(At)>) {
        self.0.takes_turns.store(offer.is_some(), Ordering::Relaxed);
        if let Some(offer) = offer {
            self.0.offer.get_or_init(|| offer);
        }
    }

    fn offer(&self, at: At) {
        if self.takes_turns()
            && let Some(offer) = self.0.offer.get()
        {
            offer(at);
        }
    }

    pub(super) fn turn(&self) {
        self.offer(At::Medium);
    }

    /// Returns whether threads may switch at every access.
    pub fn takes_turns(&self) -> bool {
        self.0.takes_turns.load(Ordering::Relaxed)
    }

    /// Allows a switch at a decision.
    pub(super) fn cross(&self) {
        self.offer(At::Decision);
    }

    /// Allows a switch at a named step.
    pub(super) fn name(&self) {
        self.offer(At::Named);
    }

    /// Returns whether the mutation had any effect so far.
    pub fn was_mutated(&self) -> bool {
        self.0.mutated.load(Ordering::Relaxed)
    }

    /// Records whether the mutation applies here.
    pub(super) fn mutates(&self, applies: bool) -> bool {
        if applies {
            self.0.mutated.store(true, Ordering::Relaxed);
        }
        applies
    }

    /// Forgets that two stores were swapped: crashes begin with all stores so far, in any order.
    pub(crate) fn forget_swap(&self) {
        if matches!(self.0.mutation, Some(Mutation::Swap(_))) {
            self.0.mutated.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the memory under the medium.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Marks a place of the scenario in the record.
    pub fn mark(&self, mark: Mark) {
        self.record(Event::Mark(mark));
    }

    /// Returns and clears the record since the start or the last call.
    pub fn take_trace(&self) -> Vec<Event> {
        std::mem::replace(&mut *self.trace(), Vec::with_capacity(EVENTS))
    }

    /// Returns the words whose earlier contents the run read.
    pub(crate) fn reads(&self) -> &WordSet {
        &self.0.reads
    }

    /// Returns the number of recorded events.
    pub fn events(&self) -> usize {
        self.trace().len()
    }

    pub(super) fn trace(&self) -> MutexGuard<'_, Vec<Event>> {
        // A panic of the code under test is an issue and must not end the record.
        self.0.trace.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn record(&self, event: Event) {
        self.trace().push(event);
    }

    /// Consumes one step of the run's budget.
    pub(super) fn take_step(&self) {
        // Threads may overwrite each other's updates: it is a limit, not an exact count.
        let step_budget = self.0.step_budget.load(Ordering::Relaxed);
        if step_budget == 0 && !std::thread::panicking() {
            panic!("the run does not end: millions of accesses so far; {}", watch::place());
        }
        self.0.step_budget.store(step_budget.saturating_sub(1), Ordering::Relaxed);
    }

    pub(super) fn word(&self, cell: &AtomicU64) -> u32 {
        self.take_step();
        let address = std::ptr::from_ref(cell) as usize;
        let word = address.wrapping_sub(self.0.base) / 8;
        assert!(word < self.0.words, "an access outside the memory");
        word as u32
    }

    /// Makes everything read and stored so far count as initial contents.
    pub(crate) fn begin_again(&self) {
        self.0.reads.clear();
        self.0.stored.clear();
    }

    pub(super) fn read(&self, word: u32) {
        if !self.0.stored.contains(word) {
            self.0.reads.add(word);
        }
    }

    /// Returns the first and the last word of a range that is not empty.
    pub(super) fn ends_of(&self, start: *const u8, bytes: usize) -> [usize; 2] {
        let word_at = |address| self.0.memory.word_at(address).expect("a range outside the memory");
        [start as usize, start as usize + bytes - 1].map(word_at)
    }

    /// Stores and records in one critical section, so that the trace has the order of the memory.
    pub(super) fn put(&self, cell: &AtomicU64, value: u64, order: Ordering, site: Site) {
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
            self.name();
        }
    }

    /// Records a store, before the preceding one if the two are swapped.
    pub(super) fn insert(&self, trace: &mut Vec<Event>, event: Event, site: Site) {
        let swapped = self.0.mutation == Some(Mutation::Swap(site));
        let before = if swapped { last_store(trace, thread()) } else { None };
        self.mutates(before.is_some());
        trace.insert(before.unwrap_or(trace.len()), event);
    }

    /// Returns whether this mutation applies, which it does from here on.
    pub(super) fn is_changed(&self, change: Mutation) -> bool {
        self.mutates(self.0.mutation == Some(change))
    }
}

/// Returns the last store of a thread in the present operation.
fn last_store(trace: &[Event], by: u32) -> Option<usize> {
    trace
        .iter()
        .enumerate()
        .rev()
        .take_while(|(_, event)| !matches!(event, Event::Mark(_)))
        .find(|(_, event)| matches!(event, Event::Store { thread, .. } if *thread == by))
        .map(|(at, _)| at)
}
