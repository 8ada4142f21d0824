//! Records of the commit log: keys and their new values, and ranges to remove. `docs/format.md` defines the bytes.

use std::collections::HashSet;

use bristlecone_pm::{Error, Result, TreeId};

use crate::index::parts::encoded::{Encoded, Item};

/// The key is a record, preceded by its length.
const KEY_RECORD: u8 = 1;
/// The key gets a value; without this flag it is removed.
const VALUE: u8 = 1 << 1;
/// The value is a record.
const VALUE_RECORD: u8 = 1 << 2;
/// In entries of a journal: it is known whether the key was present before the change.
const KNOWN: u8 = 1 << 3;
/// In entries of a journal: the key was present before the change.
const PRESENT: u8 = 1 << 4;
/// All keys from the first to the last one, which follow, are removed. Only the commit log has this.
const RANGE: u8 = 1 << 5;
/// Offset of the flags in a change.
pub const FLAGS_AT: usize = 4;

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The tree.
    pub tree: TreeId,
    /// The key.
    pub key: Encoded,
    /// The new value; `None` removes the key.
    pub value: Option<Encoded>,
}

/// The removal of all keys of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The tree.
    pub tree: TreeId,
    /// The smallest key.
    pub first: Encoded,
    /// The largest key.
    pub last: Encoded,
}

/// What a record of the commit log does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes a key.
    Change(Change),
    /// Removes the keys of a range.
    Remove(KeyRange),
}

impl Step {
    /// Returns the tree.
    pub fn tree(&self) -> TreeId {
        match self {
            Self::Change(change) => change.tree,
            Self::Remove(range) => range.tree,
        }
    }
}

/// Size of a change of a word to a word, in bytes.
const WORDS_BYTES: usize = 4 + 1 + 2 * 8;

/// Begins a record with capacity for `changes` changes of words. When the record is complete, it
/// invalidates the record with the number `ends`; 0 means none.
pub fn begin(ends: u64, changes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(size_of::<u64>() + changes * WORDS_BYTES);
    record.extend_from_slice(&ends.to_le_bytes());
    record
}

/// Returns the changes of a record, without its begin.
pub fn changes_of(record: &[u8]) -> &[u8] {
    &record[size_of::<u64>()..]
}

/// Returns the bytes of a change of a word to a word, and how many they are, as little-endian words padded with zeros.
#[inline]
pub fn packed_words(tree: TreeId, key: u64, value: u64) -> ([u64; 3], usize) {
    let begin = u64::from(tree.0) | u64::from(VALUE) << 32;
    // Five bytes are before the key, in the first word; as many of the key in the second; and of the value in the third.
    ([begin | key << 40, key >> 24 | value << 40, value >> 24], WORDS_BYTES)
}

/// Appends a change to a record.
#[inline]
pub fn append(record: &mut Vec<u8>, tree: TreeId, key: &Encoded, value: Option<&Encoded>) {
    append_items(record, tree, key.item(), value.map(Encoded::item));
}

/// Returns the record that removes the keys of a range.
pub fn removal(KeyRange { tree, first, last }: &KeyRange) -> Vec<u8> {
    let mut record = begin(0, 1);
    append(&mut record, *tree, first, Some(last));
    let flags = &mut record[size_of::<u64>() + FLAGS_AT];
    // The last key stands where a change has its value.
    *flags = *flags & KEY_RECORD | RANGE;
    record
}

/// Appends the removal of a key that is present, for an entry of a journal.
pub fn append_removed(record: &mut Vec<u8>, tree: TreeId, key: Item<'_>) {
    let at = record.len();
    append_items(record, tree, key, None);
    record[at + FLAGS_AT] |= mark_of(Some(true));
}

/// Appends a change whose key and value are borrowed.
#[inline]
pub fn append_items(record: &mut Vec<u8>, tree: TreeId, key: Item<'_>, value: Option<Item<'_>>) {
    if let (Item::Word(key), Some(Item::Word(value))) = (key, value) {
        let mut words = [0; WORDS_BYTES];
        words[..4].copy_from_slice(&tree.0.to_le_bytes());
        words[4] = VALUE;
        words[5..13].copy_from_slice(&key.to_le_bytes());
        words[13..].copy_from_slice(&value.to_le_bytes());
        record.extend_from_slice(&words);
        return;
    }
    let is_record = |item: Item<'_>| matches!(item, Item::Bytes(_));
    let flags = if is_record(key) { KEY_RECORD } else { 0 }
        | if value.is_some() { VALUE } else { 0 }
        | if value.is_some_and(is_record) { VALUE_RECORD } else { 0 };
    record.extend_from_slice(&tree.0.to_le_bytes());
    record.push(flags);
    for item in [Some(key), value].into_iter().flatten() {
        match item {
            Item::Word(word) => record.extend_from_slice(&word.to_le_bytes()),
            Item::Bytes(bytes) => {
                record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                record.extend_from_slice(bytes);
            }
        }
    }
}

/// Returns the steps of records with their numbers, in order, without those that another record
/// invalidates. Returns `Err` for each unreadable record.
pub fn steps_that_count(records: &[(u64, Vec<u8>)]) -> Vec<Result<Vec<Step>>> {
    let read: Vec<_> = records.iter().map(|(sequence, record)| (*sequence, steps(record))).collect();
    let ended: HashSet<u64> = read.iter().flat_map(|(_, read)| read).map(|(ends, _)| *ends).collect();
    let counts = read.into_iter().filter(|(sequence, _)| !ended.contains(sequence));
    counts.map(|(_, read)| read.map(|(_, steps)| steps)).collect()
}

/// Returns the number of the record that this one invalidates, or 0, and its steps.
///
/// # Errors
///
/// [`Error::Corrupted`].
fn steps(mut record: &[u8]) -> Result<(u64, Vec<Step>)> {
    let broken = || Error::corrupted("a record that cannot be read", "commit log");
    let ends = take_array(&mut record).map(u64::from_le_bytes).ok_or_else(broken)?;
    let mut steps = Vec::new();
    while !record.is_empty() {
        steps.push(take_step(&mut record).ok_or_else(broken)?);
    }
    Ok((ends, steps))
}

/// Takes the first step off; returns `None` for bytes that do not begin with one.
fn take_step(from: &mut &[u8]) -> Option<Step> {
    if from.get(FLAGS_AT)? & RANGE == 0 {
        return take(from).map(Step::Change);
    }
    let tree = TreeId(u32::from_le_bytes(take_array(from)?));
    let [flags] = take_array(from)?;
    if flags & !(KEY_RECORD | RANGE) != 0 {
        return None;
    }
    let mut key = || take_item(from, flags & KEY_RECORD != 0);
    Some(Step::Remove(KeyRange { tree, first: key()?, last: key()? }))
}

/// Returns the flags of a change that record whether its key was present before; `None` if that is not known.
pub fn mark_of(existed: Option<bool>) -> u8 {
    match existed {
        None => 0,
        Some(false) => KNOWN,
        Some(true) => KNOWN | PRESENT,
    }
}

/// Takes the first change off; returns `None` for bytes that do not begin with one.
pub fn take(from: &mut &[u8]) -> Option<Change> {
    take_with(from, 0).map(|(change, _)| change)
}

/// Takes the first change of an entry of a journal off, and whether its key was present before.
pub fn take_marked(from: &mut &[u8]) -> Option<(Change, Option<bool>)> {
    let (change, flags) = take_with(from, KNOWN | PRESENT)?;
    match (flags & KNOWN != 0, flags & PRESENT != 0) {
        (true, present) => Some((change, Some(present))),
        (false, false) => Some((change, None)),
        (false, true) => None,
    }
}

/// Returns the bytes of the first change.
pub fn bytes_of_first(from: &[u8]) -> Option<usize> {
    let flags = *from.get(FLAGS_AT)?;
    let mut end = FLAGS_AT + 1;
    for is_record in [Some(KEY_RECORD), (flags & VALUE != 0).then_some(VALUE_RECORD)].into_iter().flatten() {
        let word = from.get(end..)?;
        end += match flags & is_record {
            0 => 8,
            _ => 4 + u32::from_le_bytes(*word.first_chunk()?) as usize,
        };
    }
    Some(end)
}

/// Takes the first change off, and its flags, which may include `more`.
fn take_with(from: &mut &[u8], more: u8) -> Option<(Change, u8)> {
    let tree = TreeId(u32::from_le_bytes(take_array(from)?));
    let [flags] = take_array(from)?;
    if flags & !(KEY_RECORD | VALUE | VALUE_RECORD | more) != 0 {
        return None;
    }
    let key = take_item(from, flags & KEY_RECORD != 0)?;
    let value = match flags & VALUE {
        0 => None,
        _ => Some(take_item(from, flags & VALUE_RECORD != 0)?),
    };
    Some((Change { tree, key, value }, flags))
}

fn take_item(from: &mut &[u8], is_record: bool) -> Option<Encoded> {
    if !is_record {
        return take_array(from).map(u64::from_le_bytes).map(Encoded::Word);
    }
    let len = u32::from_le_bytes(take_array(from)?);
    let (bytes, rest) = from.split_at_checked(len as usize)?;
    *from = rest;
    Some(Encoded::Bytes(bytes.into()))
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_put_in_and_nothing_else_is_one() {
        let bytes = |text: &str| Encoded::Bytes(text.as_bytes().into());
        let all = [
            Change { tree: TreeId(3), key: Encoded::Word(7), value: Some(Encoded::Word(u64::MAX)) },
            Change { tree: TreeId(255), key: bytes("alice"), value: Some(Encoded::Word(0)) },
            Change { tree: TreeId(0), key: bytes(""), value: None },
            Change { tree: TreeId(1), key: Encoded::Word(1), value: Some(bytes("a value")) },
            Change { tree: TreeId(1), key: Encoded::Word(2), value: None },
        ];
        let mut record = begin(6, 5);
        all.iter().for_each(|change| append(&mut record, change.tree, &change.key, change.value.as_ref()));
        assert_eq!(steps(&record).unwrap(), (6, all.map(Step::Change).to_vec()));
        let ends: Vec<usize> = (0..=record.len()).filter(|&len| steps(&record[..len]).is_ok()).collect();
        assert_eq!(ends.len(), 5 + 1, "a record that was cut within a change was read");
        record[12] |= 0x80;
        assert!(steps(&record).is_err());
    }

    #[test]
    fn a_record_that_another_one_ends_does_not_count() {
        let record = |ends: u64, key: u64| {
            let mut record = begin(ends, 1);
            append(&mut record, TreeId(1), &Encoded::Word(key), None);
            record
        };
        let keys = |records: &[(u64, Vec<u8>)]| -> Vec<Option<Encoded>> {
            let first = |steps: Result<Vec<Step>>| match &steps.ok()?[0] {
                Step::Change(change) => Some(change.key.clone()),
                Step::Remove(_) => None,
            };
            steps_that_count(records).into_iter().map(first).collect()
        };
        let word = |key| Some(Encoded::Word(key));
        assert_eq!(keys(&[(3, record(0, 30)), (4, record(0, 40))]), [word(30), word(40)]);
        assert_eq!(keys(&[(3, record(0, 30)), (4, record(0, 40)), (7, record(3, 70))]), [word(40), word(70)]);
        assert_eq!(keys(&[(7, record(3, 70))]), [word(70)]);
        assert_eq!(keys(&[(3, vec![1]), (4, record(0, 40))]), [None, word(40)]);
    }

    #[test]
    fn packed_words_are_the_bytes_of_an_appended_change() {
        for (tree, key, value) in
            [(1, 0, u64::MAX), (u32::MAX, u64::MAX, 0), (7, 0x0123_4567_89ab_cdef, 1 << 63)]
        {
            let mut record = Vec::new();
            append_items(&mut record, TreeId(tree), Item::Word(key), Some(Item::Word(value)));
            let (words, bytes) = packed_words(TreeId(tree), key, value);
            assert_eq!(bytes, record.len());
            record.resize(24, 0);
            assert_eq!(words.map(u64::to_le_bytes).as_flattened(), record);
        }
    }

    #[test]
    fn marks_are_known_to_journals_only() {
        let mut plain = Vec::new();
        append(
            &mut plain,
            TreeId(3),
            &Encoded::Bytes((*b"key").into()),
            Some(&Encoded::Bytes((*b"v").into())),
        );
        append(&mut plain, TreeId(3), &Encoded::Word(7), None);
        let first = bytes_of_first(&plain).unwrap();
        assert_eq!((first, bytes_of_first(&plain[first..])), (5 + 7 + 5, Some(13)));
        for existed in [None, Some(false), Some(true)] {
            let mut marked = plain.clone();
            marked[FLAGS_AT] |= mark_of(existed);
            marked[first + FLAGS_AT] |= mark_of(existed);
            let from = &mut &marked[..];
            assert_eq!(take_marked(from).map(|(_, found)| found), Some(existed));
            assert_eq!(take_marked(from).map(|(_, found)| found), Some(existed));
            assert!(from.is_empty());
            assert_eq!(take(&mut &marked[..]).is_some(), existed.is_none());
        }
        plain[FLAGS_AT] |= PRESENT;
        assert!(take_marked(&mut &plain[..]).is_none(), "present, but not known");
    }

    #[test]
    fn a_range_is_read_as_it_was_written() {
        let bytes = |text: &str| Encoded::Bytes(text.as_bytes().into());
        for (first, last) in [(Encoded::Word(0), Encoded::Word(u64::MAX)), (bytes(""), bytes("zebra"))] {
            let range = KeyRange { tree: TreeId(9), first, last };
            let mut record = removal(&range);
            assert_eq!(steps(&record).unwrap(), (0, vec![Step::Remove(range)]));
            assert!((9..record.len()).all(|len| steps(&record[..len]).is_err()), "a cut range was read");
            for flag in [VALUE, VALUE_RECORD, KNOWN, PRESENT, 1 << 6, 1 << 7] {
                record[12] ^= flag;
                assert!(steps(&record).is_err(), "a range with flag {flag} was read");
                record[12] ^= flag;
            }
            assert!(take(&mut &record[8..]).is_none() && take_marked(&mut &record[8..]).is_none());
        }
    }

    #[test]
    fn a_removed_key_is_known_to_have_been_present() {
        let mut body = Vec::new();
        append_removed(&mut body, TreeId(2), Item::Word(5));
        append_removed(&mut body, TreeId(2), Item::Bytes(b"k"));
        let mut from = &body[..];
        let taken =
            std::iter::from_fn(|| take_marked(&mut from)).map(|(change, existed)| (change.key, existed));
        let wanted = [Encoded::Word(5), Encoded::Bytes((*b"k").into())].map(|key| (key, Some(true)));
        assert_eq!(taken.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn the_bytes_are_golden() {
        let mut record = begin(0x0102, 2);
        append(&mut record, TreeId(2), &Encoded::Bytes((*b"k").into()), Some(&Encoded::Word(9)));
        append(&mut record, TreeId(1), &Encoded::Word(5), None);
        let key_and_value = [2, 0, 0, 0, 3, 1, 0, 0, 0, b'k', 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            record,
            [&[2, 1, 0, 0, 0, 0, 0, 0], &key_and_value[..], &[1, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]]
                .concat()
        );
        let range = |first, last| removal(&KeyRange { tree: TreeId(3), first, last });
        let words = [3, 0, 0, 0, 0x20, 5, 0, 0, 0, 0, 0, 0, 0, 0xff, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(range(Encoded::Word(5), Encoded::Word(0x1ff)), [&[0; 8], &words[..]].concat());
        let records = [3, 0, 0, 0, 0x21, 1, 0, 0, 0, b'a', 2, 0, 0, 0, b'b', b'c'];
        let (first, last) = (Encoded::Bytes((*b"a").into()), Encoded::Bytes((*b"bc").into()));
        assert_eq!(range(first, last), [&[0; 8], &records[..]].concat());
    }
}
