//! A hand-written map, once correct and once with each kind of crash bug that was found in published persistent
//! trees.

use std::collections::BTreeMap;

use bristlecone_pm::{Durable, Flushed, Persist, Word};
use bristlecone_sim::{LINE_WORDS, Memory, Scenario, Sim, System};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    CommitBeforeData,
    DataNotFlushed,
    DataNotFenced,
    WrongLineFlushed,
    AcknowledgedBeforeDurable,
    ConstructorNotFlushed,
    LineOrderAssumed,
    CounterDisagrees,
    SlotLeaks,
    SlotUsedTwice,
    DuplicateTolerated,
    LockSurvives,
    LogOutlivesItsUse,
    RecoveryRepeats,
    RecoveryUnfenced,
}

const SLOTS: usize = 5;
const MAGIC: usize = 0;
const CAPACITY: usize = LINE_WORDS;
const BITMAP: usize = 2 * LINE_WORDS;
const COUNT: usize = 3 * LINE_WORDS;
const USED: usize = 4 * LINE_WORDS;
const LOCK: usize = 5 * LINE_WORDS;
const NOTE: usize = 6 * LINE_WORDS;
const LOG: usize = 7 * LINE_WORDS;
const FIRST: usize = 16 * LINE_WORDS;

/// Slots with a key and a value each, a bitmap of taken slots, a note in one line, and a log for changing all
/// values atomically.
pub struct ToyMap(pub Bug);

pub struct Live {
    sim: Sim,
    bug: Bug,
}

#[derive(Debug, Clone)]
pub enum Op {
    Put(u64, u64),
    Remove(u64),
    Note(u64),
    Raise,
}

pub type Contents = (BTreeMap<u64, u64>, u64);

impl Live {
    fn word(&self, at: usize) -> &Word {
        &self.sim.memory().words(at, 1)[0]
    }

    fn load(&self, at: usize) -> u64 {
        self.word(at).load(&self.sim)
    }

    fn flush(&self, at: usize, step: &'static str) -> Flushed {
        self.sim.flush(self.word(at), step)
    }

    fn slot(at: usize) -> usize {
        FIRST + at * LINE_WORDS
    }

    fn find(&self, key: u64) -> Option<usize> {
        let bitmap = self.load(BITMAP);
        (0..SLOTS).find(|at| bitmap >> at & 1 == 1 && self.load(Self::slot(*at)) == key)
    }

    fn publish(&self, at: usize, value: u64, proof: &Durable, step: &'static str) {
        self.word(at).publish(&self.sim, value, proof, step);
        let flushed = self.flush(at, step);
        if self.bug == Bug::AcknowledgedBeforeDurable && step == "put.2" {
            return;
        }
        let Durable { .. } = self.sim.fence(flushed, step);
    }

    fn fence_alone(&self, step: &'static str) -> Durable {
        self.sim.fence(Flushed::none(), step)
    }

    fn put(&mut self, key: u64, value: u64) {
        let bitmap = self.load(BITMAP);
        let old = self.find(key);
        let counts_used = matches!(self.bug, Bug::SlotLeaks | Bug::SlotUsedTwice);
        let taken = if counts_used { self.load(USED) } else { bitmap };
        let at = (0..SLOTS).find(|at| taken >> at & 1 == 0).expect("a free slot");
        if self.bug == Bug::SlotLeaks {
            self.word(USED).store(&self.sim, taken | 1 << at);
            self.sim.persist(self.word(USED), "used");
        }
        let cleared = old.map_or(0, |old| 1 << old);
        let next = bitmap & !cleared | 1 << at;
        let slot = Self::slot(at);
        if self.bug == Bug::CommitBeforeData {
            self.word(BITMAP).store(&self.sim, next);
        }
        self.word(slot).store(&self.sim, key);
        self.word(slot + 1).store(&self.sim, value);
        let durable = match self.bug {
            Bug::DataNotFlushed => self.fence_alone("put.1"),
            Bug::DataNotFenced => {
                let _ = self.flush(slot, "put.1");
                unproven()
            }
            Bug::WrongLineFlushed => {
                let flushed = self.flush(slot + LINE_WORDS, "put.1");
                self.sim.fence(flushed, "put.1")
            }
            _ => {
                let flushed = self.flush(slot, "put.1");
                self.sim.fence(flushed, "put.1")
            }
        };
        if self.bug == Bug::DuplicateTolerated {
            self.publish(BITMAP, bitmap | 1 << at, &durable, "put.2");
        }
        self.publish(BITMAP, next, &durable, "put.2");
        match self.bug {
            Bug::CounterDisagrees => {
                self.publish(COUNT, next.count_ones().into(), &durable, "count");
            }
            Bug::SlotLeaks | Bug::SlotUsedTwice => self.publish(USED, next, &durable, "used"),
            _ => {}
        }
    }

    fn remove(&mut self, key: u64) {
        let Some(at) = self.find(key) else { return };
        let next = self.load(BITMAP) & !(1 << at);
        self.word(BITMAP).store(&self.sim, next);
        self.sim.persist(self.word(BITMAP), "remove");
        if self.bug == Bug::CounterDisagrees {
            self.word(COUNT).store(&self.sim, next.count_ones().into());
            self.sim.persist(self.word(COUNT), "count");
        }
        if matches!(self.bug, Bug::SlotLeaks | Bug::SlotUsedTwice) {
            self.word(USED).store(&self.sim, next);
            self.sim.persist(self.word(USED), "used");
        }
    }

    fn note(&mut self, note: u64) {
        let current = self.load(NOTE);
        let at = (current + 1) % 4;
        self.word(NOTE + 1 + at as usize).store(&self.sim, note);
        if self.bug == Bug::LineOrderAssumed {
            self.word(NOTE).store(&self.sim, at);
        } else {
            let ordered = self.sim.ordered_within_line();
            self.word(NOTE).publish(&self.sim, at, &ordered, "note");
        }
        self.sim.persist(self.word(NOTE), "note");
    }

    fn raise(&mut self) {
        let bitmap = self.load(BITMAP);
        let mut flushed = Flushed::none();
        let mut entries = 0;
        for at in (0..SLOTS).filter(|at| bitmap >> at & 1 == 1) {
            entries += 1;
            let old = self.load(Self::slot(at) + 1);
            let value = if self.bug == Bug::RecoveryRepeats { 1 } else { old + 1 };
            let entry = LOG + entries * LINE_WORDS;
            self.word(entry).store(&self.sim, at as u64);
            self.word(entry + 1).store(&self.sim, value);
            flushed = flushed.and(self.flush(entry, "raise.1"));
        }
        let durable = self.sim.fence(flushed, "raise.1");
        self.publish(LOG, entries as u64, &durable, "raise.2");
        self.replay();
    }

    fn replay(&self) {
        let mut flushed = Flushed::none();
        for entry in 1..=self.load(LOG) as usize {
            let entry = LOG + entry * LINE_WORDS;
            let value = Self::slot(self.load(entry) as usize) + 1;
            let old = if self.bug == Bug::RecoveryRepeats { self.load(value) } else { 0 };
            self.word(value).store(&self.sim, old + self.load(entry + 1));
            flushed = flushed.and(self.flush(value, "raise.3"));
        }
        if self.bug == Bug::RecoveryUnfenced {
            self.publish(LOG, 0, &unproven(), "raise.4");
            return;
        }
        let durable = self.sim.fence(flushed, "raise.3");
        if self.bug != Bug::LogOutlivesItsUse {
            self.publish(LOG, 0, &durable, "raise.4");
        }
    }
}

/// Returns an invalid proof, for the bugs that the types would have prevented.
fn unproven() -> Durable {
    // A fence of a medium that no test checks.
    Sim::new(&Memory::new(64)).fence(Flushed::none(), "nowhere")
}

impl System for ToyMap {
    type Op = Op;
    type State = Contents;
    type Live = Live;

    fn memory(&self) -> Memory {
        Memory::new(24 * 64)
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        let live = Live { sim: sim.clone(), bug: self.0 };
        live.word(CAPACITY).store(sim, SLOTS as u64);
        let flushed = match self.0 {
            Bug::ConstructorNotFlushed => Flushed::none(),
            _ => live.flush(CAPACITY, "create.1"),
        };
        let durable = sim.fence(flushed, "create.1");
        live.publish(MAGIC, 0xcab, &durable, "create.2");
        Ok(live)
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live>, String> {
        let live = Live { sim: sim.clone(), bug: self.0 };
        if live.load(MAGIC) == 0 {
            return Ok(None);
        }
        if live.load(CAPACITY) != SLOTS as u64 {
            return Err("a map without slots".to_owned());
        }
        if live.load(LOG) != 0 {
            live.replay();
        }
        Ok(Some(live))
    }

    fn abandon(&self, _: Live) {}

    fn fresh(&self) -> Contents {
        Contents::default()
    }

    fn predict(&self, state: &mut Contents, op: &Op) -> String {
        match op {
            Op::Put(key, value) => _ = state.0.insert(*key, *value),
            Op::Remove(key) => _ = state.0.remove(key),
            Op::Note(note) => state.1 = *note,
            Op::Raise => state.0.values_mut().for_each(|value| *value += 1),
        }
        String::new()
    }

    fn apply(&self, live: &mut Live, op: &Op) -> Result<String, String> {
        if self.0 == Bug::LockSurvives {
            if live.load(LOCK) != 0 {
                return Err("locked for ever".to_owned());
            }
            live.word(LOCK).store(&live.sim, 1);
        }
        match op {
            Op::Put(key, value) => live.put(*key, *value),
            Op::Remove(key) => live.remove(*key),
            Op::Note(note) => live.note(*note),
            Op::Raise => live.raise(),
        }
        if self.0 == Bug::LockSurvives {
            live.word(LOCK).store(&live.sim, 0);
        }
        Ok(String::new())
    }

    fn observe(&self, live: &Live) -> Result<Contents, String> {
        let bitmap = live.load(BITMAP);
        if self.0 == Bug::CounterDisagrees && live.load(COUNT) != u64::from(bitmap.count_ones()) {
            return Err("the counter disagrees with the bitmap".to_owned());
        }
        if self.0 == Bug::SlotLeaks && live.load(USED) != bitmap {
            return Err("a slot is lost".to_owned());
        }
        let mut found = BTreeMap::new();
        for at in (0..SLOTS).filter(|at| bitmap >> at & 1 == 1) {
            let slot = Live::slot(at);
            let first = !found.contains_key(&live.load(slot));
            if !first && self.0 != Bug::DuplicateTolerated {
                return Err("a key twice".to_owned());
            }
            if first {
                found.insert(live.load(slot), live.load(slot + 1));
            }
        }
        Ok((found, live.load(NOTE + 1 + live.load(NOTE) as usize)))
    }
}

pub fn scenario() -> Scenario<Op> {
    use Op::{Note, Put, Raise, Remove};
    Scenario {
        name: "toy-map",
        creation: true,
        setup: vec![Put(1, 10), Put(2, 20)],
        ops: [Note(5), Put(3, 30), Remove(2), Raise, Raise, Put(1, 11), Raise, Note(6)]
            .into_iter()
            .chain((0..6).flat_map(|at| [Put(4, at), Put(1 + at % 2, at), Remove(4)]))
            .collect(),
        then: vec![Put(2, 40), Raise, Remove(1), Put(3, 41), Note(7)],
    }
}
