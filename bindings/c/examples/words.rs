//! Puts and gets of u64 by the Rust library: the counterpart of bench/words.c. Prints nanoseconds
//! for each.

use std::time::Instant;

use bristlecone_rs::{Design, Pool, Result};

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [path, design, keys] = &given[..] else { panic!("usage: words POOL DESIGN KEYS") };
    let keys: u64 = keys.parse().expect("a number of keys");
    let pool = Pool::options().create_new(true).max_bytes(4 << 30).open(path)?;
    pool.prefault(keys * 64)?;
    let tree = pool.tree_options("words").design(design.parse::<Design>()?).create::<u64, u64>()?;

    let begun = Instant::now();
    for i in 0..keys {
        tree.upsert(i.wrapping_mul(STEP), i)?;
    }
    let put = begun.elapsed().as_nanos() as f64 / keys as f64;
    let (begun, mut sum) = (Instant::now(), 0u64);
    for i in (0..keys).rev() {
        sum = sum.wrapping_add(tree.get(i.wrapping_mul(STEP))?.expect("a key that was put"));
    }
    let get = begun.elapsed().as_nanos() as f64 / keys as f64;
    drop(tree);
    pool.close()?;
    println!("{put:.1} {get:.1} {sum}");
    Ok(())
}
