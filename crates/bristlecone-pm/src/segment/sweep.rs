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
        // A segment that a process has open is left alone.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && Header::read(&file).is_none_or(|header| !header.pool().is_some_and(PoolFileId::is_there))
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}
