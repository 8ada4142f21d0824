//! The values of a tree, whose form is known at run time.
//!
//! A tree is compiled once for each codec of its keys. Its hot paths have the codec of the values as a type parameter
//! of the function, and access `records` through [`Codec`]. Everything else treats values as words, and asks `Values`.

use std::sync::Arc;

use bristlecone_pm::sync::epoch::{Guard, pin};
use bristlecone_pm::{
    Issue, Manifest, ManifestReader, Medium, PoolFile, RecordSpec, Records, Result, SlotKind, TreeId,
};

use super::codec::{Codec, Record};
use super::encoded::Item;

/// The form of a tree's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A value is its word.
    Words,
    /// A value's word is the offset of its record.
    Records,
}

impl Form {
    /// Returns the form of a codec.
    pub const fn of<V: Codec>() -> Self {
        if V::INLINE { Self::Words } else { Self::Records }
    }

    /// Returns the form of a value.
    pub fn of_item(value: Item<'_>) -> Self {
        match value {
            Item::Word(_) => Self::Words,
            Item::Bytes(_) => Self::Records,
        }
    }
}

/// The values of a tree.
#[derive(Debug)]
pub struct Values<M: Medium> {
    /// Their records. Words have none, except where a design stores some of them out of line.
    pub records: Records<M>,
    form: Form,
}

impl<M: Medium> Values<M> {
    /// Takes over the records of a tree's values.
    pub fn open(pool: &Arc<PoolFile<M>>, tree: TreeId, form: Form) -> Result<Self> {
        Self::open_as(pool, RecordSpec::new(tree, SlotKind::VALUE_RECORD), form)
    }

    /// Takes over records of a certain kind.
    pub fn open_as(pool: &Arc<PoolFile<M>>, spec: RecordSpec, form: Form) -> Result<Self> {
        Ok(Self { records: Records::open(pool, spec)?, form })
    }

    /// Takes over the records saved by [`save`](Self::save).
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        tree: TreeId,
        form: Form,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let spec = RecordSpec::new(tree, SlotKind::VALUE_RECORD);
        Some(Self { records: Records::resume(pool, spec, manifest)?, form })
    }

    /// Saves the records for the next open.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.records.save(manifest)
    }

    /// Frees every record that recovery has not marked as live.
    pub fn finish_recovery(&mut self) {
        self.records.finish_recovery();
    }

    /// Returns whether values are words.
    #[inline(always)]
    pub fn are_words(&self) -> bool {
        self.form == Form::Words
    }

    /// Returns the value that a word represents, without verifying its record.
    pub fn read<'a>(&'a self, word: u64, guard: &'a Guard) -> Item<'a> {
        match self.form {
            Form::Words => Item::Word(word),
            Form::Records => Item::Bytes(self.records.read(word, guard)),
        }
    }

    /// Prefetches the record of a word, if it has one. Accepts any word.
    #[inline(always)]
    pub fn prefetch(&self, word: u64) {
        if !self.are_words() {
            self.records.prefetch(word);
        }
    }

    /// Marks a word as referenced by the tree, during recovery. Returns `false` if it already was.
    #[inline]
    pub fn mark_live(&self, word: u64) -> Result<bool> {
        if self.are_words() { Ok(true) } else { self.records.mark_live(word) }
    }

    /// Verifies the checksum of the value that a word represents.
    #[inline]
    pub fn verify(&self, word: u64) -> Result<()> {
        if self.are_words() { Ok(()) } else { self.records.verify(word) }
    }

    /// Frees the record of a word that the tree no longer refers to, once no reader holds it.
    #[inline(always)]
    pub fn retire(&self, word: u64) {
        if !self.are_words() {
            self.retire_record(word);
        }
    }

    #[inline(never)]
    fn retire_record(&self, word: u64) {
        self.records.retire(word, &pin());
    }

    /// Frees the record of a word that was never published.
    #[cold]
    pub fn free(&self, word: u64) {
        if !self.are_words() {
            self.records.free(word);
        }
    }

    /// Reports if fewer records are live than there are items.
    pub fn check_records(&self, items: u64) -> Option<Issue> {
        if self.are_words() { None } else { Record::check_records(&self.records, items) }
    }
}
