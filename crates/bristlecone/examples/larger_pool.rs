//! A full pool: raise its maximum, or replace it by a copy.
//!
//! ```sh
//! cargo run --release --example larger_pool
//! ```

use std::path::PathBuf;

use bristlecone::{BackupOptions, Design, Error, Pool, Result, Tree};

/// Inserts keys from `first` on until the pool is full; returns the first key that does not fit.
fn fill(tree: &Tree<u64, u64>, first: u64) -> Result<u64> {
    for key in first.. {
        match tree.insert(key, key * 3) {
            Ok(_) => {}
            Err(error) if error.is_no_room() => return Ok(key),
            Err(error) => return Err(error),
        }
    }
    Ok(u64::MAX)
}

/// Runs the example.
pub fn main() -> Result<()> {
    let path = PathBuf::from(format!("/dev/shm/bristlecone-small-{}.pool", std::process::id()));
    let pool = Pool::options().max_bytes(4 << 20).create_new(true).open(&path)?;
    let tree = pool.tree::<u64, u64>("numbers")?;
    let few = fill(&tree, 0)?;
    println!("a pool of {} MiB is full with {few} items", pool.info().max_bytes >> 20);
    drop(tree);
    pool.close()?;

    // Reopening with a larger maximum suffices, up to about 490 GiB.
    let pool = Pool::options().max_bytes(8 << 20).open(&path)?;
    let tree = pool.tree::<u64, u64>("numbers")?;
    let more = fill(&tree, few)?;
    println!("and with {} MiB, it is full with {more}", pool.info().max_bytes >> 20);
    assert!(more > few);
    drop(tree);
    pool.close()?;
    let too_large = Pool::options().max_bytes(1 << 46).open(&path);
    assert!(matches!(too_large, Err(Error::MaximumFixed { .. })));

    // Copy the pool if its maximum cannot be raised, or to change a design. The new pool is renamed into place
    // when it is complete; until then the old one is unchanged, so a crash on the way leaves the old one.
    let new_path = path.with_extension("new");
    let old = Pool::options().read_only(true).open(&path)?;
    let options = BackupOptions::new().max_bytes(64 << 20).tree("numbers", Design::NbTree, &[]);
    let copied = old.backup(&new_path, options)?;
    println!("{:?} moved to a pool of {} MiB", copied.trees, copied.file_bytes >> 20);
    assert_eq!(copied.trees, [("numbers".to_owned(), more)]);
    old.close()?;
    std::fs::rename(&new_path, &path).map_err(|error| Error::io("renaming the new pool", error))?;

    let pool = Pool::options().open(&path)?;
    assert_eq!(pool.tree::<u64, u64>("numbers")?.len()?, more);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| Error::io("removing the pool", error))
}
