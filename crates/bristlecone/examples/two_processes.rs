//! One process writes and is killed while writing; another one finds everything that was acknowledged.
//!
//! ```sh
//! cargo run --release --example two_processes
//! ```

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bristlecone::{Error, Pool, Result};

/// Passes the path of the pool to the writer; a process with this variable is the writer.
const POOL: &str = "BRISTLECONE_EXAMPLE_POOL";
/// Number of acknowledged writes after which the writer is killed.
const ENOUGH: u64 = 500;

/// Runs the example.
pub fn main() -> Result<()> {
    run(&[])
}

/// Runs the example; the writer is this program, started again with these arguments.
pub fn run(writer_arguments: &[&str]) -> Result<()> {
    if let Some(path) = std::env::var_os(POOL) {
        return write(Path::new(&path));
    }
    let path = PathBuf::from(format!("/dev/shm/bristlecone-two-{}.pool", std::process::id()));
    let told = kill_amid_writes(&path, writer_arguments);
    let told = told.map_err(|error| Error::io("running the writer", error))?;

    // The lock of a killed process is released with it, and opening recovers the pool.
    let pool = Pool::options().open(&path)?;
    println!("closed in good order: {}", pool.info().was_clean);
    let squares = pool.tree::<u64, u64>("squares")?;
    for number in 0..=told {
        assert_eq!(squares.get(number)?, Some(number * number), "an acknowledged write is gone");
    }
    // The write in progress when the process was killed was applied atomically or not at all.
    for item in &squares {
        let (number, square) = item?;
        assert_eq!(square, number * number);
    }
    println!("{told} writes were acknowledged before the kill, and {} are there", squares.len()?);
    assert!(squares.check().is_empty());

    drop(squares);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| Error::io("removing the pool", error))
}

/// Writes until it is killed; reports each completed write.
fn write(path: &Path) -> Result<()> {
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(path)?;
    let squares = pool.tree::<u64, u64>("squares")?;
    let mut out = std::io::stdout().lock();
    for number in 0_u64.. {
        squares.insert(number, number.wrapping_mul(number))?;
        writeln!(out, "done {number}").map_err(|error| Error::io("telling the reader", error))?;
    }
    Ok(())
}

/// Starts the writer, kills it, and returns the last number that it reported.
fn kill_amid_writes(path: &Path, arguments: &[&str]) -> std::io::Result<u64> {
    let program = std::env::current_exe()?;
    let mut writer = Command::new(program).args(arguments).env(POOL, path).stdout(Stdio::piped()).spawn()?;
    let said = writer.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    let mut last = 0;
    for line in said {
        // A line truncated by the kill has no number, or one that was completed before.
        let Some(number) = line?.strip_prefix("done ").and_then(|number| number.parse().ok()) else {
            continue;
        };
        last = last.max(number);
        if number == ENOUGH {
            writer.kill()?;
        }
    }
    writer.wait()?;
    Ok(last)
}
