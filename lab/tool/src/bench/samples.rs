//! Measurements of threads.

use super::subject::Answer;

/// Measurements that a thread records while it works.
#[derive(Debug, Default)]
pub struct Samples {
    /// Number of operations of a batch.
    pub batch: usize,
    /// Ticks of the first operation of each batch.
    pub took: Vec<u64>,
    /// Start of each batch in ticks.
    pub began: Vec<u64>,
}

impl Samples {
    /// Allocates space for the samples of this many operations.
    pub fn with_room_for(operations: usize, batch: usize) -> Self {
        let batches = operations / batch + 1;
        Self { batch, took: Vec::with_capacity(batches), began: Vec::with_capacity(batches) }
    }
}

/// Results of a thread's operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Operations that found their key.
    pub found: u64,
    /// Operations that read data that does not belong to their key.
    pub wrong: u64,
    /// Sum of all reads.
    pub read: u64,
}

impl Answers {
    /// Adds a result.
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
