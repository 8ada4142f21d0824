//! What left a tree, on its way to being used again: threads of this process are through with it, and now those of
//! followers have to be.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;

use super::live::PATIENCE;
use super::{Memory, Segment};
use crate::sync::wait::lock;

/// How long something is held before it is asked whether the follower that holds it is there.
const DOUBT: Duration = Duration::from_millis(20);
/// How often it is asked at most whether followers are through.
const PAUSE: Duration = Duration::from_micros(50);

/// A queue of what this process has released. Without followers it is that and nothing more.
#[derive(Debug)]
pub struct Released<T> {
    queue: Arc<SegQueue<T>>,
    memory: Memory,
    held: Mutex<Held<T>>,
    /// Whether anything is held.
    holds: AtomicBool,
}

/// What followers may still look at, in the order of its epochs.
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
    /// Returns an empty queue, of a tree whose volatile half is in this memory.
    pub fn new(memory: &Memory) -> Self {
        let held = Held { items: VecDeque::new(), passed: 0, asked: None };
        Self {
            queue: Arc::default(),
            memory: memory.clone(),
            held: Mutex::new(held),
            holds: AtomicBool::new(false),
        }
    }

    /// Returns the queue to which a thread of this process gives what no other one looks at any more.
    pub fn queue(&self) -> Arc<SegQueue<T>> {
        Arc::clone(&self.queue)
    }

    /// Takes one that no thread of any process looks at.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        match self.memory.followed() {
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

    /// Gives what was released an epoch, and asks how far followers are if anything waits for that.
    fn take_in(&self, segment: &Segment, held: &mut Held<T>) {
        let Some(live) = segment.live() else { return };
        let now = Instant::now();
        if !self.queue.is_empty() {
            let epoch = live.begin_epoch();
            // No more than there are now: other threads go on releasing.
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
            live.expel(epoch);
            held.passed = live.passed(Some(segment.file()));
        }
    }
}
