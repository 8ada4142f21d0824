//! What the threads of a schedule do.

use std::collections::BTreeMap;

use super::history::Deed;
use crate::model::access::Access;

/// Values that the threads write are this and above, all different.
const WRITTEN: u64 = 1000;

/// A plan: what is there at first, and what each thread does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Done one after the other, before the threads begin.
    pub before: Vec<(u64, Access)>,
    /// What each thread does.
    pub threads: Vec<Vec<Deed>>,
    /// Requests for room that the medium grants meanwhile, and how many it refuses after these.
    pub room: (u64, u64),
}

/// The medium has room for whatever is asked for.
const ROOM: (u64, u64) = (u64::MAX, 0);

/// Writes after a crash have values from here on.
const WRITTEN_LATER: u64 = 5000;

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Leaves half full, and a bit of everything.
    Mixed,
    /// Leaves are full at first, as an ascending load leaves them, and every other key is new.
    Split,
    /// Leaves have one or two keys each at first, which are removed under the eyes of others.
    Free,
    /// Of many leaves few are left at first, in nodes of the index of their own, and these go, too.
    Empty,
    /// A few keys that are written again and again.
    Hot,
}

impl Plan {
    /// Makes a plan with room for everything.
    pub fn new(before: Vec<(u64, Access)>, threads: Vec<Vec<Deed>>) -> Self {
        Self { before, threads, room: ROOM }
    }

    /// Draws two or three threads with two to four operations each, on keys of few leaves, most of them on
    /// keys that others are busy with: for one change of structure or another, as often as for none.
    pub fn draw(roll: &mut dyn FnMut(usize) -> usize) -> Self {
        use Purpose::{Empty, Free, Hot, Mixed, Split};
        let all = [Mixed, Mixed, Split, Split, Free, Empty, Hot];
        let purpose = all[roll(all.len())];
        let keys = if purpose == Purpose::Empty { [30, 60][roll(2)] } else { [4, 8, 16, 30][roll(4)] };
        let before = before(purpose, keys, roll);
        // Neighbours, where leaves are to go.
        let first = roll(keys + 2) as u64;
        let hot = [0, 1, 2].map(|next| match purpose {
            Purpose::Free => (first + next) % (keys as u64 + 2),
            Purpose::Empty => next * (keys as u64 / 3),
            // New ones, which leaves have no room for.
            Purpose::Split => (first + 2 * next) | 1,
            _ => roll(keys + 2) as u64,
        });
        let mut written = WRITTEN;
        let mut deed = |roll: &mut dyn FnMut(usize) -> usize| {
            let key = if roll(3) == 0 { roll(keys + 2) as u64 } else { hot[roll(3)] };
            written += 1;
            deed(purpose, key, written, roll)
        };
        let threads = 2 + roll(2);
        let threads = (0..threads).map(|_| (0..2 + roll(3)).map(|_| deed(roll)).collect()).collect();
        let room = match roll(6) {
            0 => (roll(3) as u64, [1, 2, u64::MAX][roll(3)]),
            _ => ROOM,
        };
        Self { before, threads, room }
    }

    /// Draws a few operations on the same keys, for what follows a crash.
    pub(super) fn more(&self, roll: &mut dyn FnMut(usize) -> usize) -> Vec<Deed> {
        let keys: Vec<u64> = self.threads.iter().flatten().filter_map(Deed::key).collect();
        let count = if keys.is_empty() { 0 } else { 1 + roll(4) as u64 };
        let key = |at: usize| keys[at];
        (0..count).map(|at| deed(Purpose::Mixed, key(roll(keys.len())), WRITTEN_LATER + at, roll)).collect()
    }

    /// Returns what is there when the threads begin.
    pub(super) fn at_first(&self) -> BTreeMap<u64, u64> {
        let mut held = BTreeMap::new();
        for (key, access) in &self.before {
            match access.on(held.get(key).copied()).0 {
                Some(value) => held.insert(*key, value),
                None => held.remove(key),
            };
        }
        held
    }
}

/// Draws what is done before the threads begin.
fn before(purpose: Purpose, keys: usize, roll: &mut dyn FnMut(usize) -> usize) -> Vec<(u64, Access)> {
    let inserted = |key| (key, Access::Insert(key));
    if purpose == Purpose::Split {
        return (0..keys as u64).step_by(2).map(inserted).collect();
    }
    let first = roll(keys) as u64;
    let drawn = (0..keys as u64).map(|at| (first + at * 7) % keys as u64);
    let mut before: Vec<_> = drawn.filter(|_| roll(8) != 0).map(inserted).collect();
    if purpose == Purpose::Free {
        // What was loaded in order goes again, but for one key in three or four.
        let kept = 3 + roll(2) as u64;
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
    for _ in 0..roll(keys) {
        before.push((roll(keys) as u64, Access::Remove));
    }
    before
}

/// Draws an operation on a key, which writes a value if it writes.
fn deed(purpose: Purpose, key: u64, written: u64, roll: &mut dyn FnMut(usize) -> usize) -> Deed {
    let of = |access| Deed::Of(key, access);
    let kind = match purpose {
        // More removals and scans.
        Purpose::Free | Purpose::Empty => [4, 5, 15, 14, 7, 8, 0, 2, 12, 6, 4, 15][roll(12)],
        // More new keys.
        Purpose::Split => [0, 1, 2, 3, 12, 12, 0, 2, 15, 7, 4, 10][roll(12)],
        // More writes of what is there.
        Purpose::Hot => [0, 2, 3, 10, 11, 13, 14, 7, 8, 4][roll(10)],
        Purpose::Mixed => roll(16),
    };
    of(match kind {
        0..2 => Access::Insert(written),
        2..4 => Access::Upsert(written),
        4..7 => Access::Remove,
        7..10 => Access::Get,
        10..12 => Access::Update(written),
        12 => Access::InsertNew(written),
        13 => Access::Swap(key, written),
        14 => Access::Swap(WRITTEN + 1 + roll(8) as u64, written),
        _ => return Deed::Scan,
    })
}
