//! When single fields expire.
//!
//! The tree `redis.expiries` has the time of each field that expires, under the key of its item. Fields and values stay where they
//! are: a map without times has no entry there, and a pool whose maps have none has no such tree. A time takes the same few bytes
//! for values of any length. A batch writes items and times of both trees in one step.
//!
//! A field whose time has come is absent for commands of clients, whether it was removed or not. Commands of a master and of
//! a file take it as it is stored: what they were when the master carried them out does not depend on the time.

use std::ops::{Bound, ControlFlow};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bristlecone::{Design, Error, Expiring, ExpiringTree, Expiry, Pool, Result};

use super::read::{Bounds, Item};
use super::{Change, ID_BYTES, Place, Step, Store, all_of, borrowed, item_key, number};
use crate::map::Large;

/// The tree's name.
const NAME: &str = "redis.expiries";

/// The tree of times.
pub type Expiries = ExpiringTree<Vec<u8>, Vec<u8>>;

/// An entry of the tree.
pub type Entry = (Vec<u8>, Expiring<Vec<u8>>);

/// The time of a command for which no field expires: one of a master, or of a map without times.
pub const NO_TIME: u64 = 0;

/// A field, and the time that it gets in milliseconds since 1970; 0: none.
pub type Time<'a> = (&'a [u8], u64);

/// The tree, once there is one, and what is known of it.
#[derive(Debug)]
pub struct Times {
    tree: OnceLock<Expiries>,
    /// That of the other trees.
    design: Design,
    /// No field expires before.
    earliest: AtomicU64,
}

impl Times {
    /// Opens the tree if there is one.
    pub(super) fn open(pool: &Pool, design: Design) -> Result<Self> {
        let (tree, earliest) = (OnceLock::new(), AtomicU64::new(u64::MAX));
        match pool.tree_options(NAME).open::<Vec<u8>, Expiring<Vec<u8>>>() {
            Err(Error::NoSuchTree { .. }) => {}
            opened => {
                _ = tree.set(opened?.expiring());
                earliest.store(NO_TIME, Ordering::Relaxed);
            }
        }
        Ok(Self { tree, design, earliest })
    }
}

/// Returns the entry of a field that expires.
pub fn entry(time: u64) -> Expiring<&'static [u8]> {
    Expiring::new(b"", Expiry::from_millis(time))
}

/// Returns a time as it is packed: eight bytes big-endian in place of the value.
pub fn as_item(time: Result<Entry>) -> Result<Item> {
    time.map(|(key, time)| (key, time.expiry.as_millis().to_be_bytes().to_vec()))
}

/// Returns whether a time has come.
pub fn is_over(time: &Expiring<Vec<u8>>, now: u64) -> bool {
    time.expiry.as_millis() <= now
}

/// Items without those whose time has come. Items and times are those of the same bounds.
pub struct Live<I, T> {
    items: I,
    times: T,
    now: u64,
    /// The time that was read last, from each end.
    front: Option<Entry>,
    back: Option<Entry>,
}

impl<I, T> Live<I, T>
where
    I: DoubleEndedIterator<Item = Result<Item>>,
    T: DoubleEndedIterator<Item = Result<Entry>>,
{
    /// Returns the items that have not expired.
    pub fn new(items: I, times: T, now: u64) -> Self {
        Self { items, times, now, front: None, back: None }
    }

    /// Returns whether a field that was reached from the front has expired.
    fn is_over(&mut self, key: &[u8]) -> Result<bool> {
        while self.front.as_ref().is_none_or(|(at, _)| at.as_slice() < key) {
            match self.times.next().transpose()? {
                Some(next) => self.front = Some(next),
                None => break,
            }
        }
        Ok(self.has(key))
    }

    /// Does the same from the back.
    fn is_over_from_back(&mut self, key: &[u8]) -> Result<bool> {
        while self.back.as_ref().is_none_or(|(at, _)| at.as_slice() > key) {
            match self.times.next_back().transpose()? {
                Some(next) => self.back = Some(next),
                None => break,
            }
        }
        Ok(self.has(key))
    }

    fn has(&self, key: &[u8]) -> bool {
        let of_key = |(at, time): &Entry| at == key && is_over(time, self.now);
        self.front.as_ref().is_some_and(of_key) || self.back.as_ref().is_some_and(of_key)
    }
}

impl<I, T> Iterator for Live<I, T>
where
    I: DoubleEndedIterator<Item = Result<Item>>,
    T: DoubleEndedIterator<Item = Result<Entry>>,
{
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let item = self.items.next()?;
            match item.and_then(|item| Ok((self.is_over(&item.0)?, item))) {
                Ok((true, _)) => {}
                Ok((false, item)) => return Some(Ok(item)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<I, T> DoubleEndedIterator for Live<I, T>
where
    I: DoubleEndedIterator<Item = Result<Item>>,
    T: DoubleEndedIterator<Item = Result<Entry>>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let item = self.items.next_back()?;
            match item.and_then(|item| Ok((self.is_over_from_back(&item.0)?, item))) {
                Ok((true, _)) => {}
                Ok((false, item)) => return Some(Ok(item)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Some of the fields that are to be removed.
#[derive(Debug, Default)]
pub struct Due {
    /// Their keys.
    pub keys: Vec<Vec<u8>>,
    /// The last key that was looked at; `None`: the end was reached.
    pub last: Option<Vec<u8>>,
    /// The earliest time of the others.
    pub earliest: Option<u64>,
}

impl Store {
    /// Returns the tree of times, if there is one.
    pub fn expiries(&self) -> Option<&Expiries> {
        self.times.tree.get()
    }

    /// Returns the tree of times, which is created if there is none.
    fn expiries_or_new(&self) -> Result<&Expiries> {
        if let Some(tree) = self.expiries() {
            return Ok(tree);
        }
        let tree = self.with_room(|| self.pool.tree_options(NAME).design(self.times.design).create())?;
        Ok(self.times.tree.get_or_init(|| tree.expiring()))
    }

    /// Returns the time now in milliseconds since 1970.
    pub fn now(&self) -> u64 {
        let now = self.expiries().map_or_else(SystemTime::now, Expiries::now);
        Expiry::at(now).as_millis()
    }

    /// Returns whether fields of a map have times. The first time it looks.
    pub fn has_times(&self, large: &Large) -> Result<bool> {
        let Some(tree) = self.expiries() else { return Ok(false) };
        if large.earliest().is_none() {
            let has = tree.entries().range(borrowed(&all_of(large.id()))).next().transpose()?.is_some();
            large.set_earliest(if has { NO_TIME + 1 } else { u64::MAX });
        }
        Ok(large.earliest() != Some(u64::MAX))
    }

    /// Returns when a field expires, if it does.
    pub fn time_of(&self, large: &Large, field: &[u8]) -> Result<Option<u64>> {
        match self.expiries() {
            Some(_) if self.has_times(large)? => self.time_at(&item_key(large.id(), field)),
            _ => Ok(None),
        }
    }

    /// Returns when the field of an item expires, if it does.
    pub fn time_at(&self, key: &[u8]) -> Result<Option<u64>> {
        let Some(tree) = self.expiries() else { return Ok(None) };
        Ok(tree.entries().get(key)?.map(|time| time.expiry.as_millis()))
    }

    /// Writes when the field of an item expires; [`NO_TIME`]: it does not.
    pub(super) fn set_time_at(&self, key: &[u8], time: u64) -> Result<()> {
        match self.expiries() {
            Some(tree) if time != NO_TIME => tree.entries().upsert(key, entry(time)),
            Some(tree) => tree.entries().remove(key).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the times of those of a map's fields that have one.
    pub fn times_of<'a>(&self, large: &Large, fields: &[Change<'a>]) -> Result<Vec<Time<'a>>> {
        let mut times = Vec::new();
        for (field, _) in fields {
            times.extend(self.time_of(large, field)?.map(|time| (*field, time)));
        }
        Ok(times)
    }

    /// Returns the times of a map's fields within bounds.
    pub fn times_within<'t>(
        &'t self,
        bounds: &Bounds,
    ) -> impl DoubleEndedIterator<Item = Result<Entry>> + 't {
        self.expiries().map(|tree| tree.entries().range(borrowed(bounds))).into_iter().flatten()
    }

    /// Returns the times of a map that an entry names.
    pub fn times_at(&self, place: Place) -> Result<Vec<(Vec<u8>, u64)>> {
        let bounds = all_of(place.id);
        let times =
            self.times_within(&bounds).map(|time| time.map(|(key, time)| (key, time.expiry.as_millis())));
        times.collect()
    }

    /// Returns how many of these have expired and match.
    pub fn over_within(&self, bounds: &Bounds, now: u64, matches: impl Fn(&[u8]) -> bool) -> Result<u64> {
        let mut over = 0;
        let Some(tree) = self.expiries().filter(|_| now != NO_TIME) else { return Ok(0) };
        tree.entries().for_each_in(borrowed(bounds), |key, time| {
            over += u64::from(time.expiry.as_millis() <= now && matches(key));
            ControlFlow::Continue(())
        })?;
        Ok(over)
    }

    /// Returns how many fields of a map have expired, and are not removed yet.
    pub fn over_in(&self, large: &Large, now: u64) -> Result<u64> {
        if now == NO_TIME
            || !self.has_times(large)?
            || large.earliest().is_some_and(|earliest| earliest > now)
        {
            return Ok(0);
        }
        let (mut over, mut earliest) = (0, u64::MAX);
        for time in self.times_within(&all_of(large.id())) {
            let (_, time) = time?;
            match is_over(&time, now) {
                true => over += 1,
                false => earliest = earliest.min(time.expiry.as_millis()),
            }
        }
        if over == 0 {
            large.set_earliest(earliest);
        }
        Ok(over)
    }

    /// Returns the changed fields that lose their times: those that get no other one.
    pub(super) fn losing<'a>(
        &self,
        large: &Large,
        changes: &[Change<'a>],
        times: &[Time<'_>],
    ) -> Result<Vec<&'a [u8]>> {
        let mut losing = Vec::new();
        if !self.has_times(large)? {
            return Ok(losing);
        }
        for (field, _) in changes {
            if times.iter().all(|(other, _)| other != field) && self.time_of(large, field)?.is_some() {
                losing.push(*field);
            }
        }
        Ok(losing)
    }

    /// Prepares for a step that writes times.
    pub(super) fn begin_times(&self, times: &[Time<'_>]) -> Result<()> {
        if times.iter().any(|(_, time)| *time != NO_TIME) { self.expiries_or_new().map(drop) } else { Ok(()) }
    }

    /// Notes that times were written.
    pub(super) fn note_times(&self, large: Option<&Large>, times: &[Time<'_>]) {
        let earliest = times.iter().map(|(_, time)| *time).filter(|time| *time != NO_TIME).min();
        if let Some(earliest) = earliest {
            self.times.earliest.fetch_min(earliest, Ordering::Relaxed);
            if let Some(large) = large {
                large.expires_at(earliest);
            }
        }
    }

    /// Writes times of a map that no key has yet.
    pub fn fill_times(&self, id: u64, times: &[Time<'_>]) -> Result<()> {
        let tree = self.expiries_or_new()?;
        self.with_room(|| {
            let mut batch = self.pool.batch();
            for (field, time) in times {
                batch.insert(tree.entries(), &item_key(id, field), entry(*time));
            }
            batch.commit()
        })?;
        self.note_times(None, times);
        Ok(())
    }

    /// Copies the times of a map to another, which has the fields or is to have them.
    pub(super) fn copy_times(&self, from: u64, to: u64) -> Result<()> {
        let Some(tree) = self.expiries() else { return Ok(()) };
        for time in tree.entries().range(borrowed(&all_of(from))) {
            let (key, time) = time?;
            let field = &key[ID_BYTES..];
            tree.entries().upsert(&item_key(to, field), entry(time.expiry.as_millis()))?;
            self.note_times(None, &[(field, time.expiry.as_millis())]);
        }
        Ok(())
    }

    /// Removes some times within bounds, one by one. Returns how many.
    pub(super) fn remove_times(&self, bounds: &Bounds, max: usize) -> Result<usize> {
        let Some(tree) = self.expiries() else { return Ok(0) };
        let keys = tree.entries().range(borrowed(bounds)).take(max).map(|time| time.map(|(key, _)| key));
        let keys: Vec<Vec<u8>> = keys.collect::<Result<_>>()?;
        keys.iter().try_for_each(|key| tree.entries().remove(key).map(drop))?;
        Ok(keys.len())
    }

    /// Returns the largest id of a map with times.
    pub(super) fn last_id_with_times(&self) -> Result<u64> {
        let last = self.expiries().and_then(|tree| tree.entries().range(..).next_back());
        match last.transpose()? {
            Some((key, _)) => number(key.get(..ID_BYTES).unwrap_or_default()),
            None => Ok(0),
        }
    }

    /// Returns whether a field may have expired. No time is earlier than what this returned before, until one is written.
    pub fn may_be_due(&self, now: u64) -> bool {
        self.expiries().is_some() && self.times.earliest.load(Ordering::Relaxed) <= now
    }

    /// Begins a pass over all times: those that are written from now on count as well.
    pub fn begin_pass(&self) {
        self.times.earliest.store(u64::MAX, Ordering::Relaxed);
    }

    /// Notes the earliest time that a pass has left.
    pub fn end_pass(&self, earliest: u64) {
        self.times.earliest.fetch_min(earliest, Ordering::Relaxed);
    }

    /// Looks at some times from a key on, and returns the fields of any map that have expired.
    pub fn due(&self, from: &Bound<Vec<u8>>, now: u64, looks: usize, max: usize) -> Result<Due> {
        let (mut due, mut looked_at) = (Due::default(), 0);
        let Some(tree) = self.expiries() else { return Ok(due) };
        let bounds = (from.clone(), Bound::Unbounded);
        tree.entries().for_each_in(borrowed(&bounds), |key, time| {
            looked_at += 1;
            let time = time.expiry.as_millis();
            if time <= now {
                due.keys.push(key.to_vec());
            } else {
                due.earliest = Some(due.earliest.map_or(time, |earliest| earliest.min(time)));
            }
            if looked_at < looks && due.keys.len() < max {
                return ControlFlow::Continue(());
            }
            due.last = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(due)
    }
}

/// Puts times of a map into a step.
pub(super) fn change(step: &mut Step<'_>, id: u64, losing: &[&[u8]], times: &[Time<'_>]) {
    for field in losing {
        step.set_time(&item_key(id, field), NO_TIME);
    }
    for (field, time) in times {
        step.set_time(&item_key(id, field), *time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(
        items: &[u8],
        over: &[u8],
        later: &[u8],
    ) -> Live<impl DoubleEndedIterator<Item = Result<Item>>, impl DoubleEndedIterator<Item = Result<Entry>>>
    {
        let items: Vec<Item> = items.iter().map(|key| (vec![*key], Vec::new())).collect();
        let mut times: Vec<(u8, u64)> =
            over.iter().map(|key| (*key, 5)).chain(later.iter().map(|key| (*key, 6))).collect();
        times.sort_unstable();
        let time = |(key, time): (u8, u64)| (vec![key], Expiring::new(Vec::new(), Expiry::from_millis(time)));
        Live::new(items.into_iter().map(Ok), times.into_iter().map(time).map(Ok), 5)
    }

    #[test]
    fn expired_items_are_left_out_from_both_ends() {
        let sets: [&[u8]; 6] = [b"", b"a", b"bd", b"abcdef", b"af", b"ce"];
        for (over, later) in sets.iter().flat_map(|over| sets.iter().map(move |later| (*over, *later))) {
            let later: Vec<u8> = later.iter().copied().filter(|key| !over.contains(key)).collect();
            let expected: Vec<u8> = b"abcdef".iter().copied().filter(|key| !over.contains(key)).collect();
            // Each bit says from which end the next item is taken.
            for ends in 0..64u32 {
                let mut items = live(b"abcdef", over, &later);
                let (mut front, mut back) = (Vec::new(), Vec::new());
                for at in 0.. {
                    let is_front = ends >> (at % 6) & 1 == 0;
                    let next = if is_front { items.next() } else { items.next_back() };
                    let Some(item) = next else { break };
                    if is_front { &mut front } else { &mut back }.push(item.unwrap().0[0]);
                }
                back.reverse();
                assert_eq!([front, back].concat(), expected, "{over:?} {later:?} {ends:b}");
            }
        }
    }
}
