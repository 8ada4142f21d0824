//! What a worker notes for those that come after it: memory that outlives its process.
//!
//! A key has one writer. Before a write the writer notes the state that the key will have, after it that it
//! has it: of a writer that is killed, every key is as acknowledged or as intended.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use serde_json::{Value, json};

use super::process::Shareable;

/// Keys of a round, at most.
pub const KEYS_MAX: usize = 4096;
const MESSAGE_WORDS: usize = 256;

/// A state of a key: how many changes it has seen, and whether it is there after the last one.
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

/// What is known of a key.
#[repr(C)]
pub struct KeyCell {
    acknowledged: AtomicU64,
    intended: AtomicU64,
    /// The last state that a reader saw.
    seen: AtomicU64,
    /// The last version that was intended and is no value.
    absent: AtomicU64,
}

impl KeyCell {
    /// Returns the state of the last write that returned.
    pub fn acknowledged(&self) -> State {
        State::of(self.acknowledged.load(Acquire))
    }

    /// Returns the state of the write under way, or the acknowledged one.
    pub fn intended(&self) -> State {
        State::of(self.intended.load(Acquire))
    }

    /// Returns the last state that a reader saw.
    pub fn seen(&self) -> State {
        State::of(self.seen.load(Acquire))
    }

    /// Returns the last version that was intended and is no value.
    pub fn absent(&self) -> u64 {
        self.absent.load(Acquire)
    }

    /// Returns the oldest version that a read which begins now may return.
    pub fn oldest(&self) -> u64 {
        self.acknowledged().version.max(self.seen().version)
    }

    /// Notes a write that begins. All stores to a key's words are seen in their order: a release each.
    pub fn intend(&self, next: State) {
        if !next.is_present {
            self.absent.store(next.version, Release);
        }
        self.intended.store(next.word(), Release);
    }

    /// Notes that a write was refused: the key is as it was.
    pub fn refuse(&self) {
        self.intended.store(self.acknowledged.load(Relaxed), Release);
    }

    /// Notes a write that returned.
    pub fn acknowledge(&self, next: State) {
        self.acknowledged.store(next.word(), Release);
    }

    /// Notes what a reader saw.
    pub fn see(&self, state: State) {
        self.seen.fetch_max(state.word(), AcqRel);
    }

    /// Notes what was found after a crash: from here on it stays.
    pub fn settle(&self, found: State) {
        self.acknowledged.store(found.word(), Release);
        self.intended.store(found.word(), Release);
    }
}

/// How far a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u64)]
pub enum Phase {
    Begun,
    Opened,
    Comparing,
    Working,
    Done,
}

/// The memory.
#[repr(C)]
pub struct Board {
    phase: AtomicU64,
    /// What exists: a pool, then a tree in it.
    pub created: AtomicU64,
    /// Trees beside the one that are whole.
    pub beside: AtomicU64,
    /// What the other tree is: see [`super::other`].
    pub other: AtomicU64,
    /// Whether the last worker closed the pool.
    pub closed: AtomicU64,
    /// Operations that returned.
    pub acknowledged: AtomicU64,
    /// Writes that found no room.
    pub refused: AtomicU64,
    /// Times that a pool was opened and all of it compared.
    pub compared: AtomicU64,
    /// Keys that were compared.
    pub keys_compared: AtomicU64,
    has_message: AtomicU64,
    message_bytes: AtomicU64,
    message: [AtomicU64; MESSAGE_WORDS],
    pub keys: [KeyCell; KEYS_MAX],
}

// SAFETY: words that are atomic, and nothing else.
unsafe impl Shareable for Board {}

impl Board {
    /// Returns how far the worker is.
    pub fn phase(&self) -> Phase {
        let phases = [Phase::Begun, Phase::Opened, Phase::Comparing, Phase::Working, Phase::Done];
        phases[self.phase.load(Acquire) as usize]
    }

    /// Notes how far the worker is.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u64, Release);
    }

    /// Notes what is wrong, unless something is already.
    pub fn fail(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(MESSAGE_WORDS * 8)];
        if self.has_message.swap(1, Relaxed) == 0 {
            for (word, chunk) in self.message.iter().zip(bytes.chunks(8)) {
                let mut full = [0; 8];
                full[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(full), Relaxed);
            }
            // Pairs with the load in `failure`: the words are there.
            self.message_bytes.store(bytes.len() as u64, Release);
        }
    }

    /// Returns what is wrong, if anything.
    pub fn failure(&self) -> Option<String> {
        let bytes = self.message_bytes.load(Acquire) as usize;
        let all: Vec<u8> = self.message.iter().flat_map(|word| word.load(Acquire).to_le_bytes()).collect();
        (bytes > 0).then(|| String::from_utf8_lossy(&all[..bytes]).into_owned())
    }

    /// Returns what is known of the first keys, as a report has it.
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
