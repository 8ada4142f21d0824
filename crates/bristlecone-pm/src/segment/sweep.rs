//! Removal of unused segments.

use rustix::fs::{FlockOperation, flock};

use super::header::{Header, PoolFileId};
use super::place::{FOLDER, is_name, open_own};

/// Maximum number of other pools' segments that an open checks.
const LOOKS: usize = 64;

/// Removes segments of pools that no longer exist.
pub(super) fn sweep() {
    let Ok(folder) = std::fs::read_dir(FOLDER) else { return };
    let segments =
        folder.filter_map(Result::ok).filter(|entry| entry.file_name().to_str().is_some_and(is_name));
    for entry in segments.take(LOOKS) {
        let path = entry.path();
        let Some(file) = open_own(&path) else { continue };
        let is_unused =
            || Header::read(&file).is_none_or(|header| !header.pool().is_some_and(PoolFileId::is_there));
        // A segment that a process has open is left alone. One whose pool exists is not even locked: a process that opens
        // the pool would go without.
        if is_unused() && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_unused() {
            let _ = std::fs::remove_file(&path);
        }
    }
}
