//! Location of segments: files of this user that no other user can read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, ftruncate, seek};
use rustix::io::Errno;

use crate::failpoint;

pub(super) const FOLDER: &str = "/dev/shm";
/// Prefix of their names.
pub(super) const PREFIX: &str = "bristlecone-";

/// Format of the segment and of its manifest.
pub(super) const FORMAT: u64 = 3;

/// The place of a segment.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file in shared memory, at this path.
    Named(PathBuf),
    /// A file that the caller passed as a descriptor, with its description.
    Given(PathBuf),
}

impl Place {
    /// Returns the place of a pool's segment in shared memory.
    pub fn of(uuid: [u64; 2]) -> Self {
        Self::Named(path_of(uuid))
    }

    /// Returns the path, or the description.
    pub fn path(&self) -> &Path {
        let (Self::Named(path) | Self::Given(path)) = self;
        path
    }

    /// Returns whether the file is still the segment of its pool.
    pub fn is_there(&self, file: &File) -> bool {
        match self {
            Self::Named(_) => file.metadata().is_ok_and(|file| file.nlink() > 0),
            Self::Given(_) => file.metadata().is_ok_and(|file| file.len() > 0),
        }
    }

    /// Removes the file, or frees the memory of one that has no name.
    pub fn remove(&self, file: &File) {
        let _ = match self {
            Self::Named(path) => std::fs::remove_file(path),
            Self::Given(_) => failpoint::call("ftruncate", || ftruncate(file, 0)).map_err(Into::into),
        };
    }
}

/// Returns the path of a pool's segment. Each format has its own name, so that libraries of other formats neither use nor
/// remove it.
pub(super) fn path_of(uuid: [u64; 2]) -> PathBuf {
    path_of_format(uuid, FORMAT)
}

/// Returns the paths of a pool's segments of earlier formats, which nothing uses any more.
pub(super) fn earlier_paths(uuid: [u64; 2]) -> impl Iterator<Item = PathBuf> {
    (FORMATS_BEGIN..FORMAT).map(move |format| path_of_format(uuid, format))
}

/// The last format whose name has no number.
const FORMATS_BEGIN: u64 = 2;

fn path_of_format(uuid: [u64; 2], format: u64) -> PathBuf {
    let uuid = u128::from(uuid[1]) << 64 | u128::from(uuid[0]);
    let name = format!("{PREFIX}{uuid:032x}");
    Path::new(FOLDER).join(if format == FORMATS_BEGIN { name } else { format!("{name}-{format}") })
}

/// Returns whether a file of this name is a segment of the present format.
pub(super) fn is_name(name: &str) -> bool {
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(uuid, format)| {
        uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit()) && format == FORMAT.to_string()
    })
}

/// Opens a file that this user created, and no other can read or write. Anything else is ignored.
pub(super) fn open_own(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = failpoint::check("open").ok().and_then(|()| options.open(path).ok())?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o77 == 0;
    (metadata.is_file() && is_own && metadata.nlink() == 1).then_some(file)
}

/// Returns whether there is memory behind every byte of a page of a file. Touching a hole allocates a page, and raises
/// a signal if there is none.
pub(super) fn has_page(file: &File, offset: u64) -> bool {
    seek(file, SeekFrom::Data(offset)) == Ok(offset)
}

/// Returns the end of the data at the start of a range of a file. Returns `None` if there is more data behind a hole.
pub(super) fn data_end(file: &File, start: u64, bytes: u64) -> Option<u64> {
    let end = start + bytes;
    // Behind the last data, and at the end of the file, the call fails.
    let next = |from| seek(file, SeekFrom::Data(from)).map_or(end, |at| at.min(end));
    if next(start) != start {
        return (next(start) == end).then_some(start);
    }
    let hole = seek(file, SeekFrom::Hole(start)).ok()?.min(end);
    (next(hole) == end).then_some(hole)
}

/// Reads `bytes` bytes at an offset of a file.
pub(super) fn read_at(file: &File, bytes: usize, offset: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    failpoint::check("pread").ok()?;
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

/// Writes bytes at an offset of a file.
pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    failpoint::check("pwrite")?;
    file.write_all_at(bytes, offset).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
