//! Objects that left a tree and wait for reuse: no thread of this process reads them any more, and those of
//! followers must finish, too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;

use super::live::PATIENCE;
use super::{Memory, Segment};
use crate::sync::wait::lock;

/// How long an object is held before the writer checks whether the follower that holds it is alive.
const DOUBT: Duration = Duration::from_millis(20);
/// Minimum interval between two checks of the followers.
const PAUSE: Duration = Duration::from_micros(50);

/// A queue of objects that this process has released. Without followers it is a plain queue.
#[derive(Debug)]
pub struct Released<T> {
    queue: Arc<SegQueue<T>>,
    memory: Memory,
    held: Mutex<Held<T>>,
    /// Whether any object is held.
    holds: AtomicBool,
}

/// Objects that followers may still read, in order of epoch.
#[derive(Debug)]
struct Held<T> {
    items: VecDeque<(u64, Instant, T)>,
    passed: u64,
    asked: Option<Instant>,
}

impl<T> Default for Released<T> {
    fn default() -> Self {
        Self::new(&Memory::private())
    }
}

impl<T> Released<T> {
    /// Returns an empty queue for a tree whose volatile half is in this memory.
    pub fn new(memory: &Memory) -> Self {
        let held = Held { items: VecDeque::new(), passed: 0, asked: None };
        Self {
            queue: Arc::default(),
            memory: memory.clone(),
            held: Mutex::new(held),
            holds: AtomicBool::new(false),
        }
    }

    /// Returns the queue to which threads of this process push objects that no thread of this process reads any
    /// more.
    pub fn queue(&self) -> Arc<SegQueue<T>> {
        Arc::clone(&self.queue)
    }

    /// Takes an object that no thread of any process reads.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        match self.memory.followed() {
            // Usually there is none. A look at the queue has no fence.
            None if self.queue.is_empty() => None,
            None => self.queue.pop(),
            Some(segment) => self.pop_followed(segment),
        }
    }

    /// Returns how many can be taken, as far as is known.
    pub fn len(&self) -> usize {
        match self.memory.followed() {
            None => self.queue.len(),
            Some(segment) => {
                let mut held = lock(&self.held);
                self.take_in(segment, &mut held);
                held.items.iter().take_while(|(epoch, ..)| *epoch <= held.passed).count()
            }
        }
    }

    /// Returns whether none can be taken, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cold]
    fn pop_followed(&self, segment: &Segment) -> Option<T> {
        if self.queue.is_empty() && !self.holds.load(Relaxed) {
            return None;
        }
        let mut held = lock(&self.held);
        self.take_in(segment, &mut held);
        let is_free = held.items.front().is_some_and(|(epoch, ..)| *epoch <= held.passed);
        let taken = is_free.then(|| held.items.pop_front()).flatten();
        self.holds.store(!held.items.is_empty(), Relaxed);
        taken.map(|(.., item)| item)
    }

    /// Assigns an epoch to released objects, and checks the progress of followers if objects are waiting.
    fn take_in(&self, segment: &Segment, held: &mut Held<T>) {
        let Some(live) = segment.live() else { return };
        let now = Instant::now();
        if !self.queue.is_empty() {
            let epoch = live.begin_epoch();
            // At most the present number: other threads continue to release.
            for _ in 0..self.queue.len() {
                held.items.extend(self.queue.pop().map(|item| (epoch, now, item)));
            }
            self.holds.store(true, Relaxed);
        }
        let Some(&(epoch, since, _)) = held.items.front() else { return };
        let is_early = held.asked.is_some_and(|asked| now - asked < PAUSE);
        if epoch <= held.passed || is_early {
            return;
        }
        held.asked = Some(now);
        let waited = now - since;
        held.passed = live.passed((waited > DOUBT).then(|| segment.file()));
        if epoch > held.passed && waited > PATIENCE {
            live.evict(epoch);
            held.passed = live.passed(Some(segment.file()));
        }
    }
}
