//! Processes that write, archive, replay and consume are killed again and again.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bristlecone_random::Generator as Random;

use super::standbys::{Place, options};
use crate::{Changed, Design, Durability, JournalFiles, Keep, Pool, RestoreTo, Standby};

/// Role, folder and design for a process that is killed.
const CHILD: &str = "BRISTLECONE_REPLICA_CHILD";
/// Number of keys.
const KEYS: u64 = 40;
/// Number of kills, if not the usual one.
const KILLS: &str = "BRISTLECONE_KILLS";

fn writer_options() -> crate::PoolOptions {
    let mut options = options().durability(Durability::Interval(Duration::from_millis(1)));
    options.journal.checkpoint_bytes = Some(1 << 20);
    options.journal.sizes = Some((16 << 20, 256 << 10));
    options
}

fn files(place: &Path) -> JournalFiles {
    let files = JournalFiles::open(place.join("p.journal")).unwrap();
    JournalFiles { sizes: writer_options().journal.sizes(), ..files }
}

/// Writes count 1, 2, 3 … to keys in turn, alone and in batches: a state is known by its last count.
fn write(place: &Path, design: Design) {
    let pool = writer_options().open(place.join("p")).unwrap();
    let tree = pool
        .tree::<u64, u64>("t")
        .or_else(|_| pool.tree_options("t").design(design).create::<u64, u64>())
        .unwrap();
    let mut count = tree.iter().map(|item| item.unwrap().1).max().unwrap_or(0);
    loop {
        if count % 5 == 3 {
            let mut batch = pool.batch();
            (1..=4).for_each(|at| _ = batch.insert(&tree, (count + at) % KEYS, count + at));
            batch.commit().unwrap();
            count += 4;
        } else {
            count += 1;
            tree.upsert(count % KEYS, count).unwrap();
        }
        if count % 64 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Appends each count that it sees to a file, and then moves its cursor.
fn consume(place: &Path) {
    let mut changes = loop {
        match files(place).changes_of("c") {
            Ok(changes) => break changes,
            // The lock of a killed process outlives it for a moment.
            Err(crate::Error::InUse { .. }) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    };
    let mut to = std::fs::OpenOptions::new().create(true).append(true).open(place.join("seen")).unwrap();
    loop {
        let Some(entry) = changes.next_within(Duration::from_secs(1)).unwrap() else { continue };
        let mut line = format!("{} {}", entry.lsn(), entry.next_lsn());
        for change in entry.changes().unwrap() {
            if let Changed::Put { value, .. } = change.unwrap().change {
                line += &format!(" {}", u64::try_from(value).unwrap());
            }
        }
        line.push('\n');
        // One write: a kill leaves all of the line or nothing.
        to.write_all(line.as_bytes()).unwrap();
        changes.advance(entry.next_lsn()).unwrap();
    }
}

#[test]
fn child() {
    let Ok(setting) = std::env::var(CHILD) else { return };
    let [role, place, design]: [&str; 3] = setting.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let place = Path::new(place);
    match role {
        "write" => write(place, design.parse().unwrap()),
        "consume" => consume(place),
        "archive" => {
            let mut archiver = files(place).archive(place.join("a")).unwrap();
            archiver.follow(Duration::from_millis(2), &Keep::all().bytes(24 << 20)).unwrap();
        }
        _ => with_standby(place, |standby| standby.run(Duration::from_millis(2))),
    }
}

/// Calls `work` with the standby. One for which the archive keeps too little, because it was behind, begins again.
fn with_standby(place: &Path, mut work: impl FnMut(&mut Standby) -> crate::Result<()>) {
    loop {
        match Standby::open(place.join("copy"), place.join("a")).and_then(|mut standby| work(&mut standby)) {
            Err(crate::Error::Pruned { .. }) => remove_standby(place),
            ended => return ended.unwrap(),
        }
    }
}

fn remove_standby(place: &Path) {
    for entry in std::fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if !name.starts_with("copy") => {}
            _ if path.is_dir() => std::fs::remove_dir_all(path).unwrap(),
            _ => std::fs::remove_file(path).unwrap(),
        }
    }
}

/// The processes, which are started again once they were killed.
struct Processes<'a> {
    place: &'a Place,
    design: Design,
    running: BTreeMap<&'static str, Child>,
}

const ROLES: [&str; 4] = ["write", "archive", "standby", "consume"];

impl Processes<'_> {
    fn start(&mut self, role: &'static str) {
        let setting = format!("{role} {} {}", self.place.path("").display(), self.design.name());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "journal::tests::replicas::child"])
            .env(CHILD, setting)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        self.running.insert(role, child);
    }

    fn kill(&mut self, role: &'static str) {
        let mut child = self.running.remove(role).unwrap();
        if let Some(ended) = child.try_wait().unwrap() {
            panic!("{role} ended by itself: {ended}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the items with the counts up to one.
fn items_at(count: u64) -> BTreeMap<u64, u64> {
    (count.saturating_sub(KEYS) + 1..=count).map(|count| (count % KEYS, count)).collect()
}

/// Verifies what the consumer has seen: each commit at least once, none out of order. Returns the last count.
fn verify_seen(place: &Place) -> u64 {
    let text = std::fs::read_to_string(place.path("seen")).unwrap_or_default();
    let (mut last_lsn, mut next, mut count) = (0, 0, 0);
    for line in text.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let (lsn, mut counts) = (numbers[0], numbers[2..].to_vec());
        // A batch is in the order of its keys.
        counts.sort_unstable();
        if lsn == last_lsn && lsn != 0 {
            // It was killed before it moved its cursor: the consumer recognizes the LSN.
            continue;
        }
        assert!(lsn >= next, "LSN {lsn} after {next}");
        // A batch that a kill interrupted before it took effect: an entry with the values that its keys have.
        let repeats = counts.iter().all(|seen| *seen <= count);
        for seen in counts.into_iter().filter(|_| !repeats) {
            assert_eq!(seen, count + 1, "at LSN {lsn}");
            count += 1;
        }
        (last_lsn, next) = (lsn, numbers[1]);
    }
    count
}

fn verify_restore(place: &Place, to: RestoreTo, name: &str) -> u64 {
    let path = place.path(name);
    let done = Pool::options().recovery_threads(1).restore(&path, place.path("a"), to);
    done.unwrap_or_else(|error| panic!("{to:?}: {error}"));
    let pool = Pool::open(&path).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert!(tree.check().is_empty());
    let found: BTreeMap<_, _> = tree.iter().map(Result::unwrap).collect();
    let count = found.values().max().copied().unwrap_or(0);
    assert_eq!(found, items_at(count), "{to:?}");
    drop(tree);
    pool.close().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_dir_all(place.path(&format!("{name}.journal"))).unwrap();
    count
}

#[test]
fn kills_of_writer_archiver_standby_and_consumer_lose_and_repeat_nothing() {
    let mut random = Random::new(11);
    let of_level = if std::env::var_os("BRISTLECONE_TEST_LEVEL").is_some() { 300 } else { 40 };
    let kills = std::env::var(KILLS).map_or(of_level, |kills| kills.parse().unwrap());
    let (mut done, mut restores) = (0, 0);
    'all: for round in 0.. {
        let place = Place::new();
        let design = Design::ALL[round % Design::ALL.len()];
        {
            let pool = writer_options().open(place.path("p")).unwrap();
            pool.create_cursor("c", Some(0)).unwrap();
            drop(pool.tree_options("t").design(design).create::<u64, u64>().unwrap());
            pool.archive(place.path("a")).unwrap().copy().unwrap();
            pool.close().unwrap();
        }
        let mut processes = Processes { place: &place, design, running: BTreeMap::new() };
        ROLES.iter().for_each(|role| processes.start(role));
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(20 + random.below(120)));
            let role = ROLES[random.index(ROLES.len())];
            processes.kill(role);
            done += 1;
            if random.below(8) == 0 {
                verify_restore(&place, RestoreTo::End, "restored");
                restores += 1;
            }
            if role == "consume" {
                verify_seen(&place);
            }
            processes.start(role);
        }
        // A moment that the archive has, exactly.
        ROLES.iter().for_each(|role| processes.kill(role));
        done += ROLES.len();
        let pool = writer_options().open(place.path("p")).unwrap();
        let count = pool.tree::<u64, u64>("t").unwrap().iter().map(|item| item.unwrap().1).max().unwrap_or(0);
        let mut archiver = pool.archive(place.path("a")).unwrap();
        while archiver.copy().unwrap() {}
        assert_eq!(verify_restore(&place, RestoreTo::End, "restored"), count);
        let begun = Instant::now();
        with_standby(&place.path(""), |standby| {
            standby.poll()?;
            let follower = Pool::follow(place.path("copy")).unwrap();
            let found: BTreeMap<_, _> =
                follower.tree::<u64, u64>("t").unwrap().iter().map(Result::unwrap).collect();
            assert_eq!(found, items_at(count), "the standby, after {:?}", begun.elapsed());
            Ok(())
        });
        // The consumer sees the rest.
        let seen = verify_seen(&place);
        let mut rest = Vec::new();
        for entry in pool.changes_of("c").unwrap() {
            for change in entry.unwrap().changes().unwrap() {
                if let Changed::Put { value, .. } = change.unwrap().change {
                    rest.push(u64::try_from(value).unwrap());
                }
            }
        }
        rest.sort_unstable();
        // Interrupted batches repeat values, and so may the last commit that was seen.
        rest.dedup();
        rest.retain(|count| *count > seen);
        let is_all = rest.iter().copied().eq(seen + 1..=count);
        assert!(is_all, "behind {seen}, up to {count}: {} counts", rest.len());
        restores += 1;
        if done >= kills {
            break 'all;
        }
    }
    println!("{done} kills, {restores} restores");
}
