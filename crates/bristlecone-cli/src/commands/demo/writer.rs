//! The child process that indexes, and killing it.
//!
//! Entries go to the child's standard input, each as a length, the path, size and time. The child
//! answers each with its number in four bytes, once it is durable in the tree.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use bristlecone::{Domain, Pool};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use clap::Args;
use indicatif::ProgressBar;

use super::walk::Entry;
use super::{Files, TREE};

/// Index entries from standard input and acknowledge each on standard output
#[derive(Args, Debug)]
pub struct DemoWriter {
    pool: PathBuf,
    #[arg(long)]
    domain: Domain,
}

impl DemoWriter {
    pub fn run(&self) -> Outcome {
        let pool = Pool::options().domain(self.domain).open(&self.pool)?;
        let tree: Files = pool.tree_options(TREE).open()?;
        let mut input = BufReader::with_capacity(1 << 16, std::io::stdin());
        let mut acknowledge = std::io::stdout();
        let mut number = 0u32;
        while let Some(entry) = receive(&mut input).map_err(|error| Failure::io("reading entries", &error))? {
            interrupt::check("the demo is not finished")?;
            tree.insert(&entry.path, &entry.value())?;
            acknowledge.write_all(&number.to_le_bytes())?;
            acknowledge.flush()?;
            number += 1;
        }
        Ok(())
    }
}

fn send(entry: &Entry, to: &mut impl Write) -> std::io::Result<()> {
    to.write_all(&(entry.path.len() as u32).to_le_bytes())?;
    to.write_all(&entry.path)?;
    to.write_all(&entry.bytes.to_le_bytes())?;
    to.write_all(&entry.modified.to_le_bytes())
}

fn receive(from: &mut impl Read) -> std::io::Result<Option<Entry>> {
    let mut word = [0; 4];
    match from.read_exact(&mut word) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut path = vec![0; u32::from_le_bytes(word) as usize];
    from.read_exact(&mut path)?;
    let (mut bytes, mut modified) = ([0; 8], [0; 8]);
    from.read_exact(&mut bytes)?;
    from.read_exact(&mut modified)?;
    Ok(Some(Entry { path, bytes: u64::from_le_bytes(bytes), modified: i64::from_le_bytes(modified) }))
}

/// A child that was killed.
pub struct Killed {
    pub pid: u32,
    pub acknowledged: usize,
}

/// A child that is killed when this is dropped.
struct Mortal(Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets a child index `entries`, and kills it between the first and the last third.
pub fn index_and_kill(pool: &Path, domain: Domain, entries: &[Entry], bar: &ProgressBar) -> Outcome<Killed> {
    let said = |error| Failure::io("starting the indexing process", &error);
    let program = std::env::current_exe().map_err(said)?;
    let child = Command::new(program)
        .arg("demo-writer")
        .arg(pool)
        .args(["--domain", &domain.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(said)?;
    let mut child = Mortal(child);
    let pid = child.0.id();
    let (Some(input), Some(output)) = (child.0.stdin.take(), child.0.stdout.take()) else {
        return Err(Failure::new(Exit::Failed, "the indexing process has no pipes"));
    };
    let last = entries.len() - 1;
    let target = (last / 3 + random_below(last / 3 + 1)).clamp(1, last);
    let acknowledged = std::thread::scope(|scope| {
        // The last entry is held back and the pipe kept open, so that the child cannot end by
        // itself.
        let feeder = scope.spawn(|| feed(input, &entries[..last]));
        let acknowledged = listen(output, target, bar, &mut child);
        drop(child);
        // Feeding a killed child fails, as expected.
        let _ = feeder.join();
        acknowledged
    })?;
    bar.finish_and_clear();
    Ok(Killed { pid, acknowledged })
}

/// Feeds entries; returns the pipe, so that it stays open.
fn feed(input: ChildStdin, entries: &[Entry]) -> Option<ChildStdin> {
    let mut input = BufWriter::with_capacity(1 << 16, input);
    for entry in entries {
        send(entry, &mut input).ok()?;
    }
    input.into_inner().ok()
}

/// Counts acknowledgements, kills the child at the `target`th, and continues until the pipe is
/// empty.
fn listen(output: impl Read, target: usize, bar: &ProgressBar, child: &mut Mortal) -> Outcome<usize> {
    let mut output = BufReader::with_capacity(1 << 16, output);
    let mut acknowledged = 0;
    let mut number = [0; 4];
    loop {
        match output.read_exact(&mut number) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(Failure::io("listening to the indexing process", &error)),
        }
        if u32::from_le_bytes(number) as usize != acknowledged {
            return Err(Failure::new(Exit::Failed, "the indexing process acknowledged out of order"));
        }
        acknowledged += 1;
        bar.inc(1);
        if acknowledged == target {
            child.0.kill().map_err(|error| Failure::io("killing the indexing process", &error))?;
        }
    }
    interrupt::check("the demo is not finished")?;
    if acknowledged < target {
        let said = format!("the indexing process ended by itself after {acknowledged} entries");
        return Err(Failure::new(Exit::Failed, said));
    }
    Ok(acknowledged)
}

fn random_below(bound: usize) -> usize {
    (RandomState::new().hash_one(bound) % bound as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_cross_the_pipe_unchanged() {
        let entries = [
            Entry { path: b"/usr/\xff\n".to_vec(), bytes: u64::MAX, modified: -1 },
            Entry { path: b"x".to_vec(), bytes: 0, modified: i64::MAX },
        ];
        let mut pipe = Vec::new();
        for entry in &entries {
            send(entry, &mut pipe).unwrap();
        }
        let mut pipe = pipe.as_slice();
        for entry in &entries {
            assert_eq!(receive(&mut pipe).unwrap().as_ref(), Some(entry));
        }
        assert_eq!(receive(&mut pipe).unwrap(), None);
    }
}
