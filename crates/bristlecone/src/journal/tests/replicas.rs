//! Processes that write, archive, replay, consume and take over are killed again and again.
//!
//! `BRISTLECONE_KILL_ROUNDS=100000 cargo test --release -p bristlecone --lib replicas -- --nocapture` makes 100,000 kills.
//! The processes are forks of one that has no pool open, so that a kill takes some milliseconds.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bristlecone_pm::Folder;
use bristlecone_random::Generator as Random;

use super::is_thorough;
use super::standbys::{Place, options};
use crate::archive::read_catalog;
use crate::{
    Changed, Design, Durability, Error, JournalFiles, Keep, Pool, PoolOptions, RestoreTo, Restored, Standby,
};

/// Number of kills, for the process whose forks are killed.
const DRIVER: &str = "BRISTLECONE_REPLICA_DRIVER";
/// Number of keys.
const KEYS: u64 = 40;
/// Number of kills in one folder.
const KILLS_OF_A_PLACE: usize = 40;
/// Longest time that a process may take for the steps after which it is killed.
const PATIENCE: Duration = Duration::from_millis(40);

/// What a process does until it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Write,
    Archive,
    Standby,
    Consume,
    Promote,
}

const ROLES: [Role; 4] = [Role::Write, Role::Archive, Role::Standby, Role::Consume];

impl Role {
    /// Number of its steps within which it is killed: commits, copies, polls, entries.
    fn steps_of_a_life(self) -> u64 {
        match self {
            Self::Write => 300,
            Self::Consume => 100,
            Self::Archive | Self::Standby => 8,
            Self::Promote => 1,
        }
    }
}

/// Words that the processes share: the last acknowledged count, and the steps of each role.
fn shared() -> &'static [AtomicU64; 6] {
    static WORDS: OnceLock<&[AtomicU64; 6]> = OnceLock::new();
    WORDS.get_or_init(|| {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        };
        // SAFETY: it is never unmapped, and has zeros.
        unsafe { &*base.unwrap().cast() }
    })
}

fn acknowledged() -> &'static AtomicU64 {
    &shared()[0]
}

fn steps(role: Role) -> &'static AtomicU64 {
    &shared()[1 + role as usize]
}

fn small() -> PoolOptions {
    let mut options = options();
    options.journal.sizes = Some((64 << 10, 64 << 10));
    options
}

fn writer_options(place: &Path) -> PoolOptions {
    let mut options = small();
    options.journal.checkpoint_bytes = Some(128 << 10);
    match place.join("interval").exists() {
        true => options.durability(Durability::Interval(Duration::from_millis(1))),
        false => options,
    }
}

fn files(place: &Path) -> JournalFiles {
    let files = JournalFiles::open(place.join("p.journal")).unwrap();
    JournalFiles { sizes: small().journal.sizes(), ..files }
}

fn count_of(pool: &Pool) -> u64 {
    pool.tree::<u64, u64>("t").unwrap().iter().map(|item| item.unwrap().1).max().unwrap_or(0)
}

/// Writes count 1, 2, 3 … to keys in turn, alone and in batches: a state is known by its last count.
fn write(pool: &Pool, commits: u64) {
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let mut count = count_of(pool);
    for commit in 0..commits {
        if count % 5 == 3 {
            let mut batch = pool.batch();
            (1..=4).for_each(|at| _ = batch.insert(&tree, (count + at) % KEYS, count + at));
            batch.commit().unwrap();
            count += 4;
        } else {
            count += 1;
            tree.upsert(count % KEYS, count).unwrap();
        }
        acknowledged().store(count, SeqCst);
        steps(Role::Write).fetch_add(1, SeqCst);
        if commit % 8 == 0 {
            pause();
        }
    }
}

/// Leaves time to the other processes.
fn pause() {
    std::thread::sleep(Duration::from_micros(60));
}

/// Appends each count that it sees to a file, and then moves its cursor.
fn consume(place: &Path) {
    let mut changes = files(place).changes_of("c").unwrap();
    let mut to = std::fs::OpenOptions::new().create(true).append(true).open(place.join("seen")).unwrap();
    // A kill may leave a part of a line, up to the end of a page.
    let noted = std::fs::read(place.join("seen")).unwrap();
    to.set_len(noted.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1)).unwrap();
    loop {
        let Some(entry) = changes.next_within(Duration::from_secs(1)).unwrap() else { continue };
        let mut line = format!("{} {}", entry.lsn(), entry.next_lsn());
        for change in entry.changes().unwrap() {
            if let Changed::Put { value, .. } = change.unwrap().change {
                line += &format!(" {}", u64::try_from(value).unwrap());
            }
        }
        line.push('\n');
        to.write_all(line.as_bytes()).unwrap();
        steps(Role::Consume).fetch_add(1, SeqCst);
        changes.advance(entry.next_lsn()).unwrap();
    }
}

fn archive(place: &Path) {
    let mut archiver = files(place).archive(place.join("a")).unwrap();
    loop {
        archiver.copy().unwrap();
        archiver.prune(&Keep::all().bytes(256 << 10)).unwrap();
        steps(Role::Archive).fetch_add(1, SeqCst);
        pause();
    }
}

fn run(role: Role, place: &Path) {
    match role {
        Role::Write => write(&writer_options(place).open(place.join("p")).unwrap(), u64::MAX),
        Role::Consume => consume(place),
        Role::Archive => archive(place),
        Role::Standby => with_standby(place, |standby| {
            loop {
                standby.poll()?;
                steps(Role::Standby).fetch_add(1, SeqCst);
                pause();
            }
        }),
        Role::Promote => promote(place),
    }
}

/// Calls `work` with the standby. One for which the archive keeps too little, because it was behind, begins again.
fn with_standby<T>(place: &Path, mut work: impl FnMut(&mut Standby) -> crate::Result<T>) -> T {
    loop {
        let opened = small().standby(place.join("copy"), place.join("a"));
        match opened.and_then(|mut standby| work(&mut standby)) {
            Err(Error::Pruned { .. }) => remove_all(place, "copy"),
            ended => return ended.unwrap(),
        }
    }
}

/// Lets the standby take over, unless it has.
fn promote(place: &Path) {
    match small().standby(place.join("copy"), place.join("a")) {
        // Its state is removed last.
        Err(Error::Exists { .. }) => {}
        Err(Error::Invalid { what }) if what.contains("it is no standby") => {}
        Err(Error::Pruned { .. }) => {
            remove_all(place, "copy");
            promote(place);
        }
        standby => _ = standby.unwrap().promote().unwrap(),
    }
}

/// Removes a pool, and everything beside it whose name begins with its name.
fn remove_all(place: &Path, name: &str) {
    for entry in std::fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some(found) if !found.trim_start_matches('.').starts_with(name) => {}
            _ if path.is_dir() => std::fs::remove_dir_all(path).unwrap(),
            _ => std::fs::remove_file(path).unwrap(),
        }
    }
}

/// The processes, which are started again once they were killed.
struct Processes<'a> {
    place: &'a Path,
    running: BTreeMap<Role, i32>,
    kills: usize,
}

impl Processes<'_> {
    fn start(&mut self, role: Role) {
        steps(role).store(0, SeqCst);
        // SAFETY: the other thread of this process, that of the tests' harness, waits and holds no lock. The child uses
        // nothing of the parent but its memory, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            // SAFETY: it changes a setting of this process.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let ended = catch_unwind(AssertUnwindSafe(|| run(role, self.place)));
            // SAFETY: nothing of the parent's is to be ended.
            unsafe { libc::_exit(i32::from(ended.is_err())) };
        }
        self.running.insert(role, child);
    }

    /// Kills a process after some of its steps.
    fn kill_within(&mut self, role: Role, random: &mut Random) {
        let (begun, wanted) = (Instant::now(), random.below(role.steps_of_a_life()));
        while steps(role).load(SeqCst) < wanted && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
        std::thread::sleep(Duration::from_micros(random.below(200)));
        self.kill(role);
    }

    fn kill(&mut self, role: Role) {
        let child = self.running.remove(&role).unwrap();
        let mut status = 0;
        // SAFETY: a child of this process that was not waited for; the status is a valid place.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        let is_done = role == Role::Promote && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        assert!(libc::WIFSIGNALED(status) || is_done, "{role:?} ended by itself: status {status}");
        self.kills += usize::from(!is_done);
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for child in self.running.values() {
            // SAFETY: as above.
            unsafe {
                libc::kill(*child, libc::SIGKILL);
                libc::waitpid(*child, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Returns the items with the counts up to one.
fn items_at(count: u64) -> BTreeMap<u64, u64> {
    (count.saturating_sub(KEYS) + 1..=count).map(|count| (count % KEYS, count)).collect()
}

/// What the consumer has seen: each commit at least once, none out of order.
#[derive(Default)]
struct Seen {
    /// Bytes of the file that were verified.
    offset: u64,
    last_lsn: Option<u64>,
    next: u64,
    count: u64,
    /// The count at the end of each entry, by the LSN behind it.
    counts: BTreeMap<u64, u64>,
}

impl Seen {
    /// Verifies what the consumer has appended.
    fn verify(&mut self, place: &Path) {
        let Ok(mut file) = std::fs::File::open(place.join("seen")) else { return };
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.offset)).unwrap();
        file.read_to_string(&mut text).unwrap();
        // The consumer may be running.
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        self.offset += complete as u64;
        for line in text[..complete].lines() {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let (lsn, next) = (numbers[0], numbers[1]);
            // It was killed before it moved its cursor: the consumer recognizes the LSN.
            if Some(lsn) != self.last_lsn {
                self.entry(lsn, next, numbers[2..].to_vec());
            }
        }
    }

    fn entry(&mut self, lsn: u64, next: u64, mut counts: Vec<u64>) {
        assert!(lsn >= self.next, "LSN {lsn} after {}", self.next);
        // A batch is in the order of its keys.
        counts.sort_unstable();
        // A batch that a kill interrupted before it took effect: an entry with the values that its keys have.
        let repeats = counts.iter().all(|seen| *seen <= self.count);
        for seen in counts.into_iter().filter(|_| !repeats) {
            assert_eq!(seen, self.count + 1, "at LSN {lsn}");
            self.count += 1;
        }
        (self.last_lsn, self.next) = (Some(lsn), next);
        self.counts.insert(next, self.count);
    }
}

/// Counts of what was done.
#[derive(Debug, Default)]
struct Done {
    kills: usize,
    restores: usize,
    of_lsns: usize,
    standbys: usize,
    takeovers: usize,
    commits: u64,
}

/// Restores the archive, and returns the count that it has then.
fn restore(place: &Path, to: RestoreTo) -> crate::Result<(Restored, u64)> {
    let path = place.join("restored");
    let restored = small().restore(&path, place.join("a"), to)?;
    let pool = small().open(&path)?;
    let tree = pool.tree::<u64, u64>("t")?;
    assert!(tree.check().is_empty());
    let found: BTreeMap<_, _> = tree.iter().map(Result::unwrap).collect();
    let count = found.values().max().copied().unwrap_or(0);
    assert_eq!(found, items_at(count), "{to:?}");
    drop(tree);
    pool.close()?;
    remove_all(place, "restored");
    Ok((restored, count))
}

/// Restores the end of the archive, or a moment that the consumer has seen.
fn verify_restore(place: &Path, seen: &Seen, random: &mut Random, done: &mut Done) {
    let archive = Folder::open(&place.join("a")).unwrap();
    let catalog = read_catalog(&archive).unwrap();
    let first = if catalog.is_whole { 0 } else { catalog.bases[0].checkpoint.end };
    let kept: Vec<_> = seen.counts.range(first..=catalog.end).collect();
    let wanted = (!kept.is_empty() && random.below(4) > 0).then(|| kept[random.index(kept.len())]);
    let to = wanted.map_or(RestoreTo::End, |(lsn, _)| RestoreTo::Lsn(*lsn));
    let (restored, count) = match restore(place, to) {
        // The archiver has removed it meanwhile.
        Err(Error::Invalid { what }) if what.contains("begins at LSN") => {
            let now = read_catalog(&archive).unwrap();
            assert!(now.bases[0].checkpoint.end > *wanted.unwrap().0, "{what}");
            return;
        }
        restored => restored.unwrap_or_else(|error| panic!("{to:?}: {error}")),
    };
    if let Some((lsn, expected)) = wanted {
        assert_eq!((restored.lsn, count), (*lsn, *expected), "{to:?}");
        done.of_lsns += 1;
    } else if let Some(expected) = seen.counts.get(&restored.lsn) {
        assert_eq!(count, *expected, "the end at LSN {}", restored.lsn);
    }
    done.restores += 1;
}

/// Reads the standby, which no other process replays, through a follower; returns its LSN and count.
fn read_standby(place: &Path) -> (u64, u64) {
    with_standby(place, |standby| {
        let lsn = standby.poll()?.lsn;
        let follower = Pool::follow(place.join("copy"))?;
        let tree = follower.tree::<u64, u64>("t")?;
        let found: BTreeMap<_, _> = tree.iter().map(Result::unwrap).collect();
        let count = found.values().max().copied().unwrap_or(0);
        assert_eq!(found, items_at(count), "the standby at LSN {lsn}");
        Ok((lsn, count))
    })
}

fn begin(place: &Path, design: Design, interval: bool) {
    if interval {
        std::fs::write(place.join("interval"), "").unwrap();
    }
    acknowledged().store(0, SeqCst);
    let pool = writer_options(place).open(place.join("p")).unwrap();
    pool.create_cursor("c", Some(0)).unwrap();
    drop(pool.tree_options("t").design(design).create::<u64, u64>().unwrap());
    // Otherwise the archive may be empty until it is continued, and a standby has no tree.
    pool.sync().unwrap();
    files(place).archive(place.join("a")).unwrap().copy().unwrap();
    pool.close().unwrap();
}

/// Kills processes in a new folder, and compares everything that they leave.
fn run_place(place: &Path, random: &mut Random, done: &mut Done) {
    let mut processes = Processes { place, running: BTreeMap::new(), kills: 0 };
    let mut seen = Seen::default();
    ROLES.iter().for_each(|role| processes.start(*role));
    let mut last = Role::Write;
    for _ in 0..KILLS_OF_A_PLACE {
        // One of four is killed soon after it has begun.
        let role = if random.below(4) == 0 { last } else { ROLES[random.index(ROLES.len())] };
        match random.below(4) {
            0 => {
                std::thread::sleep(Duration::from_micros(random.below(3000)));
                processes.kill(role);
            }
            _ => processes.kill_within(role, random),
        }
        seen.verify(place);
        if random.below(8) == 0 {
            verify_restore(place, &seen, random, done);
        }
        if role == Role::Standby && random.below(4) == 0 {
            let (lsn, count) = read_standby(place);
            assert!(seen.counts.get(&lsn).is_none_or(|seen| *seen == count), "the standby at LSN {lsn}");
            done.standbys += 1;
        }
        processes.start(role);
        last = role;
    }
    ROLES.iter().for_each(|role| processes.kill(*role));
    seen.verify(place);
    let count = verify_end(place, &mut seen);
    verify_restore(place, &seen, random, done);
    take_over(&mut processes, count, random);
    done.kills += processes.kills;
    done.restores += 2;
    done.standbys += 1;
    done.takeovers += 1;
    done.commits += count;
}

/// Compares the pool, the whole archive, the standby and the whole stream. Returns the pool's count.
fn verify_end(place: &Path, seen: &mut Seen) -> u64 {
    let pool = writer_options(place).open(place.join("p")).unwrap();
    let count = count_of(&pool);
    let least = acknowledged().load(SeqCst);
    assert!(count >= least, "the pool has {count}, and {least} was acknowledged");
    pool.sync().unwrap();
    let mut archiver = files(place).archive(place.join("a")).unwrap();
    while archiver.copy().unwrap() {}
    let (restored, of_archive) = restore(place, RestoreTo::End).unwrap();
    assert_eq!((of_archive, read_standby(place)), (count, (restored.lsn, count)));
    // The consumer sees the rest.
    for entry in files(place).changes_of("c").unwrap() {
        let entry = entry.unwrap();
        let counts = entry.changes().unwrap().filter_map(|change| match change.unwrap().change {
            Changed::Put { value, .. } => Some(u64::try_from(value).unwrap()),
            _ => None,
        });
        if Some(entry.lsn()) != seen.last_lsn {
            seen.entry(entry.lsn(), entry.next_lsn(), counts.collect());
        }
    }
    assert_eq!((seen.next, seen.count), (restored.lsn, count), "the end of the stream");
    // Left as after a kill: it is the old writer from now on.
    pool.simulate_crash();
    count
}

/// Lets the standby take over while it is killed, and continues the archive with it.
fn take_over(processes: &mut Processes<'_>, count: u64, random: &mut Random) {
    let place = processes.place;
    for _ in 0..4 {
        processes.start(Role::Promote);
        std::thread::sleep(Duration::from_micros(random.below(6000)));
        processes.kill(Role::Promote);
    }
    promote(place);
    let refused = files(place).archive(place.join("a")).unwrap_err();
    assert!(matches!(refused, Error::Fenced { timeline: 1.., .. }), "{refused}");
    let new = small().open(place.join("copy")).unwrap();
    assert_eq!(count_of(&new), count, "the new writer");
    write(&new, 20);
    let mut archiver = new.archive(place.join("a")).unwrap();
    while archiver.copy().unwrap() {}
    let last = count_of(&new);
    assert!(last >= count + 20);
    assert_eq!(restore(place, RestoreTo::End).unwrap().1, last);
    new.close().unwrap();
}

/// Kills forks of this process.
fn drive(kills: usize) {
    let seed = std::env::var("BRISTLECONE_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |seed| seed.parse().expect("BRISTLECONE_SEED is a number"),
    );
    println!("BRISTLECONE_SEED={seed}");
    let (mut random, mut done, begun) = (Random::new(seed), Done::default(), Instant::now());
    for at in 0.. {
        let place = Place::new();
        let path = place.path("");
        let design = Design::ALL[at % Design::ALL.len()];
        begin(&path, design, at / Design::ALL.len() % 2 == 1);
        let ended = catch_unwind(AssertUnwindSafe(|| run_place(&path, &mut random, &mut done)));
        if let Err(panic) = ended {
            eprintln!("in {design} after {done:?}; what is left is in {}", path.display());
            std::mem::forget(place);
            std::panic::resume_unwind(panic);
        }
        if done.kills >= kills || at % 50 == 49 {
            println!("{done:?} in {:?}", begun.elapsed());
        }
        if done.kills >= kills {
            break;
        }
    }
}

#[test]
fn kills_of_writer_archiver_standby_and_consumer_lose_and_repeat_nothing() {
    if let Ok(kills) = std::env::var(DRIVER) {
        return drive(kills.parse().unwrap());
    }
    let of_level = if is_thorough() { 3000 } else { 450 };
    let kills = std::env::var("BRISTLECONE_KILL_ROUNDS").map_or(of_level, |kills| kills.parse().unwrap());
    // A process of its own, since children of one whose threads are busy may find locks that no thread releases.
    let mut driver = Command::new(std::env::current_exe().unwrap());
    driver.args(["--exact", "--nocapture", "--test-threads", "1"]);
    driver.arg(
        "journal::tests::replicas::kills_of_writer_archiver_standby_and_consumer_lose_and_repeat_nothing",
    );
    let ended = driver.env(DRIVER, kills.to_string()).status().unwrap();
    assert!(ended.success(), "{ended}");
}
