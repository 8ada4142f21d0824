//! Opening a damaged pool to save what is left. The file is mapped privately, and that copy is
//! put right, piece by piece, until it can be opened like any other; what had to go is reported.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::layout::{Descriptor, ENTRY_DROPPING, ENTRY_FREE, ENTRY_LIVE};
use super::open::detect;
use super::superblock::Contents;
use super::{Access, CHUNK_BYTES, Finding, Geometry, PoolFile, TREES_MAX, TreeId, header};
use crate::record::is_record_class;
use crate::{Domain, Error, Medium, Region, Result, SlotKind};

impl<M: Medium> PoolFile<M> {
    /// Opens a pool for reading whatever state it is in, and says what of it is lost. The file is
    /// not changed.
    ///
    /// # Errors
    ///
    /// As [`open_read_only`](Self::open_read_only), but `Corrupted` only if nothing is left.
    pub fn open_damaged(
        path: &Path,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<(Arc<Self>, Vec<Finding>)> {
        let access = Access::Read;
        let (file, len) = Self::begin(path, access)?;
        let mut findings = Vec::new();
        let (contents, guessed) = match header::superblock(&file, path, access) {
            Ok(contents) => (contents, false),
            Err(error @ Error::Newer { .. }) => return Err(error),
            Err(error) => {
                findings.push(Finding::new("superblock", format!("{error}: the usual sizes are assumed")));
                (guess(len), true)
            }
        };
        let geometry = contents.geometry;
        let unreadable = unreadable_pages(&file, len.min(geometry.max_bytes()));
        let region = Region::private(file, path, len.min(geometry.max_bytes()), geometry.max_bytes())?;
        if len < geometry.header_bytes() {
            findings.push(Finding::new("header", "the file ends within it"));
            region.grow(geometry.header_bytes())?;
        }
        for page in unreadable {
            region.blank(page)?;
            findings.push(Finding::new(format!("byte {page:#x}"), "4096 bytes cannot be read"));
        }
        let medium = make_medium(Domain::Process);
        if guessed {
            contents.write(&region, &medium);
        }
        let detected = detect(&region);
        let pool = Self::assemble(region, medium, contents, contents.clean, detected, Some(path), access);
        pool.mend_directory(&mut findings);
        pool.mend_chunks(&mut findings);
        pool.recover_chunks()?;
        pool.recover_directory()?;
        if guessed && pool.trees()?.is_empty() {
            return Err(Error::NotAPool { path: path.to_owned() });
        }
        Ok((pool, findings))
    }

    /// Leaves only entries that can be believed.
    fn mend_directory(&self, findings: &mut Vec<Finding>) {
        let owners = self.owners();
        let mut names = Vec::new();
        for id in (0..self.geometry.trees_max as u32).map(TreeId) {
            let mut note = |what: String| {
                findings.push(Finding::new(format!("directory entry {}", id.0), what));
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
                        note(format!(
                            "unknown state {found:#x}: the tree {:?} is taken as it stands",
                            spec.name
                        ));
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
    }

    /// The trees that chunks name as their owners.
    fn owners(&self) -> Vec<u32> {
        let mut owners: Vec<u32> = (0..self.geometry.chunks_max as u32)
            .filter_map(|id| match Descriptor::decode(self.descriptor(id).load(self.medium()))? {
                Descriptor::Owned { owner, .. } => Some(owner),
                Descriptor::Fresh | Descriptor::Free => None,
            })
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Leaves only descriptors that can be believed, of chunks that are there.
    fn mend_chunks(&self, findings: &mut Vec<Finding>) {
        let present = self.chunks_present();
        let live = |owner: u32| {
            u64::from(owner) < self.geometry.trees_max
                && self.entry(TreeId(owner)).state.load(self.medium()) != ENTRY_FREE
        };
        let mut beyond = 0_u64;
        for id in 0..self.geometry.chunks_max as u32 {
            let descriptor = self.descriptor(id);
            let word = descriptor.load(self.medium());
            let wrong = match Descriptor::decode(word) {
                Some(Descriptor::Fresh) => continue,
                Some(Descriptor::Owned { .. } | Descriptor::Free) if id >= present => {
                    beyond += 1;
                    None
                }
                Some(Descriptor::Free) => continue,
                Some(Descriptor::Owned { owner, .. }) if !live(owner) => {
                    Some(format!("it belongs to directory entry {owner}, which is no tree"))
                }
                Some(Descriptor::Owned { kind, slot_bytes, .. }) => {
                    let record = kind == SlotKind::KeyRecord || kind == SlotKind::ValueRecord;
                    if u64::from(slot_bytes) <= self.geometry.chunk_bytes
                        && (!record || is_record_class(slot_bytes))
                    {
                        continue;
                    }
                    Some(format!("no chunk has slots of {slot_bytes} bytes"))
                }
                None => Some(format!("unknown descriptor {word:#x}")),
            };
            if let Some(wrong) = wrong {
                findings.push(Finding::new(format!("chunk {id}"), format!("{wrong}: it is lost")));
            }
            descriptor.store(self.medium(), Descriptor::Fresh.encode());
        }
        if beyond > 0 {
            findings
                .push(Finding::new("end of the file", format!("{beyond} chunks lay behind it: truncated")));
        }
    }
}

/// What a pool of this length most likely was: everything but its maximum has been the same in
/// every pool so far.
fn guess(len: u64) -> Contents {
    let chunks_max = (len / CHUNK_BYTES).max(1);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: TREES_MAX };
    Contents { uuid: [0; 2], geometry, sequence: 0, domain: Domain::Process, clean: false }
}

/// Every page of the file that the medium does not give back.
fn unreadable_pages(file: &std::fs::File, len: u64) -> Vec<u64> {
    const PAGE_BYTES: u64 = 4096;
    let mut buffer = vec![0; 2 << 20];
    let step = buffer.len() as u64;
    let mut read = |offset: u64, bytes: u64| {
        let bytes = bytes.min(len - offset) as usize;
        header::allowed().and_then(|()| file.read_exact_at(&mut buffer[..bytes], offset)).is_ok()
    };
    let mut pages = Vec::new();
    for start in (0..len).step_by(step as usize) {
        if !read(start, step) {
            let inside = (start..len.min(start + step)).step_by(PAGE_BYTES as usize);
            pages.extend(inside.filter(|&page| !read(page, PAGE_BYTES)));
        }
    }
    pages
}
