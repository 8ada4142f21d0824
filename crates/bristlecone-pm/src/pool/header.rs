//! Reads a pool's header from its file before anything is mapped: a bad block of the medium is an
//! error here, and would be SIGBUS later.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::backing::data_or_all;
use super::layout::{MAGIC, SUPERBLOCK_STRIDE, SUPERBLOCK_WORDS, Superblock};
use super::superblock::Contents;
use super::{Access, Issue};
use crate::dax_device::Device;
use crate::{Error, Result, failpoint};

/// Reads the superblock of a file, and the damage to one copy of it.
pub(super) fn superblock(file: &File, path: &Path, access: Access) -> Result<(Contents, Option<Issue>)> {
    let copies = first_words(file, path, 2 * SUPERBLOCK_STRIDE)?.map(Superblock::from_words);
    match Contents::of(copies, access) {
        Err(_) if copies.iter().all(|copy| copy.magic != MAGIC) => {
            Err(Error::NotAPool { path: path.to_owned() })
        }
        contents => contents,
    }
}

/// Reads the words of both copies of the superblock, of which `len` bytes exist.
pub(super) fn first_words(file: &File, path: &Path, len: u64) -> Result<[[u64; SUPERBLOCK_WORDS]; 2]> {
    let mut bytes = vec![0; 2 * SUPERBLOCK_STRIDE as usize];
    let exist = len.min(2 * SUPERBLOCK_STRIDE) as usize;
    read(file, path, &mut bytes[..exist], 0)?;
    Ok([0, SUPERBLOCK_STRIDE as usize].map(|start| words(&bytes[start..])))
}

/// Reads the header of a file of `len` bytes: returns the contents of the superblock, and reads
/// everything else except holes to see that it is readable.
pub(super) fn probe(file: &File, path: &Path, len: u64, access: Access) -> Result<Contents> {
    let (contents, _) = superblock(file, path, access)?;
    if len < contents.geometry.header_bytes() {
        let what = "the file ends within its header: truncated";
        return Err(Error::corrupted(what, path.display().to_string()));
    }
    let mut buffer = vec![0; 1 << 20];
    let (from, end) = (2 * SUPERBLOCK_STRIDE, contents.geometry.descriptors_end());
    for mut part in data_or_all(file, Device::of(file)?.is_some(), from, end) {
        while part.start < part.end {
            let bytes = (part.end - part.start).min(buffer.len() as u64);
            read(file, path, &mut buffer[..bytes as usize], part.start)?;
            part.start += bytes;
        }
    }
    Ok(contents)
}

/// Reads bytes of a file, or of a device.
pub(super) fn read(file: &File, path: &Path, buffer: &mut [u8], offset: u64) -> Result<()> {
    let doing = || format!("reading the header of {} at byte {offset:#x}", path.display());
    let read = match Device::of(file)? {
        Some(device) => device.read(file, offset, buffer),
        None => allowed().and_then(|()| file.read_exact_at(buffer, offset)),
    };
    read.map_err(|error| Error::io(doing(), error))
}

/// Decides before each read of the file whether it fails.
pub(super) fn allowed() -> std::io::Result<()> {
    failpoint::check("pread").map_err(std::io::Error::from)
}

fn words(bytes: &[u8]) -> [u64; SUPERBLOCK_WORDS] {
    let mut words = [0; SUPERBLOCK_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}
