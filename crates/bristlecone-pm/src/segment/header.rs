//! The first page of a segment: its pool, and the seal.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::place::{FORMAT, read_at, write_at};
use super::{EXTENT_BYTES, Identity};

/// Bytes before the manifest.
pub(super) const HEADER_BYTES: usize = 4096;
/// Words before the path.
const WORDS: usize = 15;
const MAGIC: u64 = u64::from_le_bytes(*b"brstlseg");
/// Bits of a seal's number, as many as the superblock has space for.
pub(crate) const NUMBER_BITS: u32 = 55;

/// Contents of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    uuid: [u64; 2],
    layout: u64,
    boot: [u64; 2],
    /// Of a clean close; 0: in use, or left by a kill.
    number: u64,
    /// Of the opening that uses it, or used it when it was killed; 0: saved by a clean close.
    opening: u64,
    notes_words: u64,
    notes_crc: u64,
    pool: Option<PoolFileId>,
}

/// The file of the pool, to check whether it still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolFileId {
    device: u64,
    inode: u64,
    path: PathBuf,
}

impl PoolFileId {
    fn of(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let metadata = std::fs::metadata(&path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino(), path })
    }

    fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether the path still names the same file.
    pub fn is_there(&self) -> bool {
        let is_own =
            |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino()) == (self.device, self.inode);
        // A folder that cannot be read may contain it.
        std::fs::metadata(&self.path)
            .map_or_else(|error| error.kind() != std::io::ErrorKind::NotFound, is_own)
    }
}

impl Header {
    /// Returns the header of a segment in use; `None` if it cannot be distinguished from those of
    /// earlier boots.
    pub fn new(identity: &Identity<'_>) -> Option<Self> {
        Some(Self {
            uuid: identity.uuid,
            layout: identity.layout,
            boot: boot()?,
            number: 0,
            opening: identity.opening,
            notes_words: 0,
            notes_crc: 0,
            pool: identity.pool.and_then(PoolFileId::of),
        })
    }

    /// Returns whether the last user of the pool closed it with this segment, or was killed while using it. A killed one
    /// used it with this file: a copy made before the kill has the same number, and is older.
    pub fn fits(&self, identity: &Identity<'_>) -> bool {
        let is_same = || match (&self.pool, identity.pool) {
            (Some(pool), Some(path)) => PoolFileId::of(path).is_some_and(|now| pool.is_same_file(&now)),
            (pool, path) => pool.is_none() && path.is_none(),
        };
        let numbers = if identity.was_clean { (identity.seal, 0) } else { (0, identity.seal) };
        identity.seal != 0
            && (self.uuid, self.layout) == (identity.uuid, identity.layout)
            && (self.number, self.opening) == numbers
            && boot() == Some(self.boot)
            && (identity.was_clean || is_same())
    }

    /// Returns the header for another opening, which uses the segment from here on. The pool's file may have another name
    /// now, or be a copy.
    pub fn reopened(&self, identity: &Identity<'_>) -> Self {
        let pool = identity.pool.and_then(PoolFileId::of);
        Self { opening: identity.opening, pool, ..self.unseal() }
    }

    /// Checks whether it is the segment of an open pool that this process can read; `Err` holds the
    /// reason.
    pub fn is_of(&self, identity: &Identity<'_>) -> Result<(), &'static str> {
        if self.uuid != identity.uuid
            || boot() != Some(self.boot)
            || self.pool != identity.pool.and_then(PoolFileId::of)
        {
            return Err("its index in shared memory is that of another file");
        }
        if self.layout != identity.layout {
            return Err("its writer is of another version of the library");
        }
        Ok(())
    }

    /// Returns the number of the seal.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn pool(&self) -> Option<&PoolFileId> {
        self.pool.as_ref()
    }

    /// Returns the header with a unique number, for this manifest.
    pub fn seal(&self, manifest: &[u64]) -> Option<Self> {
        let number = new_number()?;
        let notes_crc = u64::from(crc32c::crc32c(&bytes_of(manifest)));
        Some(Self { number, opening: 0, notes_words: manifest.len() as u64, notes_crc, ..self.clone() })
    }

    /// Returns the header of a segment in use.
    pub fn unseal(&self) -> Self {
        Self { number: 0, notes_words: 0, notes_crc: 0, ..self.clone() }
    }

    /// Writes the manifest, and the header.
    pub fn write(&self, file: &File, manifest: &[u64]) -> Result<(), Errno> {
        write_at(file, &bytes_of(manifest), HEADER_BYTES as u64)?;
        write_at(file, &self.to_bytes(), 0)
    }

    /// Reads the header; `None` if it is invalid.
    pub fn read(file: &File) -> Option<Self> {
        Self::from_bytes(&read_at(file, HEADER_BYTES, 0)?)
    }

    /// Reads the manifest; `None` if it is invalid.
    pub fn read_manifest(&self, file: &File) -> Option<Vec<u64>> {
        let bytes = self.notes_words.checked_mul(8).filter(|bytes| *bytes < EXTENT_BYTES)?;
        // At most the size of the file: a wrong length must not cause a large allocation.
        file.metadata().ok().filter(|file| HEADER_BYTES as u64 + bytes <= file.len())?;
        let manifest = read_at(file, bytes as usize, HEADER_BYTES as u64)?;
        (u64::from(crc32c::crc32c(&manifest)) == self.notes_crc).then(|| words_of(&manifest))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let pool = self.pool.as_ref();
        let path = pool.map_or(&[][..], |pool| pool.path.as_os_str().as_bytes());
        let path = if path.len() <= HEADER_BYTES - 8 * WORDS { path } else { &[] };
        let mut words = [
            MAGIC,
            FORMAT,
            self.layout,
            self.uuid[0],
            self.uuid[1],
            self.boot[0],
            self.boot[1],
            self.number,
            self.notes_words,
            self.notes_crc,
            pool.map_or(0, |pool| pool.device),
            pool.map_or(0, |pool| pool.inode),
            path.len() as u64,
            self.opening,
            0,
        ];
        words[WORDS - 1] = checksum(&words, path);
        let mut bytes = bytes_of(&words);
        bytes.extend(path);
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.split_at_checked(8 * WORDS)?;
        let words: [u64; WORDS] = words_of(words).try_into().ok()?;
        let [
            magic,
            format,
            layout,
            uuid0,
            uuid1,
            boot0,
            boot1,
            number,
            notes_words,
            notes_crc,
            device,
            inode,
            path_len,
            opening,
            crc,
        ] = words;
        let path = rest.get(..usize::try_from(path_len).ok()?)?;
        if magic != MAGIC || format != FORMAT || crc != checksum(&words, path) {
            return None;
        }
        let pool =
            (!path.is_empty()).then(|| PoolFileId { device, inode, path: OsStr::from_bytes(path).into() });
        let (uuid, boot) = ([uuid0, uuid1], [boot0, boot1]);
        Some(Self { uuid, layout, boot, number, opening, notes_words, notes_crc, pool })
    }
}

/// What a file holds, by its first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A segment of a pool with this identity, in any format.
    Segment([u64; 2]),
    /// Zeros, or nothing.
    Nothing,
    /// Something else, or a part of a segment's first words.
    Other,
}

/// Returns what a file holds. The first words of a header are the same in each format: the identity is where it is here.
pub(crate) fn holds(file: &File) -> Holds {
    let len = file.metadata().map_or(0, |file| file.len()).min(8 * WORDS as u64);
    let Some(bytes) = read_at(file, len as usize, 0) else { return Holds::Other };
    match words_of(&bytes)[..] {
        [MAGIC, _, _, uuid0, uuid1, ..] => Holds::Segment([uuid0, uuid1]),
        _ if bytes.iter().all(|byte| *byte == 0) => Holds::Nothing,
        _ => Holds::Other,
    }
}

/// Returns a number that no other close or opening has; `None` without entropy.
pub(crate) fn new_number() -> Option<u64> {
    let mut number = [0; 8];
    let drawn = getrandom(&mut number, GetRandomFlags::NONBLOCK);
    let number = u64::from_le_bytes(number) >> (u64::BITS - NUMBER_BITS);
    (drawn == Ok(8) && number != 0).then_some(number)
}

/// Returns the checksum of the words but the last one, and of the path.
fn checksum(words: &[u64; WORDS], path: &[u8]) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&bytes_of(&words[..WORDS - 1])), path))
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the id of this boot of the machine.
fn boot() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some([number as u64, (number >> 64) as u64])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header::new(&identity([1, 2], 0, 3)).unwrap()
    }

    fn identity(uuid: [u64; 2], seal: u64, layout: u64) -> Identity<'static> {
        Identity { uuid, seal, was_clean: true, opening: 9, layout, pool: Some(Path::new("/dev/null")) }
    }

    #[test]
    fn a_header_comes_back_whole_or_not_at_all() {
        let header = header().seal(&[7, 8]).unwrap();
        let bytes = header.to_bytes();
        assert_eq!(Header::from_bytes(&bytes).as_ref(), Some(&header));
        let end = 8 * WORDS + "/dev/null".len();
        for at in 0..end {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_eq!(Header::from_bytes(&other), None, "byte {at}, bit {bit}");
            }
            assert_eq!(Header::from_bytes(&bytes[..at]), None);
        }
    }

    #[test]
    fn a_seal_fits_its_pool_alone() {
        let sealed = header().seal(&[]).unwrap();
        assert!(sealed.fits(&identity([1, 2], sealed.number, 3)));
        assert!(!sealed.fits(&identity([1, 3], sealed.number, 3)));
        assert!(!sealed.fits(&identity([1, 2], sealed.number ^ 1, 3)));
        assert!(!sealed.fits(&identity([1, 2], sealed.number, 4)));
        assert!(!sealed.unseal().fits(&identity([1, 2], 0, 3)), "in use");
        let other_boot = Header { boot: [sealed.boot[0] ^ 1, sealed.boot[1]], ..sealed.clone() };
        assert!(!other_boot.fits(&identity([1, 2], sealed.number, 3)));
        assert_ne!(header().seal(&[]).unwrap().number, sealed.number);
        let killed = |seal| Identity { was_clean: false, ..identity([1, 2], seal, 3) };
        assert!(header().fits(&killed(9)) && !header().fits(&killed(8)) && !header().fits(&killed(0)));
        assert!(!sealed.fits(&killed(sealed.number)) && !header().fits(&identity([1, 2], 9, 3)));
        assert!(sealed.reopened(&killed(8)).fits(&killed(9)), "the number is that of the new opening");
        assert_eq!(sealed.number >> NUMBER_BITS, 0);
    }

    #[test]
    fn a_pool_that_is_gone_is_noticed() {
        let id = PoolFileId::of(Path::new("/dev/null")).unwrap();
        assert!(id.is_there());
        assert!(!PoolFileId { inode: id.inode + 1, ..id.clone() }.is_there());
        assert!(!PoolFileId { path: "/nowhere/at/all".into(), ..id }.is_there());
    }
}
