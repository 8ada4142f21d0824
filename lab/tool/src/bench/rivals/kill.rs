//! Measures how long a store takes to open after its process was killed: another process loads it, continues to
//! write, and is killed during a write.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bristlecone::Domain;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::scratch::Scratch;
use clap::Args;

use super::{Class, Rival, Store, When, open_at};
use crate::bench::data::{BenchKey, BenchValue, Shape};
use crate::bench::stream::{Keys, Order};
use crate::bench::subject::Subject;

/// Loads a store and writes to it until killed.
#[derive(Args, Debug)]
pub struct RivalLoad {
    #[arg(long)]
    store: Rival,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    domain: Domain,
    #[arg(long)]
    max_bytes: u64,
    #[arg(long)]
    records: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_parser = Shape::of_keys)]
    key: Shape,
    #[arg(long, value_parser = Shape::of_values)]
    value: Shape,
}

impl RivalLoad {
    /// Loads, reports it, and continues.
    pub fn run(&self) -> Outcome {
        match (self.key, self.value) {
            (Shape::U64, Shape::U64) => self.load::<u64, u64>(),
            (Shape::U64, _) => self.load::<u64, &'static [u8]>(),
            (_, Shape::U64) => self.load::<&'static [u8], u64>(),
            _ => self.load::<&'static [u8], &'static [u8]>(),
        }
    }

    fn load<K: BenchKey, V: BenchValue>(&self) -> Outcome {
        let store = open_at(self.store, &self.folder, Class::of(self.domain), self.max_bytes)?;
        let keys = Keys { seed: self.seed, order: Order::Scattered, count: self.records };
        let (mut key, mut value) = (self.key.buffer(), self.value.buffer());
        let mut entry = |at: u64, version| {
            let id = keys.id(at);
            let key = K::bytes(K::make(id, &mut key), <[u8]>::to_vec);
            (key, V::bytes(V::make(id, version, &mut value), <[u8]>::to_vec))
        };
        let refused = |error| Failure::new(Exit::Failed, format!("{}: {error}", self.store.name()));
        store.load(&mut (0..self.records).map(|at| entry(at, 0))).map_err(refused)?;
        let mut out = std::io::stdout();
        out.write_all(b"loaded\n").and_then(|()| out.flush())?;
        // A parent that exits closes its pipe, and this ends after a while in any case.
        let started = Instant::now();
        for version in 1.. {
            if interrupt::asked() || started.elapsed() > Duration::from_secs(60) {
                break;
            }
            let (key, value) = entry(version % self.records, version);
            store.write(&key, &value, When::Always).map_err(refused)?;
        }
        Ok(())
    }
}

/// The load of a store whose process is killed.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub domain: Domain,
    pub max_bytes: u64,
    pub records: u64,
    pub seed: u64,
    pub key: Shape,
    pub value: Shape,
}

/// Makes another process load a store and kills it, opens the store, and returns how long that took. Every key must
/// exist, with a value of its own.
pub fn reopen<K: BenchKey, V: BenchValue>(rival: Rival, load: &Load, scratch: &Scratch) -> Outcome<Duration> {
    let folder = scratch.path().with_extension(format!("{}.killed", rival.name()));
    std::fs::create_dir(&folder).map_err(|error| Failure::io(folder.display(), &error))?;
    let mut store = Store { name: rival.name(), inner: None, folder };
    load_and_kill(rival, load, &store)?;
    let started = Instant::now();
    store.inner = Some(open_at(rival, &store.folder, Class::of(load.domain), load.max_bytes)?);
    let took = started.elapsed();
    let (mut key, value) = (load.key.buffer(), load.value.buffer());
    let mut right = 0;
    let found = Subject::<K, V>::scan(&store, K::make(0, &mut key), usize::MAX, |key, got| {
        right += u64::from(V::is_of(got, K::id(key), &value));
    })?;
    let records = load.records;
    if right == records && found as u64 == records {
        return Ok(took);
    }
    let what = format!("{}: {right} of {records} keys are there after its process was killed", rival.name());
    Err(Failure::new(Exit::Failed, what))
}

fn load_and_kill(rival: Rival, load: &Load, store: &Store) -> Outcome {
    let io = |error: std::io::Error| {
        Failure::io(format!("the process that {} is killed in", rival.name()), &error)
    };
    let mut child = Command::new(std::env::current_exe().map_err(io)?)
        .args(["rival-load", "--store", rival.name(), "--domain", &load.domain.to_string()])
        .args(["--key", &load.key.to_string(), "--value", &load.value.to_string()])
        .args(["--records", &load.records.to_string(), "--seed", &load.seed.to_string()])
        .args(["--max-bytes", &load.max_bytes.to_string()])
        .arg("--folder")
        .arg(&store.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut line = String::new();
    let read = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    // During its writes.
    std::thread::sleep(Duration::from_millis(30));
    let still_there = child.try_wait().map_err(io)?.is_none();
    child.kill().and_then(|()| child.wait()).map_err(io)?;
    read.transpose().map_err(io)?;
    // A signal of the terminal reached both processes.
    interrupt::check("the bench is not finished")?;
    if line != "loaded\n" || !still_there {
        let what = format!("{}: the process that was to be killed ended before", rival.name());
        return Err(Failure::new(Exit::Failed, what));
    }
    Ok(())
}
