//! What the threads of a schedule do.

use std::collections::BTreeMap;

use super::history::Deed;
use crate::systems::Access;

/// Values that the threads write are this and above, all different.
const WRITTEN: u64 = 1000;

/// A plan: what is there at first, and what each thread does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Done one after the other, before the threads begin.
    pub before: Vec<(u64, Access)>,
    /// What each thread does.
    pub threads: Vec<Vec<Deed>>,
}

impl Plan {
    /// Two or three threads with two to four operations each, on keys of few leaves, most of them on
    /// keys that others are busy with. In one plan of three the leaves are full at first, as an
    /// ascending load leaves them, and every other key is new.
    pub fn draw(roll: &mut dyn FnMut(usize) -> usize) -> Self {
        let full = roll(3) == 0;
        let keys = [4, 8, 16, 30][roll(4)];
        let mut before: Vec<_> = if full {
            (0..keys as u64).step_by(2).map(|key| (key, Access::Insert(key))).collect()
        } else {
            let first = roll(keys) as u64;
            (0..keys as u64)
                .map(|at| (first + at * 7) % keys as u64)
                .filter(|_| roll(8) != 0)
                .map(|key| (key, Access::Insert(key)))
                .collect()
        };
        for _ in 0..if full { 0 } else { roll(keys) } {
            before.push((roll(keys) as u64, Access::Remove));
        }
        let hot = [0; 3].map(|_| roll(keys + 2) as u64);
        let mut written = WRITTEN;
        let mut deed = |roll: &mut dyn FnMut(usize) -> usize| {
            let key = if roll(3) == 0 { roll(keys + 2) as u64 } else { hot[roll(3)] };
            written += 1;
            let access = match roll(16) {
                0..2 => Access::Insert(written),
                2..4 => Access::Upsert(written),
                4..7 => Access::Remove,
                7..10 => Access::Get,
                10..12 => Access::Update(written),
                12 => Access::InsertNew(written),
                13 => Access::Swap(key, written),
                14 => Access::Swap(WRITTEN + 1 + roll(8) as u64, written),
                _ => return Deed::Scan,
            };
            Deed::Of(key, access)
        };
        let threads = 2 + roll(2);
        let threads = (0..threads).map(|_| (0..2 + roll(3)).map(|_| deed(roll)).collect()).collect();
        Self { before, threads }
    }

    /// What is there when the threads begin.
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
