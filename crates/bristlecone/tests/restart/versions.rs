//! Index files of other formats, and of other builds of the library: the index is rebuilt, and the pool opens.
//!
//! `golden/segment-N.bin` has the first bytes of a file in format N: see `golden/make.py`.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bristlecone::{Design, KeepIndex, Pool};

use crate::common::{Scratch, segment_of};
use crate::descriptors::Pair;
use crate::options;

const GOLDEN: [&[u8]; 3] = [
    include_bytes!("golden/segment-1.bin"),
    include_bytes!("golden/segment-2.bin"),
    include_bytes!("golden/segment-3.bin"),
];
/// The present format.
const FORMAT: u64 = 3;
const HEADER_BYTES: usize = 4096;
const PATH_BYTES: usize = 12;

/// The words of a header, with its path.
#[derive(Clone, Debug, PartialEq)]
struct Header(Vec<u64>, Vec<u8>);

impl Header {
    fn words(format: u64) -> usize {
        if format < 3 { 14 } else { 15 }
    }

    /// Decodes a header; the checksum must be correct.
    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
        let count = Self::words(word(1));
        let words: Vec<u64> = (0..count).map(word).collect();
        let path = bytes[8 * count..8 * count + words[PATH_BYTES] as usize].to_vec();
        let header = Self(words, path);
        assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES], "the checksum of a header");
        header
    }

    fn encode(&self) -> Vec<u8> {
        let Self(words, path) = self;
        let mut bytes: Vec<u8> =
            words[..words.len() - 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), path);
        bytes.extend(u64::from(sum).to_le_bytes());
        bytes.extend(path);
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    fn read(file: &File) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Self::decode(&bytes)
    }

    /// Returns this header with another word.
    fn with(&self, at: usize, change: impl Fn(u64) -> u64) -> Self {
        let mut header = self.clone();
        header.0[at] = change(header.0[at]);
        header
    }

    /// Returns the header of a golden file with the numbers of this one: only the format prevents its use.
    fn as_golden(&self, format: u64) -> Self {
        let mut header = Self::decode(GOLDEN[format as usize - 1]);
        // Layout, identity, boot and number; device, inode and path.
        header.0[2..8].copy_from_slice(&self.0[2..8]);
        header.0[10..=PATH_BYTES].copy_from_slice(&self.0[10..=PATH_BYTES]);
        header.1.clone_from(&self.1);
        header
    }
}

/// Headers that replace the one of an index, none of which may be used.
fn others(own: &Header) -> Vec<(&'static str, Header)> {
    vec![
        ("format 1", own.as_golden(1)),
        ("format 2", own.as_golden(2)),
        ("another manifest", own.as_golden(3)),
        ("a newer format", own.with(1, |format| format + 1)),
        ("a much newer format", own.with(1, |_| u64::MAX)),
        ("another layout", own.with(2, |layout| layout ^ 1)),
        ("another boot of the machine", own.with(5, |boot| boot ^ 1)),
        ("another close", own.with(7, |number| number ^ 1)),
        ("another opening", own.with(13, |number| number ^ 1)),
    ]
}

fn open(path: &Path) -> Pool {
    Pool::options().max_bytes(64 << 20).keep_index(KeepIndex::Always).open(path).unwrap()
}

/// Returns a pool of a process that was killed, or closed it, with the path of its index.
fn left(design: Design, is_killed: bool) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    options::start_and_kill(design, KeepIndex::Always, &scratch.0);
    if !is_killed {
        let pool = open(&scratch.0);
        drop(pool.tree::<u64, u64>("t").unwrap());
        pool.close().unwrap();
    }
    let index =
        segment_of(&Pool::options().read_only(true).keep_index(KeepIndex::Never).open(&scratch.0).unwrap());
    assert!(index.exists());
    (scratch, index)
}

/// Opens the pool twice: as it was left, and after a close; returns whether the index was used the first time.
fn reopen(path: &Path, design: Design, when: &str) -> bool {
    let look = || {
        let pool = open(path);
        options::verify(&pool, when);
        let is_kept = pool.info().index_was_kept;
        pool.close().unwrap();
        is_kept
    };
    let is_kept = look();
    assert!(look() || design == Design::WoTree, "{when}: a rebuilt index is saved");
    is_kept
}

/// Whether a design takes over the index of a process that was killed, or closed the pool.
fn is_kept(design: Design, is_killed: bool) -> bool {
    if is_killed { matches!(design, Design::NbTree | Design::SsTree) } else { design != Design::WoTree }
}

#[test]
fn an_index_of_another_format_or_build_is_rebuilt() {
    let _alone = crate::alone();
    for design in Design::ALL.iter().copied() {
        // A WO-tree leaves nothing at a close.
        let ends = [false, true].into_iter().filter(|is_killed| *is_killed || design != Design::WoTree);
        for is_killed in ends {
            let (scratch, index) = left(design, is_killed);
            let own = Header::read(&File::open(&index).unwrap());
            assert_eq!((own.0.len(), own.0[1]), (Header::words(FORMAT), FORMAT));
            assert_eq!(reopen(&scratch.0, design, "unchanged"), is_kept(design, is_killed), "{design}");
            for number in 0..others(&own).len() {
                let (scratch, index) = left(design, is_killed);
                let file = File::options().read(true).write(true).open(&index).unwrap();
                let (name, other) = others(&Header::read(&file)).swap_remove(number);
                file.write_all_at(&other.encode(), 0).unwrap();
                drop(file);
                let when = format!("{design}, killed: {is_killed}, {name}");
                assert!(!reopen(&scratch.0, design, &when), "{when}");
            }
        }
    }
}

#[test]
fn files_of_several_formats_stand_side_by_side() {
    let _alone = crate::alone();
    let design = Design::default();
    for is_killed in [false, true] {
        let (scratch, index) = left(design, is_killed);
        let own = Header::read(&File::open(&index).unwrap());
        let name = index.to_str().unwrap().strip_suffix("-3").unwrap();
        let [older, newer] = [PathBuf::from(name), PathBuf::from(format!("{name}-4"))];
        let write = |path: &Path, header: &Header| {
            let file = File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
            file.write_all_at(&header.encode(), 0).unwrap();
        };
        write(&older, &own.as_golden(2));
        write(&newer, &own.with(1, |format| format + 1));
        assert!(reopen(&scratch.0, design, "beside others"), "killed: {is_killed}");
        // A newer library may use it.
        assert!(newer.exists());
        fs::remove_file(&index).unwrap();
        assert!(!reopen(&scratch.0, design, "only others"), "killed: {is_killed}");
        assert!(newer.exists() && !older.exists(), "an earlier one is removed when a new one is created");
        fs::remove_file(&newer).unwrap();
    }
}

#[test]
fn an_index_without_a_name_of_another_format_or_build_is_rebuilt() {
    let _alone = crate::alone();
    let numbers = {
        let pair = Pair::filled();
        others(&Header::read(&File::from(pair.1.try_clone().unwrap()))).len()
    };
    for number in 0..numbers {
        let pair = Pair::filled();
        let file = File::from(pair.1.try_clone().unwrap());
        let own = Header::read(&file);
        assert!(own.1.is_empty(), "no path");
        let (name, other) = others(&own).swap_remove(number);
        file.write_all_at(&other.encode(), 0).unwrap();
        let options = Pool::options().keep_index(KeepIndex::Always);
        let pool = options.open_fd(pair.0.as_fd(), Some(pair.1.as_fd())).unwrap();
        assert!(!pool.info().index_was_kept, "{name}");
        crate::descriptors::verify_items(&pool, name);
        pool.close().unwrap();
        pair.verify(name);
    }
    // The identity of the pool is where it is in each format.
    let (pair, other) = (Pair::filled(), Pair::filled());
    let own = Header::read(&File::from(other.1.try_clone().unwrap()));
    for format in 1..FORMAT {
        let file = File::from(other.1.try_clone().unwrap());
        file.write_all_at(&own.as_golden(format).encode(), 0).unwrap();
        let opened = Pool::options().open_fd(pair.0.as_fd(), Some(other.1.as_fd()));
        let expected = format!("descriptor {} is the index of another pool", other.1.as_raw_fd());
        assert!(opened.unwrap_err().to_string().starts_with(&expected), "format {format}");
    }
    pair.verify("at the end");
}
