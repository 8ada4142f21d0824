//! The keys and values of a tree, as the words of its slots: a word is the item itself, or the offset of its record.
//!
//! The codec of the keys is a type parameter of a tree. The form of the values is known at run time: a tree is compiled
//! once for each codec of its keys. Only its hot paths have the codec of the values as a type parameter of their
//! functions, and use [`Values::of`].

use std::marker::PhantomData;
use std::sync::Arc;

use bristlecone_pm::sync::epoch::{Guard, pin};
use bristlecone_pm::{
    Flushed, Issue, Liveness, Manifest, ManifestReader, Marks, Medium, PoolFile, RecordSpec, Records, Result,
    SlotKind, Step, TreeId,
};

use super::codec::{Record, Storage};
use super::encoded::Item;

/// The form of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An item is its word.
    Words,
    /// An item's word is the offset of its record.
    Records,
}

impl Form {
    /// Returns the form of a codec.
    pub const fn of<C: Storage>() -> Self {
        if C::INLINE { Self::Words } else { Self::Records }
    }

    /// Returns the form of an item.
    pub fn of_item(item: Item<'_>) -> Self {
        match item {
            Item::Word(_) => Self::Words,
            Item::Bytes(_) => Self::Records,
        }
    }
}

/// Keys, values or separators of one codec.
#[derive(Debug)]
#[repr(transparent)]
pub struct Items<C, M: Medium> {
    /// Their records. Words have none, except where a design stores some of them out of line.
    pub records: Records<M>,
    codec: PhantomData<fn() -> C>,
}

impl<C: Storage, M: Medium> Items<C, M> {
    /// Takes over the records of a tree's keys.
    pub fn keys(pool: &Arc<PoolFile<M>>, tree: TreeId) -> Result<Self> {
        Self::open(pool, RecordSpec::new(tree, SlotKind::KEY_RECORD))
    }

    /// Takes over records of a certain kind.
    pub fn open(pool: &Arc<PoolFile<M>>, spec: RecordSpec) -> Result<Self> {
        Ok(Self { records: Records::open(pool, spec)?, codec: PhantomData })
    }

    /// Takes over the records of a tree's keys that [`save`](Self::save) saved.
    pub fn resume_keys(
        pool: &Arc<PoolFile<M>>,
        tree: TreeId,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let spec = RecordSpec::new(tree, SlotKind::KEY_RECORD);
        Some(Self { records: Records::resume(pool, spec, manifest)?, codec: PhantomData })
    }

    /// Takes over the records of a killed process: see [`Records::take_over`].
    pub fn take_over_keys(
        pool: &Arc<PoolFile<M>>,
        tree: TreeId,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let spec = RecordSpec::new(tree, SlotKind::KEY_RECORD);
        Some(Self { records: Records::take_over(pool, spec, manifest)?, codec: PhantomData })
    }

    /// Saves the records for the next open.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.records.save(manifest)
    }

    /// Frees every record that recovery has not marked as live.
    pub fn finish_recovery(&mut self) {
        self.records.finish_recovery();
    }

    /// Writes a record if necessary; returns the word.
    #[inline(always)]
    pub fn write(&self, item: C::Ref<'_>, step: Step) -> Result<(u64, Flushed)> {
        match C::item(item) {
            Item::Word(word) => Ok((word, Flushed::none())),
            Item::Bytes(bytes) => self.records.write(bytes, step),
        }
    }

    /// As [`write`](Self::write): see [`Records::write_near`].
    #[inline(always)]
    pub fn write_near(&self, item: C::Ref<'_>, leaf: u64, step: Step) -> Result<(u64, Flushed)> {
        match C::item(item) {
            Item::Word(word) => Ok((word, Flushed::none())),
            Item::Bytes(bytes) => self.records.write_near(bytes, leaf, step),
        }
    }

    /// Prefetches for writing the record that [`write_near`](Self::write_near) would write.
    #[inline(always)]
    pub fn prefetch_near(&self, item: C::Ref<'_>, leaf: u64) {
        if let Item::Bytes(bytes) = C::item(item) {
            self.records.prefetch_near(bytes.len(), leaf);
        }
    }

    /// Writes a record with a word by which recovery decides whether it is live.
    #[inline(always)]
    pub fn write_owned(&self, item: C::Ref<'_>, owner: u64, step: Step) -> Result<(u64, Flushed)> {
        match C::item(item) {
            Item::Word(word) => Ok((word, Flushed::none())),
            Item::Bytes(bytes) => self.records.write_owned(bytes, owner, step),
        }
    }

    /// Reserves space for an item that is written soon: see [`Records::prepare`].
    #[inline(always)]
    pub fn prepare(&self, item: C::Ref<'_>, is_live: Liveness<'_>) -> Result<()> {
        match C::item(item) {
            Item::Word(_) => Ok(()),
            Item::Bytes(bytes) => self.records.prepare(bytes.len(), is_live),
        }
    }

    /// Records that the word is about to leave the tree: see [`Records::keep`].
    #[inline(always)]
    pub fn keep(&self, word: u64) {
        if !C::INLINE {
            self.records.keep(word);
        }
    }

    /// Returns the item that a word represents.
    #[inline(always)]
    pub fn read<'a>(&'a self, word: u64, guard: &'a C::Guard) -> C::Ref<'a> {
        if C::INLINE { C::of_word(word) } else { C::of_bytes(self.records.read(word, C::pinned(guard))) }
    }

    /// Returns the item that a word represents, after comparing its record with its checksum.
    #[inline]
    pub fn read_verified<'a>(&'a self, word: u64, guard: &'a C::Guard) -> Result<C::Ref<'a>> {
        if C::INLINE {
            return Ok(C::of_word(word));
        }
        self.records.read_verified(word, C::pinned(guard)).map(C::of_bytes)
    }

    /// Returns the item that a word represents; unless the caller is `lenient`, after comparing its record with its
    /// checksum.
    #[inline(always)]
    pub fn read_in_scan<'a>(&'a self, word: u64, guard: &'a C::Guard, lenient: bool) -> Result<C::Ref<'a>> {
        if C::INLINE || lenient {
            return Ok(self.read(word, guard));
        }
        match self.records.read_sound(word, C::pinned(guard)) {
            Some(bytes) => Ok(C::of_bytes(bytes)),
            None => self.read_verified(word, guard),
        }
    }

    /// Verifies the checksum of the item that a word represents.
    #[inline(always)]
    pub fn verify(&self, word: u64) -> Result<()> {
        if C::INLINE { Ok(()) } else { self.records.verify(word) }
    }

    /// Verifies the checksum of an item that was reached with this guard.
    #[inline(always)]
    pub fn verify_held(&self, word: u64, guard: &C::Guard) -> Result<()> {
        self.read_verified(word, guard).map(drop)
    }

    /// Returns whether a damaged record was met. A tree with damaged keys trusts no fingerprint, separator or fence,
    /// because any may be that of a damaged key.
    #[inline(always)]
    pub fn has_damage(&self) -> bool {
        !C::INLINE && self.records.is_damaged()
    }

    /// Prefetches the record of a word, if it has one. Accepts any word.
    #[inline(always)]
    pub fn prefetch(&self, word: u64) {
        if !C::INLINE {
            self.records.prefetch(word);
        }
    }

    /// Frees the record of a word that the tree no longer refers to, once no reader holds it.
    #[inline(always)]
    pub fn retire(&self, word: u64, guard: &C::Guard) {
        if !C::INLINE {
            self.records.retire(word, C::pinned(guard));
        }
    }

    /// Frees the record of a word that was never published.
    #[inline(always)]
    pub fn free(&self, word: u64) {
        if !C::INLINE {
            self.records.free(word);
        }
    }

    /// Marks a word as referenced by the tree, during recovery. Returns `false` if it already was.
    #[inline(always)]
    pub fn mark_live(&self, word: u64) -> Result<bool> {
        if C::INLINE { Ok(true) } else { self.records.mark_live(word) }
    }

    /// Marks a word as referenced by the tree, during recovery, and returns the item that it represents: see
    /// [`Records::mark_and_read`].
    #[inline(always)]
    pub fn mark_and_read<'a>(
        &'a self,
        word: u64,
        marks: &mut Marks,
        guard: &'a C::Guard,
    ) -> Result<C::Ref<'a>> {
        if C::INLINE {
            return Ok(C::of_word(word));
        }
        self.records.mark_and_read(word, marks, C::pinned(guard)).map(C::of_bytes)
    }

    /// Reports if fewer records are live than there are items.
    pub fn check_records(&self, items: u64) -> Option<Issue> {
        if C::INLINE {
            return None;
        }
        pin().flush();
        let live = self.records.stats().0;
        // Records that a reader may still hold are not free yet.
        (live < items).then(|| Issue::new("records", format!("{live} live records for {items} items")))
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

    /// Takes over the records of a killed process: see [`Records::take_over`].
    pub fn take_over(
        pool: &Arc<PoolFile<M>>,
        tree: TreeId,
        form: Form,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let spec = RecordSpec::new(tree, SlotKind::VALUE_RECORD);
        Some(Self { records: Records::take_over(pool, spec, manifest)?, form })
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

    /// Returns the values as those of a codec, for functions that have it as a type parameter.
    #[inline(always)]
    pub fn of<V: Storage>(&self) -> &Items<V, M> {
        // SAFETY: `Items` is a transparent wrapper, and any records may be accessed through any codec.
        unsafe { &*std::ptr::from_ref(&self.records).cast() }
    }

    /// Returns the value that a word represents, without verifying its record.
    pub fn read<'a>(&'a self, word: u64, guard: &'a Guard) -> Item<'a> {
        match self.form {
            Form::Words => Item::Word(word),
            Form::Records => Item::Bytes(self.records.read(word, guard)),
        }
    }

    /// Verifies the checksum of the value that a word represents.
    #[inline]
    pub fn verify(&self, word: u64) -> Result<()> {
        if self.are_words() { Ok(()) } else { self.records.verify(word) }
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

    /// As [`mark_live`](Self::mark_live), with the marks of one thread: see [`Records::mark`].
    #[inline(always)]
    pub fn mark(&self, word: u64, marks: &mut Marks) -> Result<()> {
        if self.are_words() { Ok(()) } else { self.records.mark(word, marks).map(drop) }
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
        if self.are_words() { None } else { self.of::<Record>().check_records(items) }
    }
}
