//! Operations of the threads of a schedule.

use std::collections::BTreeMap;

use super::history::{Operation, Way};
use crate::model::access::Access;

/// Values that the threads write are distinct, and at least this.
const WRITTEN: u64 = 1000;

/// A plan: the initial items, and the operations of each thread.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Operations before the structure is opened for the threads.
    pub before: Vec<(u64, Access)>,
    /// Operations after it is open, before the threads begin: the threads then find the DRAM state of a run, not
    /// that of a recovery.
    pub warm: Vec<(u64, Access)>,
    /// Operations of each thread.
    pub threads: Vec<Vec<Operation>>,
    /// Number of space requests that the medium grants meanwhile, and number that it refuses after these.
    pub room: (u64, u64),
}

/// The medium has space for every request.
const ROOM: (u64, u64) = (u64::MAX, 0);

/// Values written after a crash begin here.
const WRITTEN_LATER: u64 = 5000;

/// Purpose of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Half-full leaves, and some of every operation.
    Mixed,
    /// Leaves are initially full, as after an ascending load, and every other key is new.
    Split,
    /// Leaves initially have one or two keys each, which are removed while others access them.
    Free,
    /// Few of many leaves are left at first, in index nodes of their own, and these are emptied, too.
    Empty,
    /// A few keys that are written repeatedly.
    Hot,
}

impl Plan {
    /// Returns a plan with space for everything.
    pub fn new(before: Vec<(u64, Access)>, threads: Vec<Vec<Operation>>) -> Self {
        Self { before, warm: Vec::new(), threads, room: ROOM }
    }

    /// Makes the initial items from operation `from` on be written after the open.
    #[must_use]
    pub fn warm_from(mut self, from: usize) -> Self {
        self.warm = self.before.split_off(from.min(self.before.len()));
        self
    }

    /// Draws two or three threads with two to four operations each, on keys of few leaves, most of them on keys
    /// that others use. Half of the plans aim at a structure change.
    pub fn draw(draw: &mut dyn FnMut(usize) -> usize) -> Self {
        use Purpose::{Empty, Free, Hot, Mixed, Split};
        let all = [Mixed, Mixed, Split, Split, Free, Empty, Hot];
        let purpose = all[draw(all.len())];
        let keys = if purpose == Purpose::Empty { [30, 60][draw(2)] } else { [4, 8, 16, 30][draw(4)] };
        let before = before(purpose, keys, draw);
        // Adjacent keys, where leaves are emptied.
        let first = draw(keys + 2) as u64;
        let hot = [0, 1, 2].map(|next| match purpose {
            Purpose::Free => (first + next) % (keys as u64 + 2),
            Purpose::Empty => next * (keys as u64 / 3),
            // New ones, for which leaves have no space.
            Purpose::Split => (first + 2 * next) | 1,
            _ => draw(keys + 2) as u64,
        });
        let mut written = WRITTEN;
        let mut operation = |draw: &mut dyn FnMut(usize) -> usize| {
            let key = if draw(3) == 0 { draw(keys + 2) as u64 } else { hot[draw(3)] };
            written += 1;
            operation(purpose, key, written, draw)
        };
        let threads = 2 + draw(2);
        let threads = (0..threads).map(|_| (0..2 + draw(3)).map(|_| operation(draw)).collect()).collect();
        let room = match draw(6) {
            0 => (draw(3) as u64, [1, 2, u64::MAX][draw(3)]),
            _ => ROOM,
        };
        let plan = Self { before, warm: Vec::new(), threads, room };
        let from = match draw(4) {
            0 => 0,
            1 => draw(plan.before.len() + 1),
            _ => plan.before.len(),
        };
        plan.warm_from(from)
    }

    /// Draws a few operations on the same keys, for use after a crash.
    pub(super) fn more(&self, draw: &mut dyn FnMut(usize) -> usize) -> Vec<Operation> {
        let keys: Vec<u64> = self.threads.iter().flatten().flat_map(Operation::keys).collect();
        let count = if keys.is_empty() { 0 } else { 1 + draw(4) as u64 };
        let key = |at: usize| keys[at];
        (0..count)
            .map(|at| operation(Purpose::Mixed, key(draw(keys.len())), WRITTEN_LATER + at, draw))
            .collect()
    }

    /// Returns the items that exist when the threads begin.
    pub(super) fn at_first(&self) -> BTreeMap<u64, u64> {
        let mut held = BTreeMap::new();
        for (key, access) in self.before.iter().chain(&self.warm) {
            match access.on(held.get(key).copied()).0 {
                Some(value) => held.insert(*key, value),
                None => held.remove(key),
            };
        }
        held
    }
}

/// Draws the operations before the threads begin.
fn before(purpose: Purpose, keys: usize, draw: &mut dyn FnMut(usize) -> usize) -> Vec<(u64, Access)> {
    let inserted = |key| (key, Access::Insert(key));
    if purpose == Purpose::Split {
        return (0..keys as u64).step_by(2).map(inserted).collect();
    }
    let first = draw(keys) as u64;
    let drawn = (0..keys as u64).map(|at| (first + at * 7) % keys as u64);
    let mut before: Vec<_> = drawn.filter(|_| draw(8) != 0).map(inserted).collect();
    if purpose == Purpose::Free {
        // Keys loaded in order are removed again, except for one in three or four.
        let kept = 3 + draw(2) as u64;
        before = (0..keys as u64).map(inserted).collect();
        before.extend((0..keys as u64).filter(|key| key % kept != 0).map(|key| (key, Access::Remove)));
        return before;
    }
    if purpose == Purpose::Empty {
        let kept = (keys / 3) as u64;
        before = (0..keys as u64).map(inserted).collect();
        before.extend((0..keys as u64).filter(|key| key % kept != 0).map(|key| (key, Access::Remove)));
        return before;
    }
    for _ in 0..draw(keys) {
        before.push((draw(keys) as u64, Access::Remove));
    }
    before
}

/// Draws an operation on a key, which writes a value if it writes.
fn operation(purpose: Purpose, key: u64, written: u64, draw: &mut dyn FnMut(usize) -> usize) -> Operation {
    let of = |access| Operation::On(key, access);
    let kind = match purpose {
        // More removals and scans.
        Purpose::Free | Purpose::Empty => [4, 5, 15, 14, 7, 8, 0, 2, 12, 6, 4, 15][draw(12)],
        // More new keys.
        Purpose::Split => [0, 1, 2, 3, 12, 12, 0, 2, 15, 7, 4, 10][draw(12)],
        // More writes of existing keys.
        Purpose::Hot => [0, 2, 3, 10, 11, 13, 14, 7, 8, 4][draw(10)],
        Purpose::Mixed => draw(16),
    };
    of(match kind {
        0..2 => Access::Insert(written),
        2..4 => Access::Upsert(written),
        4..7 => Access::Remove,
        7..10 => Access::Get,
        10..12 => Access::Update(written),
        12 => Access::InsertNew(written),
        13 => Access::Swap(key, written),
        14 => Access::Swap(WRITTEN + 1 + draw(8) as u64, written),
        _ => return Operation::Scan(Way::draw(draw)),
    })
}
