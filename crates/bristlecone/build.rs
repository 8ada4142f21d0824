//! Numbers the build: what trees leave in shared memory is taken over by a library of the same sources alone.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let mut number = fnv(0xcbf2_9ce4_8422_2325, env!("CARGO_PKG_VERSION").as_bytes());
    // The second one is there in the workspace; of a package its version says what it is.
    for folder in ["src", "../bristlecone-pm/src"] {
        if Path::new(folder).is_dir() {
            println!("cargo::rerun-if-changed={folder}");
            number = sources(number, Path::new(folder))?;
        }
    }
    println!("cargo::rustc-env=BRISTLECONE_BUILD={number}");
    Ok(())
}

/// Adds all sources of a folder, in the order of their names.
fn sources(mut number: u64, folder: &Path) -> io::Result<u64> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        number = if path.is_dir() { sources(number, &path)? } else { fnv(number, &fs::read(&path)?) };
    }
    Ok(number)
}

/// Adds bytes to a hash (FNV-1a).
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
