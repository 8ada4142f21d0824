//! Measures how long a pool takes to answer again after its process was killed, with the index that the process left in
//! shared memory, and without it:
//!
//! ```text
//! cargo run --release --example restart_time -- [ITEMS] [words|texts] [DESIGN]
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bristlecone::{Design, KeepIndex, Pool, Tree};

/// Number of lookups of which the time is taken together.
const LOOKUPS: u64 = 20_000;

type Words = Tree<u64, u64>;
type Texts = Tree<&'static str, u64>;

/// Keys in random order.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text(number: u64) -> String {
    format!("user:{:020}", key(number))
}

fn named(keep: &str) -> KeepIndex {
    match keep {
        "kept" => KeepIndex::AfterKill,
        "auto" => KeepIndex::Auto,
        _ => KeepIndex::Never,
    }
}

/// Fills a pool, and waits until its input ends.
fn fill(path: &str, items: u64, texts: bool, design: Design, keep: &str) -> Result<(), Box<dyn Error>> {
    let pool = Pool::options().create_new(true).keep_index(named(keep)).open(path)?;
    let options = pool.tree_options("t").design(design);
    // A tree keeps its index over a kill while it has a handle.
    let (of_texts, of_words): (Option<Texts>, Option<Words>) =
        if texts { (Some(options.create()?), None) } else { (None, Some(options.create()?)) };
    for number in 0..items {
        of_texts.iter().try_for_each(|tree| tree.upsert(&text(number), number))?;
        of_words.iter().try_for_each(|tree| tree.upsert(key(number), number))?;
    }
    println!("filled");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Fills a pool in another process, kills that, and opens the pool.
fn measure(items: u64, texts: bool, design: Design, keep: &str) -> Result<(), Box<dyn Error>> {
    let path = format!("/dev/shm/bristlecone-restart-{}.pool", std::process::id());
    let kind = if texts { "texts" } else { "words" };
    let mut child = Command::new(std::env::current_exe()?)
        .args([&items.to_string(), kind, &design.to_string(), &path, keep])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let begun = Instant::now();
    child.kill()?;
    child.wait()?;
    let is_gone = begun.elapsed();
    let pool = Pool::options().keep_index(named(keep)).open(&path)?;
    let pool_opened = begun.elapsed();
    let lookup: Box<dyn Fn(u64) -> bristlecone::Result<Option<u64>>> = if texts {
        let tree: Texts = pool.tree("t")?;
        Box::new(move |number| tree.get(&text(number)))
    } else {
        let tree: Words = pool.tree("t")?;
        Box::new(move |number| tree.get(key(number)))
    };
    let tree_opened = begun.elapsed();
    assert_eq!(lookup(items / 2)?, Some(items / 2));
    let answered = begun.elapsed();
    let is_kept = pool.info().index_was_kept;
    // Full speed is the median of later rounds.
    let mut rounds = Vec::new();
    for round in 0..200 {
        let start = Instant::now();
        for at in 0..LOOKUPS {
            let number = key(round * LOOKUPS + at) % items;
            assert_eq!(lookup(number)?, Some(number));
        }
        rounds.push((begun.elapsed(), start.elapsed()));
    }
    let mut times: Vec<Duration> = rounds[100..].iter().map(|round| round.1).collect();
    times.sort_unstable();
    let steady = times[times.len() / 2];
    let full = rounds.iter().find(|round| round.1 <= steady * 11 / 10).map_or(rounds[199].0, |round| round.0);
    println!(
        "{design}, {items} {kind}, index {}: since the kill: process gone {is_gone:.1?}, pool open {pool_opened:.1?}, \
         tree open {tree_opened:.1?}, first answer {answered:.1?}, full speed {full:.0?} ({:.0?} a lookup)",
        if is_kept { "kept" } else { "rebuilt" },
        steady / LOOKUPS as u32,
    );
    drop(lookup);
    pool.close()?;
    std::fs::remove_file(&path)?;
    // Removes the index of the pool that is gone.
    drop(Pool::options().temporary()?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let items = argument(0).map_or(Ok(100_000), str::parse)?;
    let texts = argument(1) == Some("texts");
    let design = argument(2).map_or(Ok(Design::default()), str::parse)?;
    if let Some(path) = argument(3) {
        return fill(path, items, texts, design, argument(4).unwrap_or("rebuilt"));
    }
    for keep in ["kept", "rebuilt"] {
        measure(items, texts, design, keep)?;
    }
    Ok(())
}
