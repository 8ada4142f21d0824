//! The files of pools with a journal.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bristlecone::JournalFiles;

/// Bytes of both copies of a superblock.
const SUPERBLOCKS: u64 = 8192;

/// Removes a pool and its journal, if they exist.
pub fn remove_pool(pool: &Path) {
    let _ = (fs::remove_file(pool), fs::remove_dir_all(JournalFiles::folder_of(pool)));
}

/// Replaces the file of a pool by one whose pages are worthless but for the superblock, as a power failure or a move to
/// another machine may. The pool must not be open.
///
/// # Panics
///
/// If the files cannot be read or written.
pub fn lose_pages(pool: &Path) {
    let lost = || -> io::Result<()> {
        let (old, left) = (File::open(pool)?, pool.with_extension("left"));
        let (bytes, mut new) = (old.metadata()?.len(), File::create(&left)?);
        io::copy(&mut old.take(SUPERBLOCKS), &mut new)?;
        io::copy(&mut io::repeat(0x5a).take(bytes.saturating_sub(SUPERBLOCKS)), &mut new)?;
        new.flush()?;
        fs::rename(left, pool)
    };
    lost().unwrap_or_else(|error| panic!("{}: {error}", pool.display()));
}

/// The files of a journal.
#[derive(Clone, Debug)]
pub struct CopiedJournal(Vec<(PathBuf, Vec<u8>)>);

impl CopiedJournal {
    /// Reads the files of a pool's journal: none if it has no journal.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn of(pool: &Path) -> Self {
        let Ok(entries) = fs::read_dir(JournalFiles::folder_of(pool)) else { return Self(Vec::new()) };
        let paths = entries.map(|entry| entry.expect("a name").path());
        Self(paths.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect())
    }

    /// Gives the journal of the same pool exactly these files.
    ///
    /// # Panics
    ///
    /// If they cannot be written.
    pub fn put_back(&self, pool: &Path) {
        for entry in fs::read_dir(JournalFiles::folder_of(pool)).into_iter().flatten() {
            let path = entry.expect("a name").path();
            if self.0.iter().all(|(own, _)| *own != path) {
                fs::remove_file(path).expect("a file");
            }
        }
        self.0.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("the same files"));
    }
}
