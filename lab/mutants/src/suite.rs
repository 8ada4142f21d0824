//! Runs tests individually: lists them, records the mutants they reach, and measures their time.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::compile::Program;

/// Minimum interval of checks of a running test.
const POLL: Duration = Duration::from_millis(10);
/// Minimum number of checks while its duration doubles.
const POLLS: u32 = 20;

/// A test that takes more memory than this is ended, and counts as failed.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// A test may last this many times the processor time that it may take.
const IDLE: u32 = 8;

/// A test.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Test {
    pub package: String,
    pub target: String,
    pub name: String,
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {}", self.package, self.target, self.name)
    }
}

/// Results of a test without a mutant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Known {
    pub test: Test,
    pub passed: bool,
    /// Whether it was ended early.
    #[serde(default)]
    pub cut_short: bool,
    /// Processor time.
    pub millis: u64,
    /// Mutants that it reaches.
    pub reached: HashSet<u32>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Passed,
    Failed,
    TimedOut,
    Interrupted,
}

/// Returns the tests of a program.
pub fn tests_of(program: &Program) -> Result<Vec<Test>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", program.path.display());
    let output = Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.folder)
        .output()
        .map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let test = |name: &str| Test {
        package: program.package.clone(),
        target: program.target.clone(),
        name: name.to_owned(),
    };
    Ok(names.map(test).collect())
}

/// Runs one test, with a mutant on or `record`, for a limited processor time, because others may use the machine.
/// Returns how it ended and the time it took. Reached mutants are appended to the file `reached`.
pub fn run(
    program: &Program,
    test: &Test,
    state: &str,
    reached: &Path,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(Ended, Duration), String> {
    let child = Command::new(&program.path)
        .args(["--exact", &test.name])
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("BRISTLECONE_MUTANT", state)
        // A sample of the configurations would detect less.
        .env(
            "BRISTLECONE_TEST_LEVEL",
            std::env::var("BRISTLECONE_EFFORT").unwrap_or_else(|_| "ci".to_owned()),
        )
        .env("BRISTLECONE_MUTANTS_REACHED", reached)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{}: {error}", program.path.display()))?;
    let id = child.id();
    let ran = wait(child, limit, stop)?;
    remove_leftovers(id);
    Ok(ran)
}

fn wait(mut child: Child, limit: Duration, stop: &AtomicBool) -> Result<(Ended, Duration), String> {
    let (begun, mut took) = (Instant::now(), Duration::ZERO);
    let group = Pid::from_child(&child);
    // Processes that the test started end with it.
    let end = |child: &mut Child| {
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    };
    loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                end(&mut child);
                let passed = status.success() && status.signal().is_none();
                return Ok((if passed { Ended::Passed } else { Ended::Failed }, took));
            }
            Err(error) => {
                end(&mut child);
                return Err(format!("waiting for a test: {error}"));
            }
        }
        if stop.load(Relaxed) {
            end(&mut child);
            return Ok((Ended::Interrupted, took));
        }
        took = processor_time(child.id()).max(took);
        // A test that waits forever takes no processor time.
        if took > limit || begun.elapsed() > limit * IDLE {
            end(&mut child);
            return Ok((Ended::TimedOut, took));
        }
        if resident_bytes(child.id()) > MEMORY_BYTES_MAX {
            end(&mut child);
            return Ok((Ended::Failed, took));
        }
        // Long tests are checked less often.
        std::thread::sleep(POLL.max(begun.elapsed() / POLLS));
    }
}

/// Returns the processor time of a group of processes, and of their ended children: a test may run in a process that
/// another one waits for.
fn processor_time(group: u32) -> Duration {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ticks = processes.filter_map(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        // The name, which may contain any characters, ends with the last bracket. It is followed by the state, the
        // parent, the group; user and system time, also of children, are fields 14 to 17.
        let fields: Vec<&str> = stat.rsplit(") ").next()?.split_whitespace().collect();
        let is_of_group = fields.get(2)?.parse() == Ok(group);
        is_of_group.then(|| {
            fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
        })
    });
    Duration::from_secs_f64(ticks.sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the private memory of a process, without files in memory.
fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Removes pools that an ended process left in shared memory.
fn remove_leftovers(process: u32) {
    let part = format!("-{process}-");
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("bristlecone-") && name.contains(&part) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Reads the reached mutants, and removes the file.
pub fn take_reached(path: &Path) -> HashSet<u32> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// Runs `work` on every item, in `jobs` threads; ends early if `stop` is set. Results are unordered.
pub fn in_parallel<T: Sync>(items: &[T], jobs: usize, stop: &AtomicBool, work: &(dyn Fn(&T) + Sync)) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Relaxed)
                    && let Some(item) = items.get(next.fetch_add(1, Relaxed))
                {
                    work(item);
                }
            });
        }
    });
}

/// Results of all tests without mutants, kept in a file until their programs change.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// Programs, and the times of their builds.
    programs: BTreeMap<String, u128>,
    pub known: Vec<Known>,
}

impl Baseline {
    /// Reads the known results of these programs, unless they were rebuilt since.
    pub fn load(path: &Path, programs: &[Program]) -> Self {
        let built = programs.iter().map(|program| (program.to_string(), built(program)));
        let programs: BTreeMap<String, u128> = built.collect();
        let read = || serde_json::from_reader(std::io::BufReader::new(File::open(path).ok()?)).ok();
        let mut read: Self = read().unwrap_or_default();
        let old = std::mem::replace(&mut read.programs, programs);
        let programs = &read.programs;
        read.known.retain(|known| {
            let name = format!("{}/{}", known.test.package, known.test.target);
            old.contains_key(&name) && old.get(&name) == programs.get(&name)
        });
        read
    }

    /// Writes it.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        crate::compile::write(path, text)
    }
}

fn built(program: &Program) -> u128 {
    let modified = std::fs::metadata(&program.path).and_then(|data| data.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos())
}
