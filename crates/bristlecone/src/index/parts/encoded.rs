//! Keys and values whatever their codecs are.

/// A key or value as trees store it. Those of one tree order as its keys do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encoded {
    /// A word.
    Word(u64),
    /// A record's bytes.
    Bytes(Box<[u8]>),
}

impl Encoded {
    /// What no other is smaller than.
    pub const LEAST: Self = Self::Word(0);

    /// Returns the bytes that it has out of line.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Word(_) => 0,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}
