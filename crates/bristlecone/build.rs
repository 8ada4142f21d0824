//! Hashes the sources that determine what trees leave in shared memory: another library takes it over only if they are
//! the same. Other changes, and other versions, do not matter.

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for folder in ["src/index/designs", "src/index/parts"] {
        println!("cargo::rerun-if-changed={folder}");
        hash = sources(hash, Path::new(folder))?;
    }
    println!("cargo::rustc-env=BRISTLECONE_LAYOUT={hash}");
    Ok(())
}

/// Adds all sources of a folder, in the order of their names.
fn sources(mut hash: u64, folder: &Path) -> io::Result<u64> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        hash = if path.is_dir() { sources(hash, &path)? } else { fnv(hash, &fs::read(&path)?) };
    }
    Ok(hash)
}

/// Adds bytes to a hash (FNV-1a).
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
