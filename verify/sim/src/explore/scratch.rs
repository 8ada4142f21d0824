//! The memory into which one worker loads images.

use std::sync::Arc;

use crate::model::lines::LineMap;
use crate::model::lines::difference;
use crate::model::memory::{LINE_WORDS, Line, Memory};
use crate::model::trace::Event;

/// Number of loads between two checks that the memory matches the record.
const LOADS_PER_AUDIT: u32 = 512;

pub(crate) struct Scratch {
    memory: Memory,
    base: Arc<[Line]>,
    /// Lines from here on are zeros in the base.
    used: u32,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    loads: u32,
}

impl Scratch {
    pub(crate) fn new(memory: Memory, base: &Arc<[Line]>) -> Self {
        memory.restore(base);
        let (used, is_touched) = (memory.used(), vec![false; base.len()]);
        Self { memory, base: Arc::clone(base), used, touched: Vec::new(), is_touched, loads: 0 }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Loads an image: the base, replaced in `lines`.
    pub(crate) fn load(&mut self, lines: &LineMap<Line>) {
        for line in self.touched.drain(..) {
            self.memory.set_line(line, &self.base[line as usize]);
            self.is_touched[line as usize] = false;
        }
        self.memory.unuse_from(self.used);
        self.loads += 1;
        if self.loads % LOADS_PER_AUDIT == 1 {
            self.audit();
        }
        for (line, contents) in lines {
            self.memory.set_line(*line, contents);
            self.touch(*line);
        }
    }

    /// Records the changes of a run on this memory.
    pub(crate) fn note(&mut self, trace: &[Event]) {
        for (word, _) in trace.iter().filter_map(Event::stored) {
            self.touch(word / LINE_WORDS as u32);
        }
    }

    /// Returns a hash of the contents. All changes must have been recorded.
    pub(crate) fn hash(&self) -> u64 {
        let change = |line: &u32| difference(&self.base, *line, &self.memory.line(*line));
        self.touched.iter().map(change).fold(0, u64::wrapping_add)
    }

    fn touch(&mut self, line: u32) {
        if !std::mem::replace(&mut self.is_touched[line as usize], true) {
            self.touched.push(line);
        }
    }

    /// Panics if a store bypassed the medium: it remains when everything recorded is undone.
    fn audit(&self) {
        for (line, contents) in self.base.iter().enumerate() {
            let found = self.memory.line(line as u32);
            assert!(found == *contents, "a store to line {line} bypassed the medium");
        }
    }
}
