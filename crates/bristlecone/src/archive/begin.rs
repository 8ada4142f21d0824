//! Where an archiver begins: a new archive, or the end of one, as its cursor and its entries say.

use std::sync::Arc;

use bristlecone_pm::{Error, Result, Storage};

use super::catalog::{Catalog, first_file};
use super::identity;
use super::pieces::{comparable, entries_before};
use crate::journal::cursor::Cursor;
use crate::journal::inspect::JournalFiles;
use crate::journal::manifest::read_manifest;
use crate::journal::mutation::{Mutation, is_mutated};
use crate::journal::restore::replay_from;
use crate::journal::tail::Tail;
use crate::journal::trees::Past;

/// The place in a journal where an archive ends.
pub struct At {
    pub tail: Tail,
    pub past: Past,
    pub rest: Option<(u64, Vec<u8>)>,
}

impl At {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a journal of an older version; [`Error::Pruned`], [`Error::Corrupted`]; errors of the system.
    pub fn end_of(from: &Arc<dyn Storage>, catalog: &Catalog) -> Result<Self> {
        let (mut tail, skipped, mut past) = Tail::begin(from, catalog.end)?;
        if skipped.is_some() {
            return Err(Error::invalid(
                "the journal was written by an older version: make a checkpoint first",
            ));
        }
        let mut rest = None;
        while let Some((block, entries)) = tail.next(catalog.end)? {
            let (before, behind) = entries.split_at(entries_before(entries, catalog.end)?);
            past.trees.follow_all(&**from, before)?;
            past.time = past.time.max(block.time);
            rest = (!behind.is_empty()).then(|| (block.time, behind.to_vec()));
        }
        Ok(Self { tail, past, rest })
    }
}

/// Returns the name of the cursor of an archive.
fn cursor_name(id: u128) -> String {
    format!("archive-{:016x}", id as u64)
}

/// Begins an archive with the last checkpoint of a journal, or with its first entry.
pub fn begin(from: &JournalFiles, to: &dyn Storage) -> Result<Catalog> {
    for _ in 0..8 {
        let manifest = read_manifest(&*from.storage)?;
        let begin = manifest.begin();
        let id = identity();
        let catalog = Catalog {
            uuid: manifest.uuid,
            id,
            geometry: manifest.geometry,
            timeline: manifest.timeline,
            fork: begin,
            is_whole: manifest.checkpoint.is_none(),
            next: first_file(manifest.timeline.number),
            end: begin,
            as_of: 0,
            pieces: Vec::new(),
            bases: Vec::new(),
            longs: Vec::new(),
        };
        match from.create_cursor(&cursor_name(id), Some(begin)) {
            // A checkpoint was made meanwhile.
            Err(Error::Pruned { .. }) => continue,
            created => created?,
        };
        let claimed = catalog.claim(to);
        if !matches!(claimed, Ok(true)) {
            // It would hold back the journal for no archive. If the catalog counts in spite of an error, the next archiver
            // creates it again.
            from.drop_cursor(&cursor_name(id))?;
        }
        return if claimed? { Ok(catalog) } else { Err(Error::InUse { pid: None }) };
    }
    Err(Error::InUse { pid: None })
}

/// Takes the cursor of an archive, which may be behind its end, or missing.
pub fn resume(from: &JournalFiles, to: &dyn Storage, catalog: &Catalog) -> Result<Cursor> {
    let name = cursor_name(catalog.id);
    let opened = match Cursor::open(&from.storage, catalog.uuid, &name) {
        Err(Error::NoSuchCursor { .. } | Error::CursorDropped { .. }) => {
            from.create_cursor(&name, Some(catalog.end))?;
            Cursor::open(&from.storage, catalog.uuid, &name)
        }
        opened => opened,
    };
    let mut cursor = opened?;
    if cursor.lsn() > catalog.end && !is_mutated(Mutation::OlderArchiveTaken) {
        let what = format!("{} ends at LSN {}, but was at LSN {}", to.describe(), catalog.end, cursor.lsn());
        return Err(Error::invalid(format!("{what}: it is an older copy")));
    }
    if cursor.lsn() < catalog.end {
        compare(from, to, catalog, cursor.lsn())?;
        cursor.advance(catalog.end)?;
    }
    Ok(cursor)
}

/// Returns an error unless the archive has the same entries as the journal from an LSN on.
fn compare(from: &JournalFiles, to: &dyn Storage, catalog: &Catalog, lsn: u64) -> Result<()> {
    let mut sums = [0; 2];
    let manifest = read_manifest(&*from.storage)?;
    for (sum, (storage, manifest)) in
        sums.iter_mut().zip([(&*from.storage, manifest), (to, catalog.manifest(None))])
    {
        replay_from(storage, &manifest, lsn, &mut |_, entry| {
            if entry.lsn < catalog.end {
                *sum = crc32c::crc32c_append(*sum, &comparable(entry)?);
            }
            Ok(())
        })?;
    }
    if sums[0] == sums[1] || is_mutated(Mutation::EntriesUncompared) {
        return Ok(());
    }
    let what = format!("{} and the journal have other entries from LSN {lsn} on", to.describe());
    Err(Error::invalid(format!("{what}: another copy of the pool was archived")))
}
