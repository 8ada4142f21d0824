//! Where segments are: files that this user made and no other can read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::header::{Header, PoolFileId};
use crate::failpoint;

const FOLDER: &str = "/dev/shm";
/// What their names begin with.
const PREFIX: &str = "bristlecone-";
/// Other pools' segments that an open looks at.
const LOOKS: usize = 64;

/// Returns where the segment of a pool is.
pub(super) fn path_of(uuid: [u64; 2]) -> PathBuf {
    let uuid = u128::from(uuid[1]) << 64 | u128::from(uuid[0]);
    Path::new(FOLDER).join(format!("{PREFIX}{uuid:032x}"))
}

/// Opens a file that this user made, and no other can read or write. Anything else is left alone.
pub(super) fn open_own(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = failpoint::check("open").ok().and_then(|()| options.open(path).ok())?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o77 == 0;
    (metadata.is_file() && is_own && metadata.nlink() == 1).then_some(file)
}

/// Removes segments of pools that are not there any more.
pub(super) fn sweep() {
    let Ok(folder) = std::fs::read_dir(FOLDER) else { return };
    let segments = folder.filter_map(Result::ok).filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.strip_prefix(PREFIX).is_some_and(is_uuid))
    });
    for entry in segments.take(LOOKS) {
        let path = entry.path();
        let Some(file) = open_own(&path) else { continue };
        // One that a process has open is its own business.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && Header::read(&file).is_none_or(|header| !header.pool().is_some_and(PoolFileId::is_there))
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads so many bytes at a place of a file.
pub(super) fn read_at(file: &File, bytes: usize, offset: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    failpoint::check("pread").ok()?;
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

/// Writes bytes at a place of a file.
pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    failpoint::check("pwrite")?;
    file.write_all_at(bytes, offset).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
