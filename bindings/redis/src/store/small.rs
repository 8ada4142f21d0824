//! Small maps: name, time to live and fields are one value of `redis.small`, under space and id in one word.
//!
//! A write of any number of fields replaces that value, which is one step. A map that outgrows [`BYTES`] becomes a large one, in
//! one step, and stays one. Space 0 has maps that no key has yet: the next start removes what a crash leaves there.
//!
//! A value is a byte with the number of fields and, as its highest bit, whether there is a time to live; the length of the name
//! as two bytes big-endian if it is [`LONG`] or more, otherwise as one; the time; the name; and per field the length of its name
//! as a byte, the name, and so its value. Zeros follow, up to one of [`VALUE_BYTES`].

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use bristlecone::{Result, Tree};

use super::read::{Bounds, Item};
use super::{Change, FOREVER, Of, Store, Time, damaged, item_key};
use crate::map::{Large, Small};

/// The tree of small maps.
pub type Words = Tree<u64, Vec<u8>>;

/// Size in bytes of the entry of the largest small map, its name included.
pub const BYTES: usize = 240;
/// Fields of a small map.
const FIELDS_MAX: usize = 0x7f;
/// Lengths of values, so that they need few sizes of slots: each size has a chunk of its own. Longer ones are those of names
/// that a map got after it was written.
const VALUE_BYTES: [usize; 7] = [16, 32, 48, 112, BYTES, 2032, 16_368];
/// Length from which on a name has two bytes for it.
const LONG: usize = 0x80;

/// A small map as the pool has it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When it expires, in milliseconds since 1970, or [`FOREVER`].
    pub expires: i64,
    /// The Redis key.
    pub name: &'a [u8],
    count: usize,
    fields: &'a [u8],
}

/// The fields of a small map with their values, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // `Entry::of` has compared the lengths.
        take(&mut self.rest).zip(take(&mut self.rest))
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first()?;
    let (part, after) = after.split_at_checked(usize::from(*len))?;
    *rest = after;
    Some(part)
}

impl<'a> Entry<'a> {
    /// Returns what a value of the tree is.
    pub fn of(value: &'a [u8]) -> Result<Self> {
        Self::read(value).ok_or_else(|| damaged("the entry of a small map"))
    }

    fn read(value: &'a [u8]) -> Option<Self> {
        let (count, mut rest) = value.split_first()?;
        let (mut len, after) = rest.split_first().map(|(len, after)| (usize::from(*len), after))?;
        rest = after;
        if len >= LONG {
            let (low, after) = rest.split_first()?;
            (len, rest) = ((len - LONG) << 8 | usize::from(*low), after);
        }
        let mut expires = FOREVER;
        if count & 0x80 != 0 {
            let (time, after) = rest.split_first_chunk()?;
            (expires, rest) = (i64::from_be_bytes(*time), after);
        }
        let (name, fields) = rest.split_at_checked(len)?;
        let count = usize::from(count & 0x7f);
        let entry = Self { expires, name, count, fields };
        (entry.fields().count() == count).then_some(entry)
    }

    /// Returns how many fields there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the fields.
    pub fn fields(&self) -> Fields<'a> {
        Fields { left: self.count, rest: self.fields }
    }

    /// Returns the value of a field.
    pub fn value(&self, field: &[u8]) -> Option<&'a [u8]> {
        self.fields().find(|(name, _)| *name == field).map(|(_, value)| value)
    }
}

/// Returns the value of the tree for a map, or nothing if it is not small. `bytes`: how long it may be.
fn encode<'a>(
    (expires, name): (i64, &[u8]),
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    bytes: usize,
) -> Option<Vec<u8>> {
    let count = fields.clone().count();
    let mut value = Vec::with_capacity(BYTES);
    let timed = expires != FOREVER;
    value.push(count as u8 | u8::from(timed) << 7);
    match name.len() {
        len @ ..LONG => value.push(len as u8),
        len => value.extend_from_slice(&(len as u16 | 0x8000).to_be_bytes()),
    }
    if timed {
        value.extend_from_slice(&expires.to_be_bytes());
    }
    if count > FIELDS_MAX || name.len() > bytes {
        return None;
    }
    value.extend_from_slice(name);
    for part in fields.flat_map(|(field, value)| [field, value]) {
        value.push(u8::try_from(part.len()).ok()?);
        value.extend_from_slice(part);
        if value.len() > bytes {
            return None;
        }
    }
    let padded =
        VALUE_BYTES.into_iter().find(|padded| *padded >= value.len()).filter(|padded| *padded <= bytes)?;
    value.resize(padded, 0);
    Some(value)
}

/// Returns how many fields a value of the tree has.
pub(super) fn len_of(value: &[u8]) -> i64 {
    value.first().map_or(0, |count| i64::from(count & 0x7f))
}

/// The longest value: a name that a map got later may need it.
const LONGEST: usize = VALUE_BYTES[VALUE_BYTES.len() - 1];

impl Store {
    /// Returns the tree of small maps.
    pub fn small(&self) -> &Words {
        &self.small
    }

    /// Calls `show` with a small map as it is.
    pub fn with_small<R>(&self, small: Small, show: impl FnOnce(Entry<'_>) -> R) -> Result<R> {
        let shown = self.small.get_with(small.word(), |value| Entry::of(value).map(show))?;
        shown.unwrap_or_else(|| Err(damaged("a small map is not there")))
    }

    /// Returns the items of a small map within bounds, in order; each field is preceded by the map's id.
    pub(super) fn small_items(&self, small: Small, (from, to): &Bounds) -> Result<Vec<Item>> {
        self.with_small(small, |entry| {
            let items = entry.fields().map(|(field, value)| (item_key(small.id(), field), value.to_vec()));
            let within = |key: &Vec<u8>| {
                (match from {
                    Bound::Included(from) => key >= from,
                    Bound::Excluded(from) => key > from,
                    Bound::Unbounded => true,
                }) && match to {
                    Bound::Included(to) => key <= to,
                    Bound::Excluded(to) => key < to,
                    Bound::Unbounded => true,
                }
            };
            items.filter(|(key, _)| within(key)).collect()
        })
    }

    /// Calls `show` with each small map of a space, or of any, in the order of spaces and ids, until it breaks.
    pub fn each_small(
        &self,
        space: Option<u64>,
        mut show: impl FnMut(Small, Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut is_damaged = false;
        let mut each = |word: u64, value: &[u8]| match (Small::of_word(word), Entry::of(value)) {
            (Some(small), Ok(entry)) => show(small, entry),
            _ => {
                is_damaged = true;
                ControlFlow::Break(())
            }
        };
        let from = Small::new(space.unwrap_or(0), 0).map_or(u64::MAX, Small::word);
        match space.and_then(|space| Small::new(space + 1, 0)) {
            Some(to) => self.small.for_each_in(from..to.word(), &mut each)?,
            None => self.small.for_each_in(from.., &mut each)?,
        }
        if is_damaged { Err(damaged("an entry of a small map")) } else { Ok(()) }
    }

    /// Returns the largest id of a small map of any space.
    pub(super) fn last_small_id(&self) -> Result<u64> {
        let (mut last, mut end) = (0, Bound::Unbounded);
        while let Some((word, _)) = self.small.range((Bound::Unbounded, end)).next_back().transpose()? {
            let small = Small::of_word(word).ok_or_else(|| damaged("the key of a small map"))?;
            last = last.max(small.id());
            // The last one of the space before.
            end = Bound::Excluded(word - small.id());
        }
        Ok(last)
    }

    /// Returns the entry of a map that is to be created, if it is small.
    pub(super) fn small_value(&self, name: &[u8], changes: &[Change<'_>]) -> Option<Vec<u8>> {
        // A field has a length and so has its value.
        let bytes = changes.iter().map(|(field, value)| 2 + field.len() + value.map_or(0, <[u8]>::len));
        if changes.len() > FIELDS_MAX || bytes.sum::<usize>() > BYTES {
            return None;
        }
        let fields: BTreeMap<&[u8], &[u8]> =
            changes.iter().filter_map(|(field, value)| Some((*field, (*value)?))).collect();
        encode((FOREVER, name), fields.iter().map(|(field, value)| (*field, *value)), BYTES)
    }

    /// Writes a small map that no key has yet. `None`: under this name it is not small.
    pub fn begin_small(&self, name: &[u8], items: &[(&[u8], &[u8])]) -> Result<Option<Small>> {
        let changes: Vec<Change<'_>> = items.iter().map(|(field, value)| (*field, Some(*value))).collect();
        let Some(value) = self.small_value(name, &changes) else { return Ok(None) };
        self.settle()?;
        let Some(small) = Small::new(0, self.new_id()) else { return Ok(None) };
        self.with_room(|| self.small.upsert(small.word(), &value))?;
        self.small_fields.fetch_add(len_of(&value), Ordering::Relaxed);
        Ok(Some(small))
    }

    /// Returns the bytes that a small map takes: its slot, and a word and the reference in a leaf.
    pub fn small_bytes(&self, small: Small) -> Result<usize> {
        let len = self
            .small
            .get_with(small.word(), <[u8]>::len)?
            .ok_or_else(|| damaged("a small map is not there"))?;
        Ok(2 * size_of::<u64>() + (len + size_of::<u64>()).next_multiple_of(16))
    }

    /// Writes a copy of a small map that no key has yet.
    pub fn copy_small(&self, small: Small) -> Result<Option<Small>> {
        let value = self.small.get(small.word())?.ok_or_else(|| damaged("a small map is not there"))?;
        self.settle()?;
        let Some(copy) = Small::new(0, self.new_id()) else { return Ok(None) };
        self.with_room(|| self.small.upsert(copy.word(), &value))?;
        self.small_fields.fetch_add(len_of(&value), Ordering::Relaxed);
        Ok(Some(copy))
    }

    /// Changes fields of a small map, and writes times of its fields: all of that or, after `Err`, nothing. Returns how many fields
    /// there are more, and the map that it has grown to, if it is not small any more. A map with times is none.
    pub fn change_small(
        &self,
        small: Small,
        changes: &[Change<'_>],
        times: &[Time<'_>],
    ) -> Result<(i64, Option<Large>)> {
        self.settle()?;
        self.begin_times(times)?;
        let old = self.small.get(small.word())?.ok_or_else(|| damaged("a small map is not there"))?;
        let entry = Entry::of(&old)?;
        let mut fields: BTreeMap<&[u8], &[u8]> = entry.fields().collect();
        for (field, value) in changes {
            match value {
                Some(value) => _ = fields.insert(field, value),
                None => _ = fields.remove(field),
            }
        }
        let more = fields.len() as i64 - entry.len() as i64;
        let (owner, bytes) = ((entry.expires, entry.name), old.len().max(BYTES));
        let encoded = encode(owner, fields.iter().map(|(field, value)| (*field, *value)), bytes);
        match encoded.filter(|_| times.is_empty()) {
            Some(new) => {
                let key = small.word().to_be_bytes();
                self.with_room(|| self.replace(Of::Small, &key, Some(old.clone()), Some(&new)))?;
                self.small_fields.fetch_add(more, Ordering::Relaxed);
                Ok((more, None))
            }
            None => {
                let items: Vec<Change<'_>> =
                    fields.iter().map(|(field, value)| (*field, Some(*value))).collect();
                let large = self.with_room(|| self.grow(small, owner, &items, times))?;
                self.small_fields.fetch_sub(entry.len() as i64, Ordering::Relaxed);
                large.set_len(fields.len() as u64);
                large.set_earliest(u64::MAX);
                self.note_times(Some(&large), times);
                Ok((more, Some(large)))
            }
        }
    }

    /// Makes a small map a large one, in one step.
    fn grow(
        &self,
        small: Small,
        (expires, name): (i64, &[u8]),
        items: &[Change<'_>],
        times: &[Time<'_>],
    ) -> Result<Large> {
        let (space, id) = (small.space(), small.id());
        self.in_one_step(false, |step| {
            step.remove(Of::Small, &small.word().to_be_bytes());
            step.insert(Of::Directory, &super::place(space, id), &super::entry_value(expires, name));
            super::change(step, id, items);
            super::expiries::change(step, id, &[], times);
        })?;
        Ok(Large::new(id, Some(space)))
    }

    /// Returns the entry of a small map under another name, with another time to live; `None`: it is too long.
    pub(super) fn renamed(&self, small: Small, expires: i64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with_small(small, |entry| encode((expires, name), entry.fields(), LONGEST))
    }

    /// Makes a small map a large one of a space under a name that is too long for a small one, in one step.
    pub(super) fn grow_to(&self, small: Small, space: u64, expires: i64, name: &[u8]) -> Result<Large> {
        let old = self.small.get(small.word())?.ok_or_else(|| damaged("a small map is not there"))?;
        let items: Vec<Change<'_>> =
            Entry::of(&old)?.fields().map(|(field, value)| (field, Some(value))).collect();
        self.commit(self.was_freed(name), |step| {
            step.remove(Of::Small, &small.word().to_be_bytes());
            step.insert(Of::Directory, &super::place(space, small.id()), &super::entry_value(expires, name));
            super::change(step, small.id(), &items);
        })?;
        self.small_fields.fetch_sub(items.len() as i64, Ordering::Relaxed);
        let large = Large::new(small.id(), Some(space));
        large.set_len(items.len() as u64);
        Ok(large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Item<'a> = (&'a [u8], &'a [u8]);

    fn again(expires: i64, name: &[u8], fields: &[Item<'_>], bytes: usize) -> Option<usize> {
        let value = encode((expires, name), fields.iter().copied(), bytes)?;
        let entry = Entry::of(&value).unwrap();
        assert_eq!((entry.expires, entry.name, entry.len()), (expires, name, fields.len()));
        assert_eq!(entry.fields().collect::<Vec<_>>(), fields);
        Some(value.len())
    }

    #[test]
    fn an_entry_has_what_was_written() {
        assert_eq!(again(FOREVER, b"key:00000001", &[(b"field", b"val")], BYTES), Some(32));
        assert_eq!(again(FOREVER, b"", &[(b"", b"")], BYTES), Some(16));
        assert_eq!(again(i64::MAX, b"name", &[(b"a", b""), (b"b", &[0; 200])], BYTES), Some(BYTES));
        assert_eq!(again(0, &[b'n'; 127], &[], BYTES), Some(BYTES));
        assert_eq!(again(7, &[b'n'; 128], &[(b"f", b"v")], BYTES), Some(BYTES));
        assert_eq!(again(FOREVER, &[b'n'; 300], &[(b"f", b"v")], BYTES), None);
        assert_eq!(again(FOREVER, &[b'n'; 16_000], &[(b"f", b"v")], LONGEST), Some(LONGEST));
        assert_eq!(again(FOREVER, &[b'n'; 16_368], &[(b"f", b"v")], LONGEST), None);
        assert_eq!(again(FOREVER, &[b'n'; 131_060], &[(b"f", b"v")], LONGEST), None);
        assert_eq!(again(FOREVER, b"n", &[(b"f", &[0; 256])], LONGEST), None);
        let many: Vec<String> = (0..128).map(|n| format!("{n:03}")).collect();
        let many: Vec<Item<'_>> = many.iter().map(|field| (field.as_bytes(), b"".as_slice())).collect();
        assert_eq!(again(FOREVER, b"n", &many, LONGEST), None);
        assert_eq!(again(FOREVER, b"n", &many[..127], LONGEST), Some(2032));
    }

    #[test]
    fn an_entry_that_is_cut_short_is_damaged() {
        let value =
            encode((5, b"name"), [(b"a".as_slice(), b"1".as_slice()), (b"b", b"2")].into_iter(), BYTES)
                .unwrap();
        assert!(Entry::of(&value).is_ok());
        let len = 1 + 1 + 8 + 4 + 2 * 4;
        for cut in 0..len {
            assert!(Entry::of(&value[..cut]).is_err(), "{cut}");
        }
    }
}
