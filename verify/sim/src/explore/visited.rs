//! The images and continuations already explored.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::lines::WordSet;

/// Record of a visited item.
#[derive(Debug, Clone)]
struct Known {
    /// The smallest number of nested crashes that led to it.
    depth: u32,
    /// The worker that explores it.
    worker: usize,
    /// The words that its exploration read, once it has finished.
    reads: Option<Arc<WordSet>>,
}

/// Status of an item before exploration.
pub(crate) enum Standing {
    /// It was not yet explored with so few crashes.
    New,
    /// The same worker is exploring it: the words that it reads will be known there.
    UnderWay,
    /// Another worker is exploring it.
    Elsewhere,
    /// It was explored, and read exactly these words.
    Done(Arc<WordSet>),
}

type Shard<K> = Mutex<HashMap<(u64, K), Known>>;

/// All visited items, by hash, up to a limit; beyond it no more are remembered.
pub(crate) struct Visited<K> {
    shards: [Shard<K>; 16],
    /// Many images read the same set of words: each set is stored once.
    sets: Mutex<HashMap<u64, Arc<WordSet>>>,
    room: AtomicUsize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it is locked")
}

impl<K: Eq + std::hash::Hash> Visited<K> {
    /// Remembers at most `bound`.
    pub(crate) fn with_room_for(bound: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, sets: Mutex::default(), room: AtomicUsize::new(bound) }
    }

    /// Returns whether no more items can be remembered.
    pub(crate) fn is_full(&self) -> bool {
        self.room.load(Relaxed) == 0
    }

    fn shard(&self, hash: u64) -> &Shard<K> {
        &self.shards[hash as usize % 16]
    }

    /// Adds an item to the set; if it is new the caller must explore it.
    pub(crate) fn enter(&self, hash: u64, key: K, depth: u32, worker: usize) -> Standing {
        let mut shard = locked(self.shard(hash));
        match shard.entry((hash, key)) {
            Entry::Occupied(known) if known.get().depth <= depth => {
                return match &known.get().reads {
                    Some(reads) => Standing::Done(Arc::clone(reads)),
                    None if known.get().worker == worker => Standing::UnderWay,
                    None => Standing::Elsewhere,
                };
            }
            Entry::Occupied(mut known) => *known.get_mut() = Known { depth, worker, reads: None },
            Entry::Vacant(place) => {
                if self.room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(1)).is_ok() {
                    place.insert(Known { depth, worker, reads: None });
                }
            }
        }
        Standing::New
    }

    /// Records that an exploration has finished, and the words it read.
    pub(crate) fn finish(&self, hash: u64, key: K, reads: WordSet) -> Arc<WordSet> {
        let reads = Arc::clone(locked(&self.sets).entry(reads.hash()).or_insert_with(|| Arc::new(reads)));
        if let Some(known) = locked(self.shard(hash)).get_mut(&(hash, key)) {
            known.reads = Some(Arc::clone(&reads));
        }
        reads
    }
}
