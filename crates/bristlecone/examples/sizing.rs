//! Bytes per item, by design: loads a pool with items in random order and prints `stats`.
//!
//! `docs/designs/README.md` explains the figures.
//!
//! ```sh
//! cargo run --release --example sizing -- 1000000
//! ```

use std::path::PathBuf;

use bristlecone::{Design, Error, Pool, Result, TreeStats};

/// Default number of items, if no argument is given: at this size whole chunks of 2 MiB dominate.
const ITEMS: u64 = 2_000;

/// Runs the example.
pub fn main() -> Result<()> {
    let items = std::env::args().nth(1).and_then(|argument| argument.parse().ok());
    measure(items.unwrap_or(ITEMS))
}

/// Loads `items` items into a tree of each design, and prints their space.
pub fn measure(items: u64) -> Result<()> {
    let path = PathBuf::from(format!("/dev/shm/bristlecone-sizing-{}.pool", std::process::id()));
    println!("{items} items: bytes of the pool and of DRAM for each");
    println!("{:<12} {:>18} {:>22} {:>24}", "", "u64 to u64", "16-byte str to u64", "u64 to 100 bytes");
    for &design in Design::ALL {
        let pool = Pool::options().max_bytes(4 << 30).create_new(true).open(&path)?;
        let figures =
            [words(&pool, design, items)?, texts(&pool, design, items)?, volumes(&pool, design, items)?];
        let shown = figures.map(|stats| {
            assert_eq!(stats.items, items);
            let each = |bytes: u64| bytes as f64 / items as f64;
            format!("{:.1} + {:.1}", each(stats.pm_bytes), each(stats.dram_bytes))
        });
        println!("{:<12} {:>18} {:>22} {:>24}", design.name(), shown[0], shown[1], shown[2]);
        pool.close()?;
        std::fs::remove_file(&path).map_err(|error| Error::io("removing the pool", error))?;
    }
    Ok(())
}

/// Returns distinct numbers in scrambled order.
fn keys(items: u64) -> impl Iterator<Item = u64> {
    // An odd factor permutes the numbers of 64 bits.
    (0..items).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn words(pool: &Pool, design: Design, items: u64) -> Result<TreeStats> {
    let tree = pool.tree_options("words").design(design).create::<u64, u64>()?;
    keys(items).try_for_each(|key| tree.insert(key, key).map(drop))?;
    tree.stats()
}

fn texts(pool: &Pool, design: Design, items: u64) -> Result<TreeStats> {
    let tree = pool.tree_options("texts").design(design).create::<&str, u64>()?;
    keys(items).try_for_each(|key| tree.insert(&format!("{key:016x}"), key).map(drop))?;
    tree.stats()
}

fn volumes(pool: &Pool, design: Design, items: u64) -> Result<TreeStats> {
    let tree = pool.tree_options("volumes").design(design).create::<u64, &[u8]>()?;
    keys(items).try_for_each(|key| tree.insert(key, &[key as u8; 100]).map(drop))?;
    tree.stats()
}
