//! Where segments are: files that this user made and no other can read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::failpoint;

pub(super) const FOLDER: &str = "/dev/shm";
/// What their names begin with.
pub(super) const PREFIX: &str = "bristlecone-";

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

/// Returns whether there is memory behind every byte of a page of a file. To touch a hole takes a page, and where there is none
/// left the answer is a signal.
pub(super) fn has_page(file: &File, offset: u64) -> bool {
    seek(file, SeekFrom::Data(offset)) == Ok(offset)
}

/// Returns where the data ends that a stretch of a file begins with. `None`: there is more behind a hole.
pub(super) fn data_end(file: &File, start: u64, bytes: u64) -> Option<u64> {
    let end = start + bytes;
    // Behind the last data, and where the file ends, the answer is an error.
    let next = |from| seek(file, SeekFrom::Data(from)).map_or(end, |at| at.min(end));
    if next(start) != start {
        return (next(start) == end).then_some(start);
    }
    let hole = seek(file, SeekFrom::Hole(start)).ok()?.min(end);
    (next(hole) == end).then_some(hole)
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
