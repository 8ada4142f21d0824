//! Counters that several threads increment atomically.
//!
//! ```sh
//! cargo run --release --example counters
//! ```

use std::path::PathBuf;

use bristlecone::{Pool, Result, Tree};

/// Adds to a counter that starts at zero; returns the new value. Each addition is applied exactly once under
/// concurrency, and atomically across crashes.
fn add(counters: &Tree<&'static str, u64>, name: &str, amount: u64) -> Result<u64> {
    counters.entry(name).and_modify(|count| *count += amount).or_insert(amount)
}

/// Removes a counter and returns its last value, so that every step is counted exactly once.
fn take(counters: &Tree<&'static str, u64>, name: &str) -> Result<u64> {
    Ok(counters.remove(name)?.unwrap_or(0))
}

/// Runs the example.
pub fn main() -> Result<()> {
    const THREADS: u64 = 4;
    const STEPS: u64 = 2_000;
    let path = PathBuf::from(format!("/dev/shm/bristlecone-counters-{}.pool", std::process::id()));
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    let counters = pool.tree::<&str, u64>("counters")?;
    let taken = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let counters = &counters;
                scope.spawn(move || -> Result<u64> {
                    let mut taken = 0;
                    for step in 0..STEPS {
                        add(counters, "all", 1)?;
                        add(counters, if thread % 2 == 0 { "even" } else { "odd" }, 1)?;
                        if step % 100 == 0 {
                            taken += take(counters, "all")?;
                        }
                    }
                    Ok(taken)
                })
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<u64>>| worker.join().expect("no panic");
        workers.into_iter().map(join).sum::<Result<u64>>()
    })?;
    println!("{taken} steps were taken away while threads counted on");
    for item in &counters {
        let (name, count) = item?;
        println!("{name}: {count}");
    }
    assert_eq!(taken + counters.get("all")?.unwrap_or(0), THREADS * STEPS);
    assert_eq!(counters.get("even")?, Some(THREADS / 2 * STEPS));

    drop(counters);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| bristlecone::Error::io("removing the pool", error))
}
