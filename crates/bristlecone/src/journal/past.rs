//! What is before the end of a journal.

use bristlecone_pm::{Error, Result, Storage};

use super::checkpoint::trees_of;
use super::manifest::{Manifest, segment_name};
use super::restore::replay_from;
use super::segment::{End, Read};
use super::trees::{Past, Trees};

/// Returns where a journal ends, and what is before that.
///
/// # Errors
///
/// [`Error::Corrupted`], and errors of the system.
pub fn past_of(storage: &dyn Storage, manifest: &Manifest) -> Result<(End, Past)> {
    let mut past = Past::default();
    let Some(last) = manifest.segments.last() else { return Ok((End { offset: 0, lsn: 0 }, past)) };
    let name = segment_name(last.file);
    let missing = || Error::corrupted("a missing file", format!("{name} in {}", storage.describe()));
    let file = storage.open(&name)?.ok_or_else(missing)?;
    let read = Read::new(&*file, *last, manifest.uuid, name.clone())?;
    let Some(before) = read.past() else { return past_of_old(storage, manifest) };
    past = before.clone();
    let end = read.blocks(|block, entries| {
        past.time = past.time.max(block.time);
        past.trees.follow_all(storage, entries)
    })?;
    Ok((end, past))
}

/// Does the same for a journal whose last segment does not say what is before it, from the checkpoint on.
fn past_of_old(storage: &dyn Storage, manifest: &Manifest) -> Result<(End, Past)> {
    let mut past = Past { trees: trees_at_checkpoint(storage, manifest)?, time: 0 };
    let end = replay_from(storage, manifest, manifest.begin(), &mut |block, entry| {
        past.time = past.time.max(block.time);
        past.trees.follow(storage, entry)
    })?;
    Ok((end, past))
}

/// Returns the trees at the begin of the checkpoint, or of the journal.
///
/// # Errors
///
/// [`Error::Corrupted`], and errors of the system.
pub fn trees_at_checkpoint(storage: &dyn Storage, manifest: &Manifest) -> Result<Trees> {
    let trees = manifest.checkpoint.map(|checkpoint| trees_of(storage, manifest.uuid, &checkpoint));
    Ok(trees.transpose()?.unwrap_or_default().into_iter().collect())
}
