//! Opens a damaged pool to save the remaining data. The file is mapped privately, and that copy is
//! repaired, piece by piece, until it opens like any other; the losses are reported.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::backing::{self, PAGE_BYTES};
use super::layout::{COMMITS_OWNER, Descriptor, ENTRY_DROPPING, ENTRY_FREE, ENTRY_LIVE, Part, SlotKind};
use super::open::{Found, detect, reservation};
use super::superblock::Contents;
use super::{Access, CHUNK_BYTES, Geometry, Issue, PartOf, PoolFile, TREES_MAX, TreeId, header};
use crate::alloc::is_record_class;
use crate::{Domain, Error, Medium, Region, Result};

/// A damaged pool, repaired in memory as far as possible.
#[derive(Debug)]
pub struct Damaged<M> {
    /// The pool, open for reading.
    pub pool: Arc<PoolFile<M>>,
    /// Damage outside its trees.
    pub issues: Vec<Issue>,
    /// The owner of each chunk that is lost in whole or in part.
    pub chunks_lost: Vec<TreeId>,
}

impl<M: Medium> PoolFile<M> {
    /// Opens a damaged pool for reading and reports the losses. The file is not changed. `part_of`
    /// must know all kinds of slots; chunks of other kinds are lost.
    ///
    /// # Errors
    ///
    /// As [`open_read_only`](Self::open_read_only), but `Corrupted` only if nothing is left.
    pub fn open_damaged(
        path: &Path,
        part_of: PartOf,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Damaged<M>> {
        let access = Access::Read;
        let (file, len) = Self::begin(path, access)?;
        let mut issues = Vec::new();
        let (contents, guessed) = match header::superblock(&file, path, access) {
            Ok((contents, damage)) => {
                issues.extend(damage);
                (contents, false)
            }
            Err(error @ Error::Newer { .. }) => return Err(error),
            Err(error) => {
                issues.push(Issue::new("superblock", format!("{error}: the default sizes are assumed")));
                (guess(len), true)
            }
        };
        let geometry = contents.geometry;
        let len = len.min(geometry.max_bytes());
        let unreadable = unreadable_pages(&file, len);
        let region = Region::private(file, path.into(), len, reservation(len, geometry.max_bytes()))?;
        let chunks = geometry.chunks_within(len);
        let whole = geometry.header_bytes() + chunks * geometry.chunk_bytes;
        // Missing parts of the header or of the last chunk read as zeros.
        let cut = if len < whole {
            issues.push(Issue::new("header", "the file ends within it"));
            region.grow(whole)?;
            None
        } else if len > whole {
            region.grow(whole + geometry.chunk_bytes)?;
            let missing = whole + geometry.chunk_bytes - len;
            let what = format!("the file ends within it, {missing} bytes are missing");
            issues.push(Issue::new(format!("chunk {chunks}"), what));
            Some(chunks as u32)
        } else {
            None
        };
        backing::blank_holes(&region, &geometry)?;
        for &page in &unreadable {
            region.blank(page, PAGE_BYTES)?;
            issues.push(Issue::new(format!("byte {page:#x}"), "4096 bytes cannot be read"));
        }
        let medium = make_medium(Domain::Process);
        if guessed {
            contents.write(&region, &medium);
        }
        let detected = detect(&region);
        let found = Found { contents, was_clean: contents.clean, seal: 0, damage: None };
        let pool = Self::assemble(region, medium, found, detected, Some(path), access);
        pool.find_pages(pool.chunks_present().into(), |id, what| {
            issues.push(Issue::new(format!("chunk {id}"), format!("{what}: it is lost")));
            Ok(())
        })?;
        if let Err(error) = pool.finish_intent() {
            // The entry to be changed has one of its states, or is unreadable.
            issues.push(Issue::new("intent", error.to_string()));
            pool.lock_contents().intent = false;
        }
        pool.repair_directory(&mut issues)?;
        let mut chunks_lost = pool.repair_chunks(part_of, &mut issues)?;
        chunks_lost.extend(cut.and_then(|id| pool.owner_of(id)));
        let pages = unreadable.iter().map(|page| *page..page + PAGE_BYTES);
        pages
            .chain(cut.map(|_| len..whole + geometry.chunk_bytes))
            .for_each(|missing| pool.spoil(part_of, missing));
        pool.recover_chunks()?;
        let _private = pool.recover_directory()?;
        if guessed && pool.trees()?.is_empty() {
            return Err(Error::NotAPool { path: path.to_owned() });
        }
        Ok(Damaged { pool, issues, chunks_lost })
    }

    /// Keeps only entries that are valid.
    fn repair_directory(&self, issues: &mut Vec<Issue>) -> Result<()> {
        let owners = self.owners()?;
        let mut names = Vec::new();
        for id in self.entry_ids(0) {
            let mut note = |what: String| {
                issues.push(Issue::new(format!("directory entry {}", id.0), what));
            };
            let state = &self.entry(id).state;
            let found = state.load(self.medium());
            let spec = match self.read_entry(id) {
                Ok(spec) if !spec.name.is_empty() && !names.contains(&spec.name) => Some(spec),
                _ => None,
            };
            let dropped = found == ENTRY_FREE && !owners.contains(&id.0);
            match spec {
                _ if dropped || found == ENTRY_DROPPING => {}
                Some(spec) => {
                    if found != ENTRY_LIVE {
                        note(format!("unknown state {found:#x}: the tree {:?} is taken as it is", spec.name));
                        state.store(self.medium(), ENTRY_LIVE);
                    }
                    names.push(spec.name);
                }
                None => {
                    note("it cannot be read: its tree is lost".to_owned());
                    state.store(self.medium(), ENTRY_FREE);
                }
            }
        }
        Ok(())
    }

    /// Returns the tree that owns a chunk.
    fn owner_of(&self, id: u32) -> Option<TreeId> {
        match Descriptor::decode(self.descriptor(id).load(self.medium()))? {
            Descriptor::Owned { owner, .. } => Some(TreeId(owner)),
            Descriptor::Fresh | Descriptor::Free => None,
        }
    }

    /// Prevents missing bytes from looking like records: zeros would be an empty record.
    fn spoil(&self, part_of: PartOf, missing: Range<u64>) {
        let header_bytes = self.geometry.header_bytes();
        let chunk_of = |offset: u64| offset.saturating_sub(header_bytes) / self.geometry.chunk_bytes;
        for id in chunk_of(missing.start)..=chunk_of(missing.end - 1) {
            let word = self.descriptor(id as u32).load(self.medium());
            let Some(Descriptor::Owned { kind, .. }) = Descriptor::decode(word) else { continue };
            let start = self.chunk_offset(id as u32);
            let of_chunk = missing.start.next_multiple_of(8).max(start)
                ..missing.end.min(start + self.geometry.chunk_bytes);
            if part_of(kind) == Some(Part::Other) && !of_chunk.is_empty() {
                let words = self.words(of_chunk.start, ((of_chunk.end - of_chunk.start) / 8) as usize);
                words.iter().for_each(|word| word.store(self.medium(), u64::MAX));
            }
        }
    }

    /// Returns the trees that own chunks, according to the descriptors.
    fn owners(&self) -> Result<BTreeSet<u32>> {
        let mut owners = BTreeSet::new();
        self.descriptors_from(0, |id, _| {
            owners.extend(self.owner_of(id).map(|owner| owner.0));
            Ok(())
        })?;
        Ok(owners)
    }

    /// Keeps only descriptors that are valid, of chunks that exist. Returns the owners of missing
    /// chunks, one for each chunk.
    fn repair_chunks(&self, part_of: PartOf, issues: &mut Vec<Issue>) -> Result<Vec<TreeId>> {
        let present = self.chunks_present();
        let mut lost = Vec::new();
        let mut beyond = 0_u64;
        self.descriptors_from(0, |id, word| {
            let found = Descriptor::decode(word);
            let Some(what) = self.violation_of(id, found, word, part_of) else { return Ok(()) };
            if id >= present {
                beyond += 1;
            } else {
                issues.push(Issue::new(format!("chunk {id}"), format!("{what}: it is lost")));
            }
            lost.extend(self.owner_of(id));
            self.descriptor(id).store(self.medium(), Descriptor::Free.encode());
            if id >= present {
                self.descriptor(id).store(self.medium(), Descriptor::Fresh.encode());
            }
            Ok(())
        })?;
        if beyond > 0 {
            issues.push(Issue::new("end of the file", format!("{beyond} chunks lay behind it: truncated")));
        }
        Ok(lost)
    }

    /// Returns the violation of a descriptor.
    fn violation_of(&self, id: u32, found: Option<Descriptor>, word: u64, part_of: PartOf) -> Option<String> {
        let live = |owner: u32| {
            let tree = TreeId(owner);
            self.has_entry(tree) && self.entry(tree).state.load(self.medium()) != ENTRY_FREE
        };
        match found {
            None => Some(format!("unknown descriptor {word:#x}")),
            Some(Descriptor::Fresh) if id < self.chunks_present() && self.looks_used(id) => {
                Some("marked as never used, but begins with data".to_owned())
            }
            Some(Descriptor::Fresh) => None,
            Some(_) if id >= self.chunks_present() => Some("behind the end of the file".to_owned()),
            Some(Descriptor::Free) => None,
            Some(Descriptor::Owned { owner: COMMITS_OWNER, kind: SlotKind::COMMITS, slot_bytes })
                if self.has_commits() && self.is_of_commits(slot_bytes) =>
            {
                None
            }
            Some(Descriptor::Owned { .. }) if self.is_page(id) => None,
            Some(Descriptor::Owned { owner, .. }) if !live(owner) => {
                Some(format!("it belongs to directory entry {owner}, which is no tree"))
            }
            Some(Descriptor::Owned { kind, slot_bytes, .. }) => {
                let Some(part) = part_of(kind) else { return Some(format!("unknown descriptor {word:#x}")) };
                let whole = u64::from(slot_bytes) <= self.geometry.chunk_bytes;
                // Records have sizes of their own.
                let sound = part != Part::Other || is_record_class(slot_bytes);
                (!whole || !sound).then(|| format!("no chunk has slots of {slot_bytes} bytes"))
            }
        }
    }
}

/// Guesses the superblock from the file length: everything except the maximum has been the same in
/// every pool so far.
fn guess(len: u64) -> Contents {
    let chunks_max = (len / CHUNK_BYTES).max(1);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: TREES_MAX };
    Contents {
        uuid: [0; 2],
        geometry,
        sequence: 0,
        domain: Domain::Process,
        clean: false,
        seal: 0,
        intent: false,
        commits: false,
        // Pages are believed where they are found.
        pages: true,
    }
}

/// Returns every page of the file that the medium cannot read.
fn unreadable_pages(file: &std::fs::File, len: u64) -> Vec<u64> {
    let mut buffer = vec![0; 2 << 20];
    let step = buffer.len() as u64;
    let mut read = |offset: u64, bytes: u64| {
        let bytes = bytes.min(len - offset) as usize;
        header::allowed().and_then(|()| file.read_exact_at(&mut buffer[..bytes], offset)).is_ok()
    };
    let mut pages = Vec::new();
    for part in backing::data(file, 0, len) {
        for start in part.clone().step_by(step as usize) {
            let bytes = step.min(part.end - start);
            if !read(start, bytes) {
                let inside = (start / PAGE_BYTES * PAGE_BYTES..start + bytes).step_by(PAGE_BYTES as usize);
                pages.extend(inside.filter(|&page| !read(page, PAGE_BYTES)));
            }
        }
    }
    pages
}
