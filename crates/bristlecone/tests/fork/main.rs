//! Children that inherit a pool: a child's use of its parent's handles must not affect the parent's
//! pool. Runs without the test harness, whose threads would not exist in the children.

#[path = "../suite/common.rs"]
#[allow(dead_code, unused_imports, reason = "some of it is for the suite alone")]
mod common;

mod child;
mod fixtures;
mod fork_errors;
mod journals;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bristlecone::{Design, Error, KeepIndex, Pool, Tree};

use child::{Child, Pipe, child};
use common::{CONFIGURATIONS, DOMAIN, Scratch, remove_pool, suites};
use fixtures::{Planted, has_journal, plants};
use fork_errors::{ask_all, is_forked, is_in_use};

/// Name and function of a test.
type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_child_that_drops_its_handles_leaves_the_pool_alone", drops),
    ("a_child_gets_an_error_for_every_operation", operations),
    ("a_child_of_a_pool_with_durable_reads_gets_an_error", journals::durable_reads),
    ("a_child_makes_no_checkpoint", journals::due_checkpoints),
    ("readers_are_inherited_no_more_than_writers", readers),
    ("a_child_born_amid_lookups_of_a_follower_gets_an_error", followers),
    ("an_iterator_gives_what_it_has_in_hand_and_then_panics", iterators),
    ("a_child_has_no_byte_of_the_pool", mappings),
    ("a_program_that_a_child_runs_has_no_file_of_the_pool", programs),
    ("a_child_made_by_clone_is_noticed", cloned),
    ("a_grandchild_is_a_stranger_to_both", grandchildren),
    ("a_child_opens_the_pool_once_its_parent_has_closed_it", opens_itself),
    ("a_daemon_opens_the_pool_that_its_parent_left_behind", daemons),
    ("a_child_born_amid_writes_and_collections_ends", amid_writes),
    ("a_child_works_on_a_pool_of_its_own", own_pool),
];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, test) in TESTS {
        if asked.is_empty() || asked.iter().any(|word| name.contains(word.as_str())) {
            test();
            println!("test {name} ... ok");
            for domain in suites::FORK.other_domains() {
                DOMAIN.set(Some(domain));
                test();
                println!("test {name} in {domain} ... ok");
            }
            DOMAIN.set(None);
        }
    }
}

/// Returns the bytes of an open pool, at a time when no background thread of a tree writes.
fn at_rest(scratch: &Scratch) -> Vec<u8> {
    let read = || std::fs::read(&scratch.0).unwrap();
    loop {
        let bytes = read();
        if bytes == read() {
            return bytes;
        }
    }
}

fn drops() {
    for sower in plants() {
        let scratch = Scratch::new();
        let planted = Planted::in_(scratch.open(), &*sower);
        planted.fill(0..200);
        let here = std::process::id();
        let (pool, again) = (planted.pool.clone(), planted.words.clone());
        let parts = (planted, pool, again);
        let mut parts = Some(parts);
        child(|| {
            drop(parts.take());
            is_in_use(scratch.try_open(), here);
        });
        let (planted, ..) = parts.unwrap();
        // Otherwise another process could open the pool, or find the mark of a closed pool.
        child(|| is_in_use(scratch.try_open(), here));
        // A copy of a pool with a journal does not open without it.
        if !has_journal() {
            let copy = Scratch::new();
            std::fs::write(&copy.0, at_rest(&scratch)).unwrap();
            assert!(!copy.open().info().was_clean);
        }
        planted.fill(200..400);
        planted.verify(400);
        let Planted { pool, words, texts } = planted;
        drop((words, texts));
        pool.close().unwrap();
        let pool = scratch.open();
        assert!(pool.info().was_clean);
        Planted::in_(pool, &*sower).verify(400);
    }
}

fn operations() {
    for sower in plants() {
        let scratch = Scratch::new();
        let planted = Planted::in_(scratch.open(), &*sower);
        planted.fill(0..100);
        let here = std::process::id();
        child(|| ask_all(&planted, &scratch.0, here));
        planted.verify(100);
        planted.fill(100..200);
        planted.verify(200);
        drop(planted);
        let pool = scratch.open();
        assert!(pool.info().was_clean);
        Planted::in_(pool, &*sower).verify(200);
    }
}

fn readers() {
    for sower in plants() {
        let scratch = Scratch::new();
        Planted::in_(scratch.open(), &*sower).fill(0..100);
        let open = || Pool::options().read_only(true).open(&scratch.0);
        let planted = Planted::in_(open().unwrap(), &*sower);
        let here = std::process::id();
        let mut planted = Some(planted);
        child(|| {
            let planted = planted.take().unwrap();
            ask_all(&planted, &scratch.0, here);
            // The child's own handle to the pool, beside its parent's.
            Planted::in_(open().unwrap(), &*sower).verify(100);
            drop(planted);
            is_in_use(scratch.try_open(), here);
        });
        is_in_use(scratch.try_open(), here);
        planted.unwrap().verify(100);
    }
}

/// Signals the end of the test to threads, also after a panic.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A child must not wait for anything that a thread of the follower had begun at the fork: the threads' first lookups, too,
/// so each round has a follower of its own.
fn followers() {
    for &design in Design::ALL {
        let (scratch, here) = (Scratch::new(), std::process::id());
        let pool = scratch.options().keep_index(KeepIndex::Always).open(&scratch.0).unwrap();
        let create = || pool.tree_options("words").design(design).open::<u64, u64>();
        let mut tree = Some(pool.tree_options("words").design(design).create::<u64, u64>().unwrap());
        (0..1000).for_each(|key| assert_eq!(tree.as_ref().unwrap().insert(key, key + 1).unwrap(), None));
        let seen = AtomicU64::new(0);
        for round in 0..40 {
            let follower = Pool::follow(&scratch.0).unwrap();
            let followed = Planted { words: follower.tree("words").unwrap(), texts: None, pool: follower };
            let end = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _end = EndOnDrop(&end);
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !end.load(Relaxed) {
                            // Returns an error while the tree is not open.
                            if let Ok(found) = followed.words.get(7) {
                                assert_eq!(found, Some(8));
                                seen.fetch_add(1, Relaxed);
                            }
                        }
                    });
                }
                // Every other time its readers attach again.
                if round % 2 == 0 {
                    drop(tree.take());
                    tree = Some(create().unwrap());
                }
                std::thread::sleep(Duration::from_micros(50 * (round / 2)));
                child(|| ask_all(&followed, &scratch.0, here));
            });
            assert_eq!(followed.words.get(7).unwrap(), Some(8));
        }
        assert!(seen.into_inner() > 0 && tree.is_some(), "{design}: nothing was read");
    }
}

fn iterators() {
    for sower in plants() {
        let scratch = Scratch::new();
        let planted = Planted::in_(scratch.open(), &*sower);
        planted.fill(0..500);
        let mut items = planted.words.iter();
        assert_eq!(items.next().unwrap().unwrap(), (0, 1));
        child(|| {
            let mut given = vec![0];
            let here = std::os::unix::process::parent_id();
            given.extend(items.by_ref().map_while(|item| match item {
                Ok((key, _)) => Some(key),
                Err(error) => {
                    assert!(is_forked(Err::<(), _>(error), &scratch.0, here));
                    None
                }
            }));
            assert!(items.next().is_none());
            assert!(given.iter().copied().eq(0..given.len() as u64) && given.len() < 500);
        });
        assert_eq!(planted.words.iter().map(Result::unwrap).count(), 500);
    }
}

fn mappings() {
    let scratch = Scratch::new();
    let writer = scratch.open();
    // By inode: a file that was renamed later is not listed by that name.
    let lines = |path: &Path| {
        let inode = std::fs::metadata(path).unwrap().ino().to_string();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
    };
    assert!(lines(&scratch.0) > 0);
    child(|| assert_eq!(lines(&scratch.0), 0));
    drop(writer);
    let _reader = Pool::options().read_only(true).open(&scratch.0).unwrap();
    assert!(lines(&scratch.0) > 0);
    child(|| assert_eq!(lines(&scratch.0), 0));
}

fn programs() {
    let scratch = Scratch::new();
    let _pool = scratch.open();
    let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("->") && !listed.contains(scratch.0.to_str().unwrap()), "{listed}");
}

fn cloned() {
    let scratch = Scratch::new();
    let planted = Planted::in_(scratch.open(), &CONFIGURATIONS[0]);
    planted.fill(0..100);
    let here = std::process::id();
    // No handler that was registered for `fork` is called. SAFETY: without a stack and flags this is
    // a `fork`.
    let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let running = Child::by(clone, || {
        assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
        assert!(is_forked(planted.pool.clone().close().map_err(Error::from), &scratch.0, here));
        assert!(is_forked(planted.words.get(1).map(drop), &scratch.0, here));
    });
    running.finish();
    planted.verify(100);
}

fn grandchildren() {
    let scratch = Scratch::new();
    let (first, second) = (Scratch::new(), Scratch::new());
    let planted = Planted::in_(scratch.open(), &CONFIGURATIONS[0]);
    planted.fill(0..100);
    let here = std::process::id();
    child(|| {
        child(|| assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here)));
        let own = Planted::in_(first.open(), &CONFIGURATIONS[0]);
        own.fill(0..100);
        let child_id = std::process::id();
        child(|| {
            assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
            assert!(is_forked(own.words.insert(1, 1), &first.0, child_id));
            let grandchilds = Planted::in_(second.open(), &CONFIGURATIONS[0]);
            grandchilds.fill(0..100);
            assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
            assert!(is_forked(own.words.insert(1, 1), &first.0, child_id));
            grandchilds.verify(100);
        });
        own.verify(100);
        assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
    });
    planted.verify(100);
}

fn opens_itself() {
    for sower in plants() {
        let scratch = Scratch::new();
        let mut planted = Some(Planted::in_(scratch.open(), &*sower));
        planted.as_ref().unwrap().fill(0..100);
        let here = std::process::id();
        let (mut asked, mut closed) = (Pipe::new(), Pipe::new());
        let running = Child::forked(|| {
            let inherited = planted.take().unwrap();
            is_in_use(scratch.try_open(), here);
            asked.ring();
            closed.wait();
            let own = Planted::in_(scratch.open(), &*sower);
            own.verify(100);
            assert!(is_forked(inherited.words.insert(1, 1), &scratch.0, here));
            // The drop releases neither the new lock nor the new mapping.
            drop(inherited);
            own.fill(100..200);
            let this = std::process::id();
            child(|| is_in_use(scratch.try_open(), this));
            own.verify(200);
            let Planted { pool, words, texts } = own;
            drop((words, texts));
            pool.close().unwrap();
        });
        asked.wait();
        drop(planted.take());
        closed.ring();
        running.finish();
        Planted::in_(scratch.open(), &*sower).verify(200);
    }
}

fn daemons() {
    for sower in plants() {
        let scratch = Scratch::new();
        let (mut gone, mut done) = (Pipe::new(), Pipe::new());
        child(|| {
            let mut planted = Some(Planted::in_(scratch.open(), &*sower));
            planted.as_ref().unwrap().fill(0..100);
            let here = std::process::id();
            Child::forked(|| {
                gone.wait();
                let planted = planted.take().unwrap();
                assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
                // No process released the lock, so the daemon holds it while it has the file open.
                drop(planted);
                let own = Planted::in_(scratch.open(), &*sower);
                assert!(!own.pool.info().was_clean);
                own.verify(100);
                own.fill(100..150);
                drop(own);
                done.ring();
            });
            // SAFETY: always; nothing is dropped.
            unsafe { libc::_exit(0) };
        });
        gone.ring();
        done.wait();
        Planted::in_(scratch.open(), &*sower).verify(150);
    }
}

fn amid_writes() {
    for sower in plants() {
        let scratch = Scratch::new();
        let planted = Planted::in_(scratch.open(), &*sower);
        let (end, here) = (AtomicBool::new(false), std::process::id());
        let written = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let (planted, end) = (&planted, &end);
                    scope.spawn(move || {
                        let mut keys = writer * 1_000_000..writer * 1_000_000 + 20_000;
                        while !end.load(Relaxed)
                            && let Some(key) = keys.next()
                        {
                            planted.fill(key..key + 1);
                            if key % 3 == 0 {
                                planted.words.remove(key).unwrap();
                                planted.words.insert(key, key + 1).unwrap();
                            }
                        }
                        keys.start
                    })
                })
                .collect();
            for round in 0..10 {
                std::thread::sleep(Duration::from_micros(300 * round));
                let (pool, words) = (planted.pool.clone(), planted.words.clone());
                let mut handles = Some((pool, words, planted.texts.clone()));
                child(|| {
                    let (pool, words, texts) = handles.take().unwrap();
                    assert!(is_forked(words.insert(1, 1), &scratch.0, here));
                    drop((texts, words, pool));
                    std::thread::scope(|scope| {
                        scope.spawn(|| is_in_use(scratch.try_open(), here)).join().unwrap()
                    });
                });
            }
            end.store(true, Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<u64>>()
        });
        let all = |tree: &Tree<u64, u64>| {
            let keys = (0..written[0]).chain(1_000_000..written[1]);
            assert!(tree.iter().map(Result::unwrap).eq(keys.map(|key| (key, key + 1))));
        };
        all(&planted.words);
        drop(planted);
        all(&sower.words(&scratch.open()));
    }
}

fn own_pool() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    for sower in plants() {
        [&scratch, &other].into_iter().for_each(|pool| remove_pool(&pool.0));
        let planted = Planted::in_(scratch.open(), &*sower);
        planted.fill(0..300);
        child(|| {
            let own = Planted::in_(other.open(), &*sower);
            std::thread::scope(|scope| {
                scope.spawn(|| own.fill(0..300));
                scope.spawn(|| own.words.get(7).unwrap());
            });
            own.verify(300);
            own.pool.check();
        });
        Planted::in_(other.open(), &*sower).verify(300);
        planted.verify(300);
    }
}
