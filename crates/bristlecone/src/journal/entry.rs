//! Entries of the journal: their bytes in the ring, and in the blocks of a segment.
//!
//! ```text
//! 0   state (bits 0-7), kind (8-15), how much of it counts (16-31), bytes of the body (32-63)
//! 8   LSN: the number of bytes of all entries before it
//! 16  body, padded to a word with zeros
//! ```

use bristlecone_pm::{Error, Result, TreeId, TreeSpec};

use crate::index::parts::encoded::{Encoded, Item};
use crate::transaction::record::{self, Change};

/// Bytes before the body.
pub const HEADER_BYTES: usize = 16;
/// Set in a kind whose body names a file with the actual body.
const ASIDE: u8 = 0x80;

/// How far the writer of an entry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The body may be incomplete, and nothing has changed.
    Reserved,
    /// The body is complete, and the trees may have changed.
    Intent,
    /// It is known how much of the entry counts.
    Complete,
}

/// What an entry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys, one after the other: the first ones count.
    Each,
    /// Keys, all together.
    All,
    /// A tree that was created, perhaps with items.
    Create,
    /// A tree that was dropped.
    Drop,
    /// The name of a tree.
    Rename,
    /// A tree that was replaced by an empty one.
    Clear,
}

const KINDS: [Kind; 6] = [Kind::Each, Kind::All, Kind::Create, Kind::Drop, Kind::Rename, Kind::Clear];

/// The first word of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub state: State,
    pub kind: Kind,
    /// Whether the body is in a file of its own.
    pub aside: bool,
    /// For [`Kind::Each`], the number of changes that count, from the first on. Otherwise 0 or 1.
    pub counts: u16,
    /// Bytes of the body.
    pub body: usize,
}

impl Head {
    /// Returns the head of an entry whose changes are about to be applied.
    #[inline]
    pub fn intent(kind: Kind, aside: bool, body: usize) -> Self {
        Self { state: State::Intent, kind, aside, counts: 0, body }
    }

    /// Returns the head of a complete entry.
    pub fn complete(kind: Kind, body: usize) -> Self {
        Self { state: State::Complete, kind, aside: false, counts: 1, body }
    }

    /// Returns the bytes of the whole entry.
    #[inline]
    pub fn bytes(&self) -> u64 {
        entry_bytes(self.body)
    }

    #[inline]
    pub fn encode(&self) -> u64 {
        let kind = (self.kind as u64 + 1) | if self.aside { u64::from(ASIDE) } else { 0 };
        (self.state as u64 + 1) | kind << 8 | u64::from(self.counts) << 16 | (self.body as u64) << 32
    }

    /// Returns `None` for a word that is no head.
    pub fn decode(word: u64) -> Option<Self> {
        let state = match word as u8 {
            1 => State::Reserved,
            2 => State::Intent,
            3 => State::Complete,
            _ => return None,
        };
        let code = (word >> 8) as u8;
        let kind = *KINDS.get(usize::from(code & !ASIDE).checked_sub(1)?)?;
        let (aside, counts) = (code & ASIDE != 0, (word >> 16) as u16);
        Some(Self { state, kind, aside, counts, body: (word >> 32) as usize })
    }
}

/// Returns the bytes of an entry with such a body.
#[inline]
pub fn entry_bytes(body: usize) -> u64 {
    (HEADER_BYTES + body.next_multiple_of(8)) as u64
}

/// Appends an entry.
pub fn append(into: &mut Vec<u8>, head: Head, lsn: u64, body: &[u8]) {
    debug_assert_eq!(head.body, body.len());
    into.extend_from_slice(&head.encode().to_le_bytes());
    into.extend_from_slice(&lsn.to_le_bytes());
    into.extend_from_slice(body);
    into.resize(into.len().next_multiple_of(8), 0);
}

/// An entry of a block.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub head: Head,
    pub lsn: u64,
    pub body: &'a [u8],
}

/// Takes the first entry off; returns `None` for bytes that do not begin with one.
pub fn take<'a>(from: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (head, rest) = from.split_first_chunk()?;
    let (lsn, rest) = rest.split_first_chunk()?;
    let head = Head::decode(u64::from_le_bytes(*head))?;
    let (padded, rest) = rest.split_at_checked(head.body.next_multiple_of(8))?;
    *from = rest;
    Some(Entry { head, lsn: u64::from_le_bytes(*lsn), body: &padded[..head.body] })
}

/// Returns the words of a body, the last one padded with zeros.
pub fn words_of(body: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = body.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then(|| u64::from_le_bytes(last));
    words.iter().map(|word| u64::from_le_bytes(*word)).chain(last)
}

/// Appends a change to a body.
pub fn push_change(body: &mut Vec<u8>, tree: TreeId, key: Item<'_>, value: Option<Item<'_>>) {
    record::append_items(body, tree, key, value);
}

/// Returns the changes in a body.
pub fn changes(mut body: &[u8]) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    while !body.is_empty() {
        changes.push(record::take_marked(&mut body).ok_or_else(broken)?.0);
    }
    Ok(changes)
}

/// Returns the body of these changes.
pub fn body_of(changes: &[Change]) -> Vec<u8> {
    let mut body = Vec::new();
    for Change { tree, key, value } in changes {
        record::append(&mut body, *tree, key, value.as_ref());
    }
    body
}

/// Returns the error for a body that is none, in spite of a right checksum.
pub fn broken() -> Error {
    Error::corrupted("an entry that cannot be read", "journal")
}

/// Where a body is that has a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    pub file: u64,
    pub bytes: u64,
    pub checksum: u32,
}

impl Aside {
    pub const BYTES: usize = 20;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.file.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub fn decode(from: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = from.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let checksum = bytes.last_chunk().map(|word| u32::from_le_bytes(*word))?;
        Some(Self { file: word(0)?, bytes: word(8)?, checksum })
    }
}

/// A change of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directory {
    /// A tree was created.
    Create(TreeId, TreeSpec),
    Drop(TreeId),
    Rename(TreeId, String),
    /// A tree was replaced by an empty one of the same name.
    Clear(TreeId, TreeId, String),
}

impl Directory {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Create(..) => Kind::Create,
            Self::Drop(_) => Kind::Drop,
            Self::Rename(..) => Kind::Rename,
            Self::Clear(..) => Kind::Clear,
        }
    }

    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Create(id, spec) => {
                // The design follows in the same word: see `first_word`.
                body.extend_from_slice(&id.0.to_le_bytes());
                push_spec(&mut body, spec);
            }
            Self::Drop(id) => body.extend_from_slice(&id.0.to_le_bytes()),
            Self::Rename(id, name) => {
                body.extend_from_slice(&id.0.to_le_bytes());
                push_text(&mut body, name);
            }
            Self::Clear(old, new, name) => {
                // Both numbers in one word: see `first_word`.
                body.extend_from_slice(&old.0.to_le_bytes());
                body.extend_from_slice(&new.0.to_le_bytes());
                push_text(&mut body, name);
            }
        }
        body
    }

    /// Returns the first word of the body with the number of the new tree, which is known only once it exists.
    pub fn first_word(&self, new: TreeId) -> u64 {
        match self {
            Self::Create(_, spec) => u64::from(new.0) | u64::from(spec.design) << 32,
            Self::Clear(old, ..) => u64::from(old.0) | u64::from(new.0) << 32,
            Self::Drop(id) => u64::from(id.0),
            Self::Rename(id, name) => u64::from(id.0) | (name.len() as u64) << 32,
        }
    }

    /// Returns the change of a body, and what follows it.
    pub fn of(kind: Kind, mut body: &[u8]) -> Option<(Self, &[u8])> {
        let from = &mut body;
        let id = TreeId(take_u32(from)?);
        let change = match kind {
            Kind::Create => Self::Create(id, take_spec(from)?),
            Kind::Drop => Self::Drop(id),
            Kind::Rename => Self::Rename(id, take_text(from)?),
            Kind::Clear => Self::Clear(id, TreeId(take_u32(from)?), take_text(from)?),
            Kind::Each | Kind::All => return None,
        };
        Some((change, body))
    }
}

fn push_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text.as_bytes());
}

fn take_u32(from: &mut &[u8]) -> Option<u32> {
    let (word, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u32::from_le_bytes(*word))
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let len = take_u32(from)? as usize;
    let (text, rest) = from.split_at_checked(len)?;
    *from = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// Appends a tree's specification.
pub fn push_spec(into: &mut Vec<u8>, spec: &TreeSpec) {
    into.extend_from_slice(&spec.design.to_le_bytes());
    spec.params.iter().for_each(|param| into.extend_from_slice(&param.to_le_bytes()));
    let value_kind = spec.stored_value_kind();
    [&spec.name, &spec.key_kind, &value_kind].into_iter().for_each(|text| push_text(into, text));
}

/// Takes a tree's specification off.
pub fn take_spec(from: &mut &[u8]) -> Option<TreeSpec> {
    let design = take_u32(from)?;
    let mut params = [0; 8];
    for param in &mut params {
        let (word, rest) = from.split_first_chunk()?;
        *from = rest;
        *param = u64::from_le_bytes(*word);
    }
    let [name, key_kind, value_kind] = [take_text(from)?, take_text(from)?, take_text(from)?];
    Some(TreeSpec::new(name, design, key_kind, "").with_stored_value_kind(value_kind).with_params(params))
}

/// Appends an item of a checkpoint.
pub fn push_item(into: &mut Vec<u8>, key: &Encoded, value: &Encoded) {
    record::append(into, TreeId(0), key, Some(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_are_golden() {
        let mut body = Vec::new();
        push_change(&mut body, TreeId(2), Item::Word(9), Some(Item::Bytes(b"ab")));
        let head = Head { counts: 1, ..Head::complete(Kind::Each, body.len()) };
        let mut bytes = Vec::new();
        append(&mut bytes, head, 0x1122, &body);
        let golden = [
            &[3, 1, 1, 0, 19, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0][..],
            &[2, 0, 0, 0, 6, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, golden.concat());
        let mut from = &bytes[..];
        let entry = take(&mut from).unwrap();
        assert_eq!((entry.head, entry.lsn, entry.body, from), (head, 0x1122, &body[..], &[][..]));
        assert_eq!(head.bytes() as usize, bytes.len());
        assert_eq!(body_of(&changes(entry.body).unwrap()), body);
        (0..bytes.len()).for_each(|len| assert!(take(&mut &bytes[..len]).is_none(), "{len}"));
    }

    #[test]
    fn heads_round_trip() {
        for kind in KINDS {
            for (state, aside) in [(State::Reserved, false), (State::Intent, true), (State::Complete, false)]
            {
                let head = Head { state, kind, aside, counts: 16, body: 77 };
                assert_eq!(Head::decode(head.encode()), Some(head));
            }
        }
        for word in [0, 4, 3, 3 | 7 << 8, 3 | 0x87 << 8] {
            assert_eq!(Head::decode(word), None, "{word:#x}");
        }
    }

    #[test]
    fn changes_of_the_directory_round_trip() {
        let of =
            |value_kind| TreeSpec::new("oaks", 2, "u64", value_kind).with_params([1, 2, 3, 4, 5, 6, 7, 8]);
        let all = [
            Directory::Create(TreeId(7), of("str")),
            Directory::Create(TreeId(8), of("Expiring<str>").with_expire_after(900_000)),
            Directory::Drop(TreeId(1)),
            Directory::Rename(TreeId(2), "elms".to_owned()),
            Directory::Clear(TreeId(3), TreeId(4), "firs".to_owned()),
        ];
        for change in all {
            let body = change.body();
            let id = match &change {
                Directory::Create(id, _) | Directory::Clear(_, id, _) => *id,
                Directory::Drop(_) | Directory::Rename(..) => TreeId(0),
            };
            let first = body.first_chunk().map_or(1, |word| u64::from_le_bytes(*word));
            assert_eq!(change.first_word(id) as u32, first as u32);
            assert!(body.len() < 8 || change.first_word(id) == first);
            assert_eq!(Directory::of(change.kind(), &body), Some((change.clone(), &[][..])));
            (0..body.len()).for_each(|len| assert_eq!(Directory::of(change.kind(), &body[..len]), None));
        }
        let aside = Aside { file: 3, bytes: 1 << 33, checksum: 7 };
        assert_eq!(Aside::decode(&aside.encode()), Some(aside));
    }
}
