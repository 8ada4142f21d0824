//! Consumes the changes of a pool, and keeps a standby of it, while it is written: prints how many changes one consumer
//! reads in a second, and how far the standby is behind.
//!
//! `cargo run --release --example replication [SECONDS] [FOLDER]`

use std::time::{Duration, Instant};

use bristlecone::{Changed, Domain, Durability, Keep, Pool, PoolOptions, Result, Standby};

/// Number of keys.
const KEYS: u64 = 100_000;
/// Number of changes that are read.
const CHANGES: u64 = 4_000_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2);
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    run(CHANGES, Duration::from_secs(seconds), &parent)
}

/// Reads a number of changes, and keeps a standby for a time, in a new folder of `parent`.
pub fn run(changes: u64, time: Duration, parent: &std::path::Path) -> Result<()> {
    let folder = parent.join(format!("bristlecone-replication-{}", std::process::id()));
    let made = std::fs::create_dir(&folder);
    made.map_err(|error| bristlecone::Error::Io { doing: folder.display().to_string(), source: error })?;
    let options = Pool::options().domain(Domain::Journal).create(true);
    let options = options.durability(Durability::Interval(Duration::from_millis(5)));
    let done =
        read(&options, &folder.join("read"), changes).and_then(|()| replicate(&options, &folder, time));
    let _ = std::fs::remove_dir_all(&folder);
    done
}

/// Writes changes, and reads them by one consumer: as they are, and with each key and value.
fn read(options: &PoolOptions, path: &std::path::Path, all: u64) -> Result<()> {
    let pool = options.open(path)?;
    let tree = pool.tree::<u64, u64>("t")?;
    pool.create_cursor("c", None)?;
    for from in (0..all).step_by(1000) {
        let many: Vec<_> = (from..from + 1000).map(|count| (count % KEYS, count)).collect();
        tree.upsert_many(&many)?;
    }
    pool.sync()?;
    let begun = Instant::now();
    let (mut changes, mut sum) = (0_u64, 0_u64);
    for entry in pool.changes_of("c")? {
        for change in entry?.changes()? {
            if let Changed::Put { value, .. } = change?.change {
                changes += 1;
                sum = sum.wrapping_add(u64::try_from(value).unwrap_or(0));
            }
        }
    }
    assert_eq!((changes, sum), (all, (0..all).sum()));
    let rate = changes as f64 / begun.elapsed().as_secs_f64();
    println!("one consumer: {:.2} million changes a second", rate / 1e6);
    drop(tree);
    Ok(pool.close()?)
}

/// Writes the time to a key again and again, and looks how old it is in the standby.
fn replicate(options: &PoolOptions, folder: &std::path::Path, time: Duration) -> Result<()> {
    let pool = options.open(folder.join("p"))?;
    let tree = pool.tree::<u64, u64>("t")?;
    tree.insert(KEYS, 0)?;
    pool.sync()?;
    let mut archiver = pool.archive(folder.join("archive"))?;
    while archiver.copy()? {}
    let mut standby = Standby::open(folder.join("copy"), folder.join("archive"))?;
    let (stop_archiver, stop_standby, begun) = (archiver.stopper(), standby.stopper(), Instant::now());
    let now = || begun.elapsed().as_micros() as u64;
    let (mut ages, mut writes) = (Vec::new(), 0_u64);
    std::thread::scope(|scope| -> Result<()> {
        let archiving = scope.spawn(|| archiver.follow(Duration::from_millis(10), &Keep::all()));
        let replaying = scope.spawn(|| standby.run(Duration::from_millis(5)));
        let writer = scope.spawn(|| -> Result<u64> {
            let mut writes = 0;
            while begun.elapsed() < time {
                for key in 0..100 {
                    tree.upsert((writes + key) % KEYS, writes)?;
                }
                tree.upsert(KEYS, now())?;
                writes += 101;
                // A load that leaves room for the others on few cores.
                std::thread::sleep(Duration::from_micros(500));
            }
            Ok(writes)
        });
        let follower = Pool::follow(folder.join("copy"))?;
        let followed = follower.tree::<u64, u64>("t")?;
        while begun.elapsed() < time || ages.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            let seen = followed.get(KEYS)?.unwrap_or(0);
            if seen > 0 {
                ages.push(now() - seen);
            }
        }
        writes = writer.join().expect("no panic")?;
        stop_archiver.stop();
        stop_standby.stop();
        archiving.join().expect("no panic")?;
        replaying.join().expect("no panic")
    })?;
    ages.sort_unstable();
    let at = |percent: usize| ages[(ages.len() * percent / 100).min(ages.len() - 1)] as f64 / 1e3;
    let rate = writes as f64 / time.as_secs_f64();
    let (p50, p99, max) = (at(50), at(99), at(100));
    println!(
        "standby, {rate:.0} writes a second: {p50:.1} ms behind (p50), {p99:.1} ms (p99), {max:.1} ms (max)"
    );
    Ok(())
}
