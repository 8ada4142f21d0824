//! Calls of trees of words, for the tests of designs: a tree accepts values of any codec, so its own methods need it.

use bristlecone_pm::{Result, TreeEntry};

use super::parts::codec::{Inline, KeyCodec};
use super::{Described, Form, Index, WriteMode};

/// Describes a tree of words.
pub fn of_words(entry: &TreeEntry) -> Described<'_> {
    Described { entry, values: Form::Words }
}

/// A tree of words.
pub trait WordTree<K: KeyCodec>: Index<K, Inline> {
    /// See [`Write::write`](super::Write::write).
    fn write_word(&self, key: K::Ref<'_>, value: u64, mode: WriteMode) -> Result<Option<u64>> {
        self.write(key, value, mode)
    }

    /// See [`Write::upsert`](super::Write::upsert).
    fn upsert_word(&self, key: K::Ref<'_>, value: u64) -> Result<()> {
        self.upsert(key, value)
    }

    /// See [`Write::remove`](super::Write::remove).
    fn remove_word(&self, key: K::Ref<'_>) -> Result<Option<u64>> {
        self.remove(key)
    }
}

impl<K: KeyCodec, T: Index<K, Inline>> WordTree<K> for T {}
