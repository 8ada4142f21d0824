//! A process is killed again and again, and sometimes the machine seems to have been started again meanwhile.
//!
//! Kills are distributed to designs and durabilities:
//! `BRISTLECONE_KILL_ROUNDS=100000 cargo test --release -p bristlecone --lib kills_lose_nothing -- --nocapture`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bristlecone_pm::{Folder, Result, SharedWords, Storage, StoredFile};
use bristlecone_random::Generator as Random;

use super::{Scratch, is_thorough};
use crate::{Design, Domain, Durability, Pool, PoolOptions};

/// Path, durability, design and kernel for the process that is killed.
pub const CHILD: &str = "BRISTLECONE_JOURNAL_CHILD";
/// Number of acknowledgements after which it kills itself.
pub const STOP: &str = "BRISTLECONE_JOURNAL_STOP";

/// A folder under another kernel.
struct Rebooted(Folder, u128);

impl Storage for Rebooted {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn StoredFile>> {
        self.0.create(name, bytes)
    }
    fn open(&self, name: &str) -> Result<Option<Arc<dyn StoredFile>>> {
        self.0.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        self.0.rename_new(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn share(&self, name: &str, bytes: u64) -> Result<Arc<dyn SharedWords>> {
        self.0.share(name, bytes)
    }
    fn shared(&self, name: &str, bytes: u64) -> Result<Option<Arc<dyn SharedWords>>> {
        self.0.shared(name, bytes)
    }
    fn boot(&self) -> Option<u128> {
        Some(self.1)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

pub fn options(path: &Path, durability: Durability, boot: u128) -> PoolOptions {
    let mut options = Pool::options().max_bytes(64 << 20).chunk_bytes(4096).create(true).recovery_threads(1);
    options = options.domain(Domain::Journal).durability(durability);
    let folder = path.with_extension("journal");
    options.journal.storage = Some(Arc::new(Rebooted(Folder::create(&folder).unwrap(), boot)));
    options.journal.sizes = Some((64 << 10, 256 << 10));
    options.journal.checkpoint_bytes = Some(1 << 20);
    options
}

/// The process that is killed: it counts up in several keys, and prints each count that was acknowledged.
#[test]
fn child() {
    let Ok(setting) = std::env::var(CHILD) else { return };
    let [path, durability, design, boot]: [&str; 4] =
        setting.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let durability = match durability {
        "commit" => Durability::Commit,
        "interval" => Durability::Interval(Duration::from_millis(2)),
        _ => Durability::Memory,
    };
    let pool = options(Path::new(path), durability, boot.parse().unwrap()).open(path).unwrap();
    let design: Design = design.parse().unwrap();
    let tree =
        pool.tree::<u64, u64>("t").or_else(|_| pool.tree_options("t").design(design).create()).unwrap();
    let stop: Option<usize> = std::env::var(STOP).ok().map(|stop| stop.parse().unwrap());
    let acknowledged = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (pool, tree, acknowledged) = (&pool, &tree, &acknowledged);
            scope.spawn(move || {
                let mut count = tree.get(thread).unwrap().unwrap_or(0);
                loop {
                    count += 1;
                    if count % 4 == 0 {
                        let mut batch = pool.batch();
                        (0..4).for_each(|at| _ = batch.insert(tree, thread + at * 10, count));
                        batch.commit().unwrap();
                    } else {
                        tree.upsert(thread, count).unwrap();
                    }
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "#{thread} {count}").and_then(|()| out.flush()).unwrap();
                    if stop.is_some_and(|stop| acknowledged.fetch_add(1, Relaxed) + 1 >= stop) {
                        std::process::abort();
                    }
                }
            });
        }
    });
}

const DURABILITIES: [&str; 3] = ["commit", "interval", "memory"];

/// Starts the child, and kills it after a number of acknowledgements; notes the last one of each thread in `least`.
fn kill_one(setting: &str, acknowledgements: usize, least: &mut [u64; 3]) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "journal::tests::kills::child"])
        .env(CHILD, setting)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut note = |line: String| {
        let count = line.split_once('#').and_then(|(_, rest)| rest.split_once(' '));
        if let Some((thread, count)) = count
            && let Ok(count) = count.parse::<u64>()
        {
            let thread: usize = thread.parse().unwrap();
            least[thread] = least[thread].max(count);
        }
    };
    for line in said.by_ref().take(acknowledgements) {
        note(line.unwrap());
    }
    child.kill().unwrap();
    said.map_while(std::io::Result::ok).for_each(&mut note);
    child.wait().unwrap();
}

/// Kills the writer of one pool `kills` times; after every third kill the machine seems to have been started again.
fn kill_again_and_again(design: Design, durability: &str, kills: usize, random: &mut Random) {
    let scratch = Scratch::new();
    let (mut boot, mut least) = (1, [0_u64; 3]);
    for round in 0..kills {
        let setting = format!("{} {durability} {} {boot}", scratch.0.display(), design.name());
        kill_one(&setting, 10 + random.index(400), &mut least);

        let is_reboot = round % 3 == 2;
        if is_reboot {
            boot += 1;
            scratch.scramble_unless_closed();
        }
        let when = format!("{design}, {durability}, round {round}");
        let pool = options(&scratch.0, Durability::Commit, boot).open(&scratch.0).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        assert_eq!(tree.check(), [], "{when}");
        for thread in 0..3 {
            let found = tree.get(thread).unwrap().unwrap_or(0);
            // Without commits the ring is lost with the pages.
            let is_lossy = is_reboot && durability != "commit";
            let expected = if is_lossy { 0 } else { least[thread as usize] };
            assert!(found >= expected, "{when}: {found}, but {expected} was acknowledged");
            least[thread as usize] = found;
            let of_batch: Vec<_> = (1..4).map(|at| tree.get(thread + at * 10).unwrap()).collect();
            assert!(
                of_batch.windows(2).all(|pair| pair[0] == pair[1]),
                "{when}: a batch in part: {of_batch:?}"
            );
        }
        drop(tree);
        // Not closed: each process finds a killed one.
        pool.simulate_crash();
    }
    std::fs::remove_dir_all(scratch.0.with_extension("journal")).unwrap();
}

#[test]
fn kills_lose_nothing_in_any_durability_and_a_start_of_the_machine_nothing_durable() {
    let mut random = Random::new(7);
    let of_level = if is_thorough() { 300 } else { 45 };
    let kills = std::env::var("BRISTLECONE_KILL_ROUNDS").map_or(of_level, |kills| kills.parse().unwrap());
    let of_cell = usize::div_ceil(kills, Design::ALL.len() * DURABILITIES.len());
    for design in Design::ALL {
        for durability in DURABILITIES {
            kill_again_and_again(*design, durability, of_cell, &mut random);
            println!("{design}, {durability}: {of_cell} kills");
        }
    }
}
