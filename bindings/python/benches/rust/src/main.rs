//! Loads words into a tree and reads them all, like `benches/rust.py`: prints the nanoseconds that each took.
//! `many` instead of `single` uses the multi-key calls, which the Python side uses, too.

use std::hint::black_box;
use std::time::Instant;

use bristlecone::{Pool, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, count, calls] = &arguments[..] else {
        panic!("usage: bristlecone-python-rust PATH KEYS CALLS")
    };
    let count: u64 = count.parse().expect("a number of keys");
    let many = match calls.as_str() {
        "many" => true,
        "single" => false,
        other => panic!("CALLS is `single` or `many`, not `{other}`"),
    };
    let keys: Vec<u64> = (0..count).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let items: Vec<(u64, u64)> = keys.iter().filter(|_| many).map(|&key| (key, key)).collect();
    let pool = Pool::options().max_bytes(count * 128 + (256 << 20)).create_new(true).open(path)?;
    let tree = pool.tree::<u64, u64>("t")?;
    let start = Instant::now();
    if many {
        tree.upsert_many(&items)?;
    } else {
        for &key in &keys {
            tree.upsert(key, key)?;
        }
    }
    println!("load {}", start.elapsed().as_nanos());
    let start = Instant::now();
    let values: Vec<u64> = if many {
        let mut values = Vec::with_capacity(keys.len());
        tree.get_many(&keys, &mut values)?;
        values.into_iter().map(Option::unwrap_or_default).collect()
    } else {
        keys.iter().map(|&key| Ok(tree.get(key)?.unwrap_or_default())).collect::<Result<_>>()?
    };
    println!("get {}", start.elapsed().as_nanos());
    assert!(black_box(&values) == &keys, "other values than were written");
    let start = Instant::now();
    let (mut scanned, mut values) = (Vec::new(), Vec::new());
    for item in &tree {
        let (key, value) = item?;
        scanned.push(key);
        values.push(value);
    }
    println!("scan {}", start.elapsed().as_nanos());
    assert_eq!(black_box(scanned).len(), black_box(values).len());
    Ok(())
}
