//! The operations of a thread, each verified against the board.

use std::fmt::Debug;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use bristlecone::{Pool, Tree};
use bristlecone_matrix::Items;
use bristlecone_random::Generator;

use super::board::{KeyCell, State};
use super::checked::{Checked, expect, failed};
use super::items::{KeyTable, OwnedKey, OwnedValue};
use super::life::Life;
use super::order::Flaw;
use super::other;
use super::round::{Kind, Pattern, Round};

/// Delay of a write that is acknowledged too early: longer than a kill takes.
const EARLY: Duration = Duration::from_millis(2);
/// Maximum number of keys of a scan, and of a run of writes.
const SCAN_ITEMS: u64 = 64;
const BULK_ITEMS: u64 = 24;
/// Number of frequently chosen keys.
const HOT_KEYS: u64 = 4;

/// One thread. It writes only its own keys: every `threads`th one.
pub struct Operator<'a, I: Items> {
    life: &'a Life<'a>,
    keys: &'a KeyTable<I>,
    pool: &'a Pool,
    tree: &'a Tree<I::K, I::V>,
    thread: u64,
    generator: Generator,
    /// State on which the next key depends.
    last: u64,
}

impl<'a, I: Items> Operator<'a, I> {
    pub fn new(
        life: &'a Life<'a>,
        keys: &'a KeyTable<I>,
        pool: &'a Pool,
        tree: &'a Tree<I::K, I::V>,
        thread: u64,
    ) -> Self {
        let mut generator = life.round.generator(life.number, thread);
        let last = generator.below(keys.len() as u64);
        Self { life, keys, pool, tree, thread, generator, last }
    }

    /// Runs the operations of a life.
    pub fn run(mut self) -> Checked {
        let Round { kinds, operations, .. } = self.life.round;
        for _ in 0..*operations {
            let kind = kinds[self.generator.below(kinds.len() as u64) as usize];
            match kind {
                Kind::Get => self.get()?,
                Kind::Scan => self.scan(false)?,
                Kind::Backwards => self.scan(true)?,
                Kind::Bulk => self.bulk()?,
                Kind::OtherTree => self.other_tree()?,
                _ => {
                    let key = self.own_key();
                    self.write(kind, key)?;
                }
            }
            self.life.board.acknowledged.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn cell(&self, key: usize) -> &'a KeyCell {
        &self.life.board.keys[key]
    }

    /// Draws one of `count` items, with the round's pattern.
    fn pick(&mut self, count: u64) -> u64 {
        let next = match self.life.round.pattern {
            Pattern::Hot if self.generator.below(16) > 0 => self.generator.below(HOT_KEYS),
            Pattern::Dense if self.generator.below(64) > 0 => {
                self.last + count * 2 + self.generator.below(5) - 2
            }
            Pattern::Hot | Pattern::Dense | Pattern::Uniform => self.generator.below(count),
            Pattern::Ascending => self.last + 1,
            Pattern::Descending => self.last + count - 1,
        };
        self.last = next % count;
        self.last
    }

    /// Draws one of the keys that the thread writes.
    fn own_key(&mut self) -> usize {
        let threads = self.life.round.threads;
        let own = self.keys.len() as u64 / threads;
        (self.pick(own) * threads + self.thread) as usize
    }

    fn write(&mut self, kind: Kind, key: usize) -> Checked {
        let (tree, cell) = (self.tree, self.cell(key));
        let (key_ref, now) = (I::key_ref(self.keys.key(key)), cell.acknowledged());
        let old = self.keys.value(key, now);
        let (put, gone) = (now.next(true), now.next(false));
        let new = I::value(Round::value_number(key, put));
        let value = I::value_ref(&new);
        match kind {
            Kind::Remove => self.change(key, gone, now.is_present, &old, || tree.remove(key_ref)),
            Kind::Update => self.change(key, put, now.is_present, &old, || tree.update(key_ref, value)),
            Kind::InsertNew => {
                self.change(key, put, !now.is_present, &old, || match tree.try_insert(key_ref, value) {
                    Ok(()) => Ok(None),
                    Err(present) => present.into_present().map(Some),
                })
            }
            Kind::CompareAndSwap => {
                // An operation that sometimes must fail: the value is not present yet.
                let wrong = self.generator.below(8) == 0 || !now.is_present;
                let expected = if wrong { new.clone() } else { old.clone().unwrap_or_else(|| new.clone()) };
                let swaps = old.as_ref() == Some(&expected);
                let expected = I::value_ref(&expected);
                let due = if swaps { Ok(()) } else { Err(old) };
                self.change(key, put, swaps, &due, || {
                    match tree.compare_and_swap(key_ref, Some(expected), Some(value)) {
                        Ok(()) => Ok(Ok(())),
                        Err(differs) => differs.into_found().map(Err),
                    }
                })
            }
            Kind::Upsert | Kind::Bulk => self.change(key, put, true, &(), || tree.upsert(key_ref, value)),
            _ => self.change(key, put, true, &old, || tree.insert(key_ref, value)),
        }
    }

    /// Writes a key: records the intention before, and the acknowledgement after it. Its result
    /// must be as expected.
    fn change<T: PartialEq + Debug>(
        &mut self,
        key: usize,
        next: State,
        changes: bool,
        due: &T,
        write: impl FnOnce() -> bristlecone::Result<T>,
    ) -> Checked {
        let (board, cell, flaw) = (self.life.board, self.cell(key), self.life.flaw);
        let skipped = flaw == Some(Flaw::SkippedWrite) && changes && self.generator.below(20) == 0;
        if changes {
            cell.intend(next);
        }
        if skipped || changes && flaw == Some(Flaw::EarlyAcknowledgement) {
            cell.acknowledge(next);
        }
        if skipped {
            return Ok(());
        }
        if changes && flaw == Some(Flaw::EarlyAcknowledgement) {
            // A kill at an acknowledgement then comes before the write.
            sleep(EARLY);
        }
        match write() {
            Ok(result) => {
                expect(result == *due, || format!("key {key}: a write returned {result:?}, not {due:?}"))?;
                if changes {
                    cell.acknowledge(next);
                }
                Ok(())
            }
            Err(error) if self.life.is_no_room(&error) => {
                cell.refuse();
                board.refused.fetch_add(1, Relaxed);
                self.get_one(key)
            }
            Err(error) => Err(failed("a write")(error)),
        }
    }

    /// Writes adjacent keys, in order.
    fn bulk(&mut self) -> Checked {
        let (first, count) = (self.own_key(), 1 + self.generator.below(BULK_ITEMS));
        let step = self.life.round.threads as usize;
        for key in (first..self.keys.len()).step_by(step).take(count as usize) {
            self.write(Kind::Bulk, key)?;
            self.life.board.acknowledged.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Creates or drops the other tree, which only one thread may do.
    fn other_tree(&mut self) -> Checked {
        // Rarely: it takes as long as a hundred other operations.
        if self.thread == 0 && self.generator.below(16) == 0 {
            let had_room = other::turn(self.life, self.pool, &mut self.generator)?;
            self.life.board.refused.fetch_add(u64::from(!had_room), Relaxed);
        }
        Ok(())
    }

    fn get(&mut self) -> Checked {
        let key = self.pick(self.keys.len() as u64) as usize;
        self.get_one(key)
    }

    fn get_one(&self, key: usize) -> Checked {
        let oldest = self.cell(key).oldest();
        let found = self.tree.get(I::key_ref(self.keys.key(key))).map_err(failed("a read"))?;
        self.verify(key, oldest, found.as_ref())
    }

    /// Expects one of the states that the key had since the read began.
    fn verify(&self, key: usize, oldest: u64, found: Option<&OwnedValue<I>>) -> Checked {
        let cell = self.cell(key);
        let newest = cell.intended().version;
        let (is_right, seen) = match found {
            None => (cell.absent() >= oldest, None),
            Some(found) => {
                let mut versions = (oldest..=newest).map(|version| State { version, is_present: true });
                let seen = versions.find(|state| self.keys.value(key, *state).as_ref() == Some(found));
                (seen.is_some(), seen)
            }
        };
        seen.iter().for_each(|state| cell.see(*state));
        expect(is_right, || {
            format!(
                "key {key}: a reader saw {found:?}, no version from {oldest} to {newest}; absent last in {}",
                cell.absent()
            )
        })
    }

    /// Reads some keys in order: all that existed throughout, and no others.
    fn scan(&mut self, backwards: bool) -> Checked {
        let keys = self.keys;
        let first = self.pick(keys.len() as u64) as usize;
        let last = (first + self.generator.below(SCAN_ITEMS) as usize).min(keys.len() - 1);
        let places = first..=last;
        let before: Vec<_> = places
            .clone()
            .map(|place| {
                let cell = self.cell(keys.at(place));
                (cell.oldest(), cell.acknowledged())
            })
            .collect();
        let key_at = |place: usize| I::key_ref(keys.key(keys.at(place)));
        let range = self.tree.range(key_at(first)..=key_at(last));
        let mut items: Vec<(OwnedKey<I>, OwnedValue<I>)> =
            if backwards { range.rev().collect::<Result<_, _>>() } else { range.collect() }
                .map_err(failed("a read"))?;
        if backwards {
            items.reverse();
        }
        let mut missing = first;
        for (key, value) in items {
            let key = keys.find(&key).ok_or_else(|| Some(format!("a key that no thread wrote: {key:?}")))?;
            let place = keys.place(key);
            expect(place >= missing && place <= last, || format!("key {key} is out of order in a scan"))?;
            self.verify(key, before[place - first].0, Some(&value))?;
            (missing..place)
                .try_for_each(|place| self.verify_missing(keys.at(place), before[place - first].1))?;
            missing = place + 1;
        }
        (missing..=last).try_for_each(|place| self.verify_missing(keys.at(place), before[place - first].1))
    }

    /// Expects that a key missing in a scan was absent before it, or removed during it.
    fn verify_missing(&self, key: usize, before: State) -> Checked {
        let is_right = !before.is_present || self.cell(key).absent() > before.version;
        expect(is_right, || format!("key {key}: a scan left it out, though it was there all the while"))
    }
}
