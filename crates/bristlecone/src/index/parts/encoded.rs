//! Codec-independent keys and values.

/// A key or value in stored form. Those of one tree have the order of its keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encoded {
    /// A word.
    Word(u64),
    /// A record's bytes.
    Bytes(Box<[u8]>),
}

impl Encoded {
    /// The smallest encoded key.
    pub const LEAST: Self = Self::Word(0);

    /// Borrows it.
    pub fn item(&self) -> Item<'_> {
        match self {
            Self::Word(word) => Item::Word(*word),
            Self::Bytes(bytes) => Item::Bytes(bytes),
        }
    }

    /// Returns the number of its bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Word(_) => 0,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A borrowed key or value of any codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item<'a> {
    /// A word.
    Word(u64),
    /// A record's bytes.
    Bytes(&'a [u8]),
}

impl Item<'_> {
    /// Copies it.
    pub fn to_owned(self) -> Encoded {
        match self {
            Self::Word(word) => Encoded::Word(word),
            Self::Bytes(bytes) => Encoded::Bytes(bytes.into()),
        }
    }
}
