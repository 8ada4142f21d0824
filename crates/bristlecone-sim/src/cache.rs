//! The crash model: what the medium holds for certain, and what it may hold.
//!
//! Every store goes to one global order. A flush promises the stores to its line that precede it,
//! once the *same thread* fences or succeeds in a locked instruction. What is promised is in every
//! image; of the rest, each line keeps its own choice, independently.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::image::{Kept, Possible};
use crate::memory::{LINE_WORDS, Line, Memory};
use crate::trace::Event;

/// Which of the stores that nobody promised may survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Domain {
    /// x86: of the stores to one line, a prefix in store order.
    Prefix,
    /// Any choice per word (ARM, page write-back), but for
    /// [`ordered_within_line`](bristlecone_pm::Persist::ordered_within_line).
    Subset,
    /// Caches survive: exactly a prefix of all stores.
    Eadr,
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Domain::Prefix => "prefix",
            Domain::Subset => "subset",
            Domain::Eadr => "eadr",
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Unpromised {
    pub(crate) word: usize,
    pub(crate) value: u64,
    /// Its place among all stores.
    pub(crate) number: u64,
    /// Stores of a lower group to the same line persist first.
    pub(crate) group: u64,
}

/// The state of all lines after some prefix of a trace.
#[derive(Clone)]
pub struct Cache {
    domain: Domain,
    base: Arc<[Line]>,
    /// Durable lines that differ from the base.
    durable: HashMap<u32, Line>,
    dirty: BTreeMap<u32, Vec<Unpromised>>,
    underway: HashMap<u32, Vec<(u32, u64)>>,
    stores: u64,
    group: u64,
}

impl Cache {
    /// Everything in `memory` is durable.
    pub fn new(domain: Domain, memory: &Memory) -> Self {
        let base = (0..memory.lines() as u32)
            .map(|line| memory.line(line))
            .collect();
        Self::over(domain, base, HashMap::new())
    }

    pub(crate) fn over(domain: Domain, base: Arc<[Line]>, durable: HashMap<u32, Line>) -> Self {
        Self {
            domain,
            base,
            durable,
            dirty: BTreeMap::new(),
            underway: HashMap::new(),
            stores: 0,
            group: 0,
        }
    }

    /// Makes what is durable now the base that images are kept relative to.
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

    pub(crate) fn durable(&self) -> &HashMap<u32, Line> {
        &self.durable
    }

    /// How many stores were fed so far.
    pub(crate) fn stores(&self) -> u64 {
        self.stores
    }

    pub(crate) fn durable_line(&self, line: u32) -> Line {
        *self.durable.get(&line).unwrap_or(&self.base[line as usize])
    }

    /// Takes one event into account.
    pub fn feed(&mut self, event: &Event) {
        match *event {
            Event::Store { word, value, .. } => self.store(word, value),
            Event::Flush { line, thread, .. } => {
                self.underway
                    .entry(thread)
                    .or_default()
                    .push((line, self.stores));
            }
            Event::Fence { thread, .. } => self.promise(thread),
            Event::Locked {
                word,
                value,
                thread,
            } => {
                self.promise(thread);
                self.store(word, value);
            }
            Event::Order => self.group += 1,
            Event::Mark(_) => {}
        }
    }

    fn store(&mut self, word: u32, value: u64) {
        let (line, word) = (word / LINE_WORDS as u32, word as usize % LINE_WORDS);
        self.stores += 1;
        if self.domain == Domain::Eadr {
            let mut contents = self.durable_line(line);
            contents[word] = value;
            self.durable.insert(line, contents);
        } else {
            let (number, group) = (self.stores, self.group);
            self.dirty.entry(line).or_default().push(Unpromised {
                word,
                value,
                number,
                group,
            });
        }
    }

    fn promise(&mut self, thread: u32) {
        for (line, upto) in self.underway.remove(&thread).unwrap_or_default() {
            let Some(stores) = self.dirty.get_mut(&line) else {
                continue;
            };
            let promised = stores
                .iter()
                .take_while(|store| store.number <= upto)
                .count();
            let mut contents = *self.durable.get(&line).unwrap_or(&self.base[line as usize]);
            for store in stores.drain(..promised) {
                contents[store.word] = store.value;
            }
            if stores.is_empty() {
                self.dirty.remove(&line);
            }
            self.durable.insert(line, contents);
        }
    }

    /// What each line may hold if the crash comes now.
    pub(crate) fn possible(&self) -> Possible {
        let kept = |(line, stores): (&u32, &Vec<Unpromised>)| {
            Kept::new(*line, self.durable_line(*line), stores, self.domain)
        };
        Possible::new(self.dirty.iter().map(kept).collect())
    }
}
