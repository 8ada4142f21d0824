//! Records of a worker for its successors: memory that outlives its process.
//!
//! A key has one writer. Before a write the writer records the intended state of the key, and after it that
//! the state is acknowledged. So after a writer was killed, every key is as acknowledged or as intended.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use serde_json::{Value, json};

use super::process::Shareable;

/// Maximum number of keys of a round.
pub const KEYS_MAX: usize = 4096;
const MESSAGE_WORDS: usize = 256;

/// A state of a key: its number of changes, and whether it exists after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub version: u64,
    pub is_present: bool,
}

impl State {
    fn of(word: u64) -> Self {
        Self { version: word >> 1, is_present: word & 1 == 1 }
    }

    fn word(self) -> u64 {
        self.version << 1 | u64::from(self.is_present)
    }

    /// Returns the state after one more change.
    pub fn next(self, is_present: bool) -> Self {
        Self { version: self.version + 1, is_present }
    }
}

/// Records about a key.
#[repr(C)]
pub struct KeyCell {
    acknowledged: AtomicU64,
    intended: AtomicU64,
    /// The last state seen by a reader.
    seen: AtomicU64,
    /// The last intended version that is absent.
    absent: AtomicU64,
}

impl KeyCell {
    /// Returns the state of the last completed write.
    pub fn acknowledged(&self) -> State {
        State::of(self.acknowledged.load(Acquire))
    }

    /// Returns the state of the write in progress, or the acknowledged one.
    pub fn intended(&self) -> State {
        State::of(self.intended.load(Acquire))
    }

    /// Returns the last state seen by a reader.
    pub fn seen(&self) -> State {
        State::of(self.seen.load(Acquire))
    }

    /// Returns the last intended version that is absent.
    pub fn absent(&self) -> u64 {
        self.absent.load(Acquire)
    }

    /// Returns the oldest version that a read beginning now may return.
    pub fn oldest(&self) -> u64 {
        self.acknowledged().version.max(self.seen().version)
    }

    /// Records the start of a write. All stores to a key's words are visible in their order: each is a
    /// release.
    pub fn intend(&self, next: State) {
        if !next.is_present {
            self.absent.store(next.version, Release);
        }
        self.intended.store(next.word(), Release);
    }

    /// Records that a write failed and changed nothing.
    pub fn refuse(&self) {
        self.intended.store(self.acknowledged.load(Relaxed), Release);
    }

    /// Records a completed write.
    pub fn acknowledge(&self, next: State) {
        self.acknowledged.store(next.word(), Release);
    }

    /// Records a state seen by a reader.
    pub fn see(&self, state: State) {
        self.seen.fetch_max(state.word(), AcqRel);
    }

    /// Records the state found after a crash: it is acknowledged from here on.
    pub fn settle(&self, found: State) {
        self.acknowledged.store(found.word(), Release);
        self.intended.store(found.word(), Release);
    }
}

/// Phase of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u64)]
pub enum Phase {
    Begun,
    Opened,
    Comparing,
    Working,
    Done,
}

/// The shared memory.
#[repr(C)]
pub struct Board {
    phase: AtomicU64,
    /// Existing objects: a pool, then a tree in it.
    pub created: AtomicU64,
    /// Number of complete additional trees.
    pub beside: AtomicU64,
    /// State of the other tree: see [`super::other`].
    pub other: AtomicU64,
    /// Whether the last worker closed the pool.
    pub closed: AtomicU64,
    /// Number of completed operations.
    pub acknowledged: AtomicU64,
    /// Number of writes that found no space.
    pub refused: AtomicU64,
    /// Number of times that a pool was opened and compared completely.
    pub compared: AtomicU64,
    /// Number of compared keys.
    pub keys_compared: AtomicU64,
    has_message: AtomicU64,
    message_bytes: AtomicU64,
    message: [AtomicU64; MESSAGE_WORDS],
    pub keys: [KeyCell; KEYS_MAX],
}

// SAFETY: it consists of atomic words only.
unsafe impl Shareable for Board {}

impl Board {
    /// Returns the phase of the worker.
    pub fn phase(&self) -> Phase {
        let phases = [Phase::Begun, Phase::Opened, Phase::Comparing, Phase::Working, Phase::Done];
        phases[self.phase.load(Acquire) as usize]
    }

    /// Sets the phase of the worker.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u64, Release);
    }

    /// Records a failure, unless one is already recorded.
    pub fn fail(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(MESSAGE_WORDS * 8)];
        if self.has_message.swap(1, Relaxed) == 0 {
            for (word, chunk) in self.message.iter().zip(bytes.chunks(8)) {
                let mut full = [0; 8];
                full[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(full), Relaxed);
            }
            // Pairs with the load in `failure`: the text is visible.
            self.message_bytes.store(bytes.len() as u64, Release);
        }
    }

    /// Returns the recorded failure, if any.
    pub fn failure(&self) -> Option<String> {
        let bytes = self.message_bytes.load(Acquire) as usize;
        let all: Vec<u8> = self.message.iter().flat_map(|word| word.load(Acquire).to_le_bytes()).collect();
        (bytes > 0).then(|| String::from_utf8_lossy(&all[..bytes]).into_owned())
    }

    /// Returns the records of the first keys, for a report.
    pub fn model(&self, keys: usize, number: impl Fn(usize) -> u64) -> Value {
        let of = |state: State| json!({ "version": state.version, "present": state.is_present });
        let key = |(at, cell): (usize, &KeyCell)| {
            json!({
                "key": at, "number": number(at), "acknowledged": of(cell.acknowledged()),
                "intended": of(cell.intended()), "seen": of(cell.seen()),
            })
        };
        self.keys[..keys].iter().enumerate().map(key).collect()
    }
}
