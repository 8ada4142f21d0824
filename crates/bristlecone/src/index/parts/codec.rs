//! The two codecs of keys and values: words, and byte strings, whose word is the offset of a record. A third one is
//! either of them, known at run time.

use std::cmp::Ordering;

use bristlecone_pm::sync::epoch::Guard;
use smallvec::SmallVec;

use super::encoded::{Encoded, Item};
use super::separators::Separators;

/// Maximum number of keys that descend a tree together. Their lines are fetched concurrently, up to the limit of a
/// core, and their flushes share a fence.
pub const GROUP: usize = 16;

/// The forms of keys or values outside of their storage.
pub trait Codec: Send + Sync + 'static {
    /// The borrowed form. Values have an order, too, but no design uses it.
    type Ref<'a>: Copy + Ord;
    /// The owned form.
    type Owned: Ord + Clone + Send + Sync;
    /// The codec of entries with a value of this one and the time at which it expires.
    type Entry: Codec;

    /// Copies a key or value.
    fn owned(item: Self::Ref<'_>) -> Self::Owned;
    /// Borrows a copy.
    fn borrow(item: &Self::Owned) -> Self::Ref<'_>;
    /// Returns the same with a shorter lifetime.
    fn shorten<'long: 'short, 'short>(item: Self::Ref<'long>) -> Self::Ref<'short>;
    /// Converts to the codec-independent form.
    fn encode(item: Self::Owned) -> Encoded;
    /// Converts from the codec-independent form; returns `None` if it is of another codec.
    fn decode(item: Encoded) -> Option<Self::Owned>;
    /// Borrows the codec-independent form; returns `None` if it is of another codec.
    fn lend(item: &Encoded) -> Option<Self::Ref<'_>> {
        Self::of_item(item.item())
    }
    /// Borrows an item in the form of any codec.
    fn item<'a>(item: Self::Ref<'a>) -> Item<'a>;
    /// Returns an item of this codec; `None` for one of another codec.
    fn of_item<'a>(item: Item<'a>) -> Option<Self::Ref<'a>>;
    /// Returns its length, as counted by the limits of keys and values.
    fn bytes(item: Self::Ref<'_>) -> usize;
    /// Returns a hash of a key whose top bits have the best distribution.
    fn hash(key: Self::Ref<'_>) -> u64;

    /// Several items, copied contiguously.
    type Pack: Default;
    /// Appends a copy.
    fn pack(pack: &mut Self::Pack, item: Self::Ref<'_>);
    /// Returns the copy that was appended as the `at`th.
    fn packed(pack: &Self::Pack, at: usize) -> Self::Ref<'_>;
    /// Clears all copies, and keeps the memory.
    fn unpack(pack: &mut Self::Pack);
}

/// The storage of keys or values.
pub trait Storage: Codec {
    /// Whether the word is the key or value itself.
    const INLINE: bool;
    /// Guard that keeps the bytes of records alive while they are read; empty for words.
    type Guard;

    /// Keeps all records that are read from now on alive.
    fn pin() -> Self::Guard;
    /// Returns the item that is a word, if the codec is [`INLINE`](Self::INLINE).
    fn of_word<'a>(word: u64) -> Self::Ref<'a>;
    /// Returns the item of these bytes, unless the codec is [`INLINE`](Self::INLINE).
    fn of_bytes(bytes: &[u8]) -> Self::Ref<'_>;
    /// Returns the guard of a pinned thread.
    fn guard(pinned: &Guard) -> &Self::Guard;
    /// Returns the pin of a guard, unless the codec is [`INLINE`](Self::INLINE).
    fn pinned(guard: &Self::Guard) -> &Guard;
}

/// Additional operations of keys: order, and separators of nodes.
pub trait KeyCodec: Storage {
    /// Returns the smallest key.
    fn least<'a>() -> Self::Ref<'a>;
    /// Returns a word that has the order of the key, except for different keys of the same rank; a word is its own
    /// rank.
    fn rank(key: Self::Ref<'_>) -> u64;
    /// Returns the length of the common prefix of two keys; 0 for words.
    fn common(left: Self::Ref<'_>, right: Self::Ref<'_>) -> usize;
    /// Returns the rank of the rest of a key behind `bytes` bytes.
    fn rank_behind(key: Self::Ref<'_>, bytes: usize) -> u64;
    /// Compares the first `bytes` bytes of a key with those of another one, which must have that many.
    fn compare_start(key: Self::Ref<'_>, other: Self::Ref<'_>, bytes: usize) -> Ordering;
    /// Returns one byte of the hash.
    #[inline(always)]
    fn fingerprint(key: Self::Ref<'_>) -> u8 {
        (Self::hash(key) >> 56) as u8
    }
    /// Returns the shortest possible key above `left` and not above `right`.
    fn separator<'a>(left: Self::Ref<'a>, right: Self::Ref<'a>) -> Self::Ref<'a>;
    /// Returns a key above `left` and not above `right` that most keys between are not below.
    fn low_separator<'a>(left: Self::Ref<'a>, right: Self::Ref<'a>) -> Self::Ref<'a>;

    /// Creates a separator of the inner index; returns its word.
    fn make_separator(separators: &Separators, key: Self::Ref<'_>) -> u64;
    /// Returns the key of a separator word. The word must be a result of `make_separator` that was not retired before
    /// the guard was pinned; zero represents the smallest key.
    fn separator_at<'a>(separators: &'a Separators, word: u64, guard: &'a Self::Guard) -> Self::Ref<'a>;
    /// Creates another word for the same separator.
    fn copy_separator(separators: &Separators, word: u64, guard: &Self::Guard) -> u64 {
        Self::make_separator(separators, Self::separator_at(separators, word, guard))
    }
    /// Frees the separator of a word that the index no longer holds.
    fn retire_separator(separators: &Separators, word: u64, guard: &Self::Guard);
}

/// Words: the whole domain of `u64`.
#[derive(Debug)]
pub struct Inline;

/// Byte strings, in records.
#[derive(Debug)]
pub struct Record;

/// Keys or values whose codec is known at run time.
#[derive(Debug)]
pub struct Any;

/// Byte strings, stored contiguously.
#[derive(Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: SmallVec<[usize; GROUP]>,
}

impl Codec for Inline {
    type Ref<'a> = u64;
    type Owned = u64;
    type Entry = Record;

    #[inline(always)]
    fn owned(word: u64) -> u64 {
        word
    }
    #[inline(always)]
    fn borrow(word: &u64) -> u64 {
        *word
    }
    #[inline(always)]
    fn shorten<'long: 'short, 'short>(word: u64) -> u64 {
        word
    }
    fn encode(word: u64) -> Encoded {
        Encoded::Word(word)
    }
    fn decode(item: Encoded) -> Option<u64> {
        Self::lend(&item)
    }
    #[inline(always)]
    fn item<'a>(word: u64) -> Item<'a> {
        Item::Word(word)
    }
    #[inline(always)]
    fn of_item<'a>(item: Item<'a>) -> Option<u64> {
        if let Item::Word(word) = item { Some(word) } else { None }
    }
    #[inline(always)]
    fn bytes(_: u64) -> usize {
        size_of::<u64>()
    }
    #[inline(always)]
    fn hash(key: u64) -> u64 {
        // Fibonacci hashing: the top bits depend on all others.
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    type Pack = SmallVec<[u64; GROUP]>;
    #[inline(always)]
    fn pack(pack: &mut Self::Pack, word: u64) {
        pack.push(word);
    }
    #[inline(always)]
    fn packed(pack: &Self::Pack, at: usize) -> u64 {
        pack[at]
    }
    #[inline(always)]
    fn unpack(pack: &mut Self::Pack) {
        pack.clear();
    }
}

impl Storage for Inline {
    const INLINE: bool = true;
    type Guard = ();

    #[inline(always)]
    fn pin() {}
    #[inline(always)]
    fn of_word<'a>(word: u64) -> Self::Ref<'a> {
        word
    }
    fn of_bytes(_: &[u8]) -> u64 {
        unreachable!("words are not stored as records")
    }
    #[inline(always)]
    fn guard(_: &Guard) -> &() {
        &()
    }
    fn pinned((): &()) -> &Guard {
        unreachable!("words are read without a pin")
    }
}

impl KeyCodec for Inline {
    #[inline(always)]
    fn least<'a>() -> Self::Ref<'a> {
        0
    }
    #[inline(always)]
    fn rank(key: u64) -> u64 {
        key
    }
    #[inline(always)]
    fn common(_: u64, _: u64) -> usize {
        0
    }
    #[inline(always)]
    fn rank_behind(key: u64, _: usize) -> u64 {
        key
    }
    #[inline(always)]
    fn compare_start(_: u64, _: u64, _: usize) -> Ordering {
        Ordering::Equal
    }
    fn separator<'a>(_left: Self::Ref<'a>, right: Self::Ref<'a>) -> Self::Ref<'a> {
        right
    }
    fn low_separator<'a>(left: Self::Ref<'a>, _right: Self::Ref<'a>) -> Self::Ref<'a> {
        left + 1
    }
    fn make_separator(_: &Separators, key: u64) -> u64 {
        key
    }
    #[inline(always)]
    fn separator_at(_: &Separators, word: u64, (): &()) -> u64 {
        word
    }
    fn retire_separator(_: &Separators, _: u64, (): &()) {}
}

impl Codec for Record {
    type Ref<'a> = &'a [u8];
    type Owned = Box<[u8]>;
    type Entry = Self;

    fn owned(bytes: &[u8]) -> Box<[u8]> {
        bytes.into()
    }
    fn borrow(bytes: &Box<[u8]>) -> &[u8] {
        bytes
    }
    fn shorten<'long: 'short, 'short>(bytes: &'long [u8]) -> &'short [u8] {
        bytes
    }
    fn encode(bytes: Box<[u8]>) -> Encoded {
        Encoded::Bytes(bytes)
    }
    fn decode(item: Encoded) -> Option<Box<[u8]>> {
        match item {
            Encoded::Bytes(bytes) => Some(bytes),
            Encoded::Word(_) => None,
        }
    }
    #[inline(always)]
    fn item<'a>(bytes: Self::Ref<'a>) -> Item<'a> {
        Item::Bytes(bytes)
    }
    #[inline(always)]
    fn of_item<'a>(item: Item<'a>) -> Option<&'a [u8]> {
        if let Item::Bytes(bytes) = item { Some(bytes) } else { None }
    }
    fn bytes(bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn hash(key: &[u8]) -> u64 {
        twox_hash::XxHash3_64::oneshot(key)
    }

    type Pack = Strings;
    fn pack(pack: &mut Strings, bytes: &[u8]) {
        pack.bytes.extend_from_slice(bytes);
        pack.ends.push(pack.bytes.len());
    }
    fn packed(pack: &Strings, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| pack.ends[before]);
        &pack.bytes[start..pack.ends[at]]
    }
    fn unpack(pack: &mut Strings) {
        pack.bytes.clear();
        pack.ends.clear();
    }
}

impl Storage for Record {
    const INLINE: bool = false;
    type Guard = Guard;

    fn pin() -> Guard {
        bristlecone_pm::sync::epoch::pin()
    }
    fn of_word<'a>(_: u64) -> Self::Ref<'a> {
        unreachable!("records are not stored as words")
    }
    #[inline(always)]
    fn of_bytes(bytes: &[u8]) -> &[u8] {
        bytes
    }
    #[inline(always)]
    fn guard(pinned: &Guard) -> &Guard {
        pinned
    }
    #[inline(always)]
    fn pinned(guard: &Guard) -> &Guard {
        guard
    }
}

impl KeyCodec for Record {
    fn least<'a>() -> Self::Ref<'a> {
        &[]
    }
    #[inline(always)]
    fn rank(key: &[u8]) -> u64 {
        if let Some(first) = key.first_chunk() {
            return u64::from_be_bytes(*first);
        }
        let mut first = [0; 8];
        first[..key.len()].copy_from_slice(key);
        u64::from_be_bytes(first)
    }
    #[inline]
    fn common(left: &[u8], right: &[u8]) -> usize {
        let (words, _) = left.as_chunks::<8>();
        let (others, _) = right.as_chunks::<8>();
        for (at, (word, other)) in words.iter().zip(others).enumerate() {
            let different = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other);
            if different != 0 {
                return 8 * at + different.trailing_zeros() as usize / 8;
            }
        }
        let same = 8 * words.len().min(others.len());
        same + left[same..].iter().zip(&right[same..]).take_while(|(a, b)| a == b).count()
    }
    #[inline]
    fn rank_behind(key: &[u8], bytes: usize) -> u64 {
        let rest = &key[bytes.min(key.len())..];
        match key.last_chunk() {
            // Avoids a copy with a run-time length.
            Some(last) if rest.len() < 8 => {
                u64::from_be_bytes(*last).checked_shl(64 - 8 * rest.len() as u32).unwrap_or(0)
            }
            _ => Self::rank(rest),
        }
    }
    #[inline]
    fn compare_start(key: &[u8], other: &[u8], bytes: usize) -> Ordering {
        key[..bytes.min(key.len())].cmp(&other[..bytes.min(other.len())])
    }
    fn separator<'a>(left: Self::Ref<'a>, right: Self::Ref<'a>) -> Self::Ref<'a> {
        &right[..right.len().min(Self::common(left, right) + 1)]
    }
    fn low_separator<'a>(left: Self::Ref<'a>, right: Self::Ref<'a>) -> Self::Ref<'a> {
        Self::separator(left, right)
    }
    fn make_separator(separators: &Separators, key: &[u8]) -> u64 {
        separators.make(key)
    }
    #[inline]
    fn separator_at<'a>(separators: &'a Separators, word: u64, guard: &'a Guard) -> &'a [u8] {
        separators.at(word, guard)
    }
    fn retire_separator(separators: &Separators, word: u64, guard: &Guard) {
        separators.retire(word, guard);
    }
}

impl Codec for Any {
    type Ref<'a> = Item<'a>;
    type Owned = Encoded;
    type Entry = Self;

    fn owned(item: Item<'_>) -> Encoded {
        item.to_owned()
    }
    fn borrow(item: &Encoded) -> Item<'_> {
        item.item()
    }
    fn shorten<'long: 'short, 'short>(item: Item<'long>) -> Item<'short> {
        item
    }
    fn encode(item: Encoded) -> Encoded {
        item
    }
    fn decode(item: Encoded) -> Option<Encoded> {
        Some(item)
    }
    fn item<'a>(item: Self::Ref<'a>) -> Item<'a> {
        item
    }
    fn of_item<'a>(item: Item<'a>) -> Option<Self::Ref<'a>> {
        Some(item)
    }
    fn bytes(item: Item<'_>) -> usize {
        match item {
            Item::Word(word) => Inline::bytes(word),
            Item::Bytes(bytes) => Record::bytes(bytes),
        }
    }
    fn hash(key: Item<'_>) -> u64 {
        match key {
            Item::Word(word) => Inline::hash(word),
            Item::Bytes(bytes) => Record::hash(bytes),
        }
    }

    type Pack = Vec<Encoded>;
    fn pack(pack: &mut Self::Pack, item: Item<'_>) {
        pack.push(item.to_owned());
    }
    fn packed(pack: &Self::Pack, at: usize) -> Item<'_> {
        pack[at].item()
    }
    fn unpack(pack: &mut Self::Pack) {
        pack.clear();
    }
}
