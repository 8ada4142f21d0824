//! What threads note while they work.

use super::subject::Answer;

/// What a thread notes while it works.
#[derive(Debug, Default)]
pub struct Samples {
    /// Operations of a batch.
    pub batch: usize,
    /// Ticks that the first operation of a batch took.
    pub took: Vec<u64>,
    /// Ticks when the batch began.
    pub began: Vec<u64>,
}

impl Samples {
    /// Makes room for the samples of so many operations.
    pub fn with_room_for(operations: usize, batch: usize) -> Self {
        let batches = operations / batch + 1;
        Self { batch, took: Vec::with_capacity(batches), began: Vec::with_capacity(batches) }
    }
}

/// What the operations of a thread came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Operations that found their key.
    pub found: u64,
    /// Operations that read what does not belong to their key.
    pub wrong: u64,
    /// What was read, added up.
    pub read: u64,
}

impl Answers {
    /// Adds an answer.
    #[inline(always)]
    pub fn add(&mut self, answer: Answer) {
        match answer {
            Answer::Found(read) => {
                self.found += 1;
                self.read = self.read.wrapping_add(read);
            }
            Answer::Absent => {}
            Answer::Wrong => self.wrong += 1,
        }
    }

    /// Adds operations that found their keys.
    pub fn add_found(&mut self, found: u64) {
        self.found += found;
    }
}
