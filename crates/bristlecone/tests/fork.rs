//! Children that inherit a pool: whatever a child does with its parent's handles, the pool stays the
//! parent's. Runs without the test harness, whose threads would be gone in the children.

#[path = "suite/common.rs"]
#[allow(dead_code, unused_imports, reason = "some of it is for the suite alone")]
mod common;

use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bristlecone::{Error, Pool, Result, Tree};
use common::{Beside, Plant, SHAPES, Scratch, small_baselines};

/// Seconds after which a child that hangs is ended.
const PATIENCE: u32 = 30;

/// What a test is called and does.
type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_child_that_drops_its_handles_leaves_the_pool_alone", drops),
    ("a_child_gets_an_error_for_every_operation", operations),
    ("readers_are_inherited_no_more_than_writers", readers),
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
        }
    }
}

/// A child at work.
struct Child(i32);

impl Child {
    /// Makes a child by `make`, which does `work` and ends.
    fn by(make: impl FnOnce() -> i64, work: impl FnOnce()) -> Self {
        let child = make();
        if child == 0 {
            // SAFETY: always.
            unsafe { libc::alarm(PATIENCE) };
            let done = catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: always; nothing of the parent's is run on the way out.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        assert!(child > 0, "no child");
        Self(child as i32)
    }

    fn forked(work: impl FnOnce()) -> Self {
        // SAFETY: what children do here is what is tested.
        Self::by(|| i64::from(unsafe { libc::fork() }), work)
    }

    /// Waits for the end, which has to be a good one.
    fn finish(self) {
        let mut status = 0;
        // SAFETY: the status is a live value.
        let ended = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!((ended, status), (self.0, 0), "the child failed, or hung");
    }
}

fn child(work: impl FnOnce()) {
    Child::forked(work).finish();
}

/// Everything that trees are made of here.
fn plants() -> impl Iterator<Item = Box<dyn Sower>> {
    let shapes = SHAPES.iter().map(|&shape| Box::new(shape) as Box<dyn Sower>);
    shapes.chain(small_baselines().map(|beside: Beside| Box::new(beside) as Box<dyn Sower>))
}

/// A [`Plant`] with words and, if it can hold them, texts.
trait Sower {
    fn words(&self, pool: &Pool) -> Tree<u64, u64>;
    fn texts(&self, pool: &Pool) -> Option<Tree<&'static str, &'static [u8]>>;
}

impl<P: Plant> Sower for P {
    fn words(&self, pool: &Pool) -> Tree<u64, u64> {
        self.create(pool, "words").or_else(|_| self.open(pool, "words")).unwrap()
    }

    fn texts(&self, pool: &Pool) -> Option<Tree<&'static str, &'static [u8]>> {
        self.create(pool, "texts").or_else(|_| self.open(pool, "texts")).ok()
    }
}

fn text(key: u64) -> String {
    format!("the text of key {key}")
}

struct Planted {
    pool: Pool,
    words: Tree<u64, u64>,
    texts: Option<Tree<&'static str, &'static [u8]>>,
}

impl Planted {
    fn in_(pool: Pool, sower: &dyn Sower) -> Self {
        Self { words: sower.words(&pool), texts: sower.texts(&pool), pool }
    }

    fn fill(&self, keys: std::ops::Range<u64>) {
        for key in keys {
            self.words.insert(key, key + 1).unwrap();
            if let Some(texts) = &self.texts {
                texts.insert(&text(key), text(key + 1).as_bytes()).unwrap();
            }
        }
    }

    fn verify(&self, keys: u64) {
        assert_eq!(self.words.len(), keys);
        assert!(self.words.iter().eq((0..keys).map(|key| (key, key + 1))));
        assert!(self.words.check().is_empty() && self.pool.check().is_empty());
        if let Some(texts) = &self.texts {
            assert_eq!(texts.len(), keys);
            assert!((0..keys).all(|key| texts.get(&text(key)) == Some(text(key + 1).into_bytes())));
            assert!(texts.check().is_empty());
        }
    }
}

fn is_in_use(opened: Result<Pool>, by: u32) {
    assert!(matches!(&opened, Err(Error::InUse { pid: Some(pid) }) if *pid == by), "{opened:?}");
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
        // Another process would be let in, or find the mark of a pool that was closed.
        child(|| is_in_use(scratch.try_open(), here));
        let copy = Scratch::new();
        std::fs::copy(&scratch.0, &copy.0).unwrap();
        assert!(!copy.open().info().was_clean);
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

/// Whether the error says where the pool is and which process has it.
fn is_forked<T>(answer: Result<T>, path: &Path, opener: u32) -> bool {
    let Err(error) = answer else { return false };
    let said = error.to_string();
    matches!(error, Error::Forked { .. })
        && said.contains(path.to_str().unwrap())
        && said.contains(&format!("process {opener}"))
        && said.contains("open it again")
}

/// Whether `ask` panics, with an error that says the same.
fn panics<T>(path: &Path, ask: impl FnOnce() -> T) -> bool {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let asked = catch_unwind(AssertUnwindSafe(ask));
    std::panic::set_hook(hook);
    let Err(panic) = asked else { return false };
    let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    said.contains(path.to_str().unwrap()) && said.contains("open it again")
}

/// Asks a tree and its pool for everything, in a process that is not its opener.
fn ask_all(planted: &Planted, path: &Path, opener: u32) {
    let Planted { pool, words, texts } = planted;
    let forked = |answer: Result<()>| assert!(is_forked(answer, path, opener));
    forked(words.insert(7, 7).map(drop));
    forked(words.upsert(7, 7));
    forked(words.try_insert(7000, 7).map_err(Error::from));
    forked(words.update(7, 7).map(drop));
    forked(words.remove(7).map(drop));
    forked(words.compare_and_swap(7, Some(8), None).map_err(Error::from));
    forked(words.compare_and_swap(7, None, None).map_err(Error::from));
    forked(words.compare_and_swap(7, Some(8), Some(9)).map_err(Error::from));
    forked(pool.tree::<u64, u64>("words").map(drop));
    forked(pool.tree::<u64, u64>("new").map(drop));
    forked(pool.tree_options("new").create::<u64, u64>().map(drop));
    forked(pool.drop_tree("words"));
    forked(pool.trees().map(drop));
    forked(pool.prefault(4 << 20));
    forked(pool.check_tree("words").map(drop));
    forked(words.try_get(7).map(drop));
    let mut checked = words.try_range(3..9);
    forked(checked.next_back().unwrap().map(drop));
    assert!(checked.next().is_none());
    forked(words.try_range(3..9).next().unwrap().map(drop));
    forked(pool.clone().close().map_err(Error::from));
    forked(pool.rename_tree("words", "others"));
    forked(pool.clear_tree("words"));
    if let Some(texts) = texts {
        forked(texts.insert("x", b"x").map(drop));
        forked(texts.remove("x").map(drop));
        assert!(panics(path, || texts.get("x")));
    }
    assert!(panics(path, || words.get(7)));
    assert!(panics(path, || words.get_with(7, |_| ())));
    assert!(panics(path, || words.contains_key(7)));
    assert!(panics(path, || words.iter().next()));
    assert!(panics(path, || words.range(3..9).next_back()));
    assert!(panics(path, || words.first_key_value()));
    assert!(panics(path, || words.last_key_value()));
    assert!(panics(path, || words.len()));
    assert!(panics(path, || words.is_empty()));
    assert!(panics(path, || words.stats()));
    assert!(panics(path, || pool.info()));
    for findings in [words.check(), pool.check()] {
        assert!(findings[0].what.contains("open it again"), "{findings:?}");
    }
    pool.clone().simulate_crash();
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
            // Its own look at the pool, beside its parent's.
            Planted::in_(open().unwrap(), &*sower).verify(100);
            drop(planted);
            is_in_use(scratch.try_open(), here);
        });
        is_in_use(scratch.try_open(), here);
        planted.unwrap().verify(100);
    }
}

fn iterators() {
    for sower in plants() {
        let scratch = Scratch::new();
        let planted = Planted::in_(scratch.open(), &*sower);
        planted.fill(0..500);
        let mut items = planted.words.iter();
        assert_eq!(items.next(), Some((0, 1)));
        child(|| {
            let mut given = vec![0];
            assert!(panics(&scratch.0, || given.extend(items.by_ref().map(|(key, _)| key))));
            assert!(given.iter().copied().eq(0..given.len() as u64) && given.len() < 500);
        });
        assert_eq!(planted.words.iter().count(), 500);
    }
}

fn mappings() {
    let scratch = Scratch::new();
    let writer = scratch.open();
    // By inode: a file that got its name later is mapped under none.
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
    let planted = Planted::in_(scratch.open(), &SHAPES[0]);
    planted.fill(0..100);
    let here = std::process::id();
    // No handler that anybody registered for `fork` is called.
    // SAFETY: without a stack and flags this is a `fork`.
    let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let running = Child::by(clone, || {
        assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
        assert!(is_forked(planted.pool.clone().close().map_err(Error::from), &scratch.0, here));
        assert!(panics(&scratch.0, || planted.words.get(1)));
    });
    running.finish();
    planted.verify(100);
}

fn grandchildren() {
    let scratch = Scratch::new();
    let (first, second) = (Scratch::new(), Scratch::new());
    let planted = Planted::in_(scratch.open(), &SHAPES[0]);
    planted.fill(0..100);
    let here = std::process::id();
    child(|| {
        child(|| assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here)));
        let own = Planted::in_(first.open(), &SHAPES[0]);
        own.fill(0..100);
        let child_id = std::process::id();
        child(|| {
            assert!(is_forked(planted.words.insert(1, 1), &scratch.0, here));
            assert!(is_forked(own.words.insert(1, 1), &first.0, child_id));
            let grandchilds = Planted::in_(second.open(), &SHAPES[0]);
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

/// Tells one process how far another one is.
struct Pipe([i32; 2]);

impl Pipe {
    fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: room for both ends.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        Self(ends)
    }

    fn ring(&self) {
        // SAFETY: one live byte.
        assert_eq!(unsafe { libc::write(self.0[1], b"!".as_ptr().cast(), 1) }, 1);
    }

    /// Waits until another process rings; fails if all that could have ended.
    fn wait(&mut self) {
        // SAFETY: this process's own end, which it does not need.
        unsafe { libc::close(std::mem::replace(&mut self.0[1], -1)) };
        let mut byte = 0_u8;
        // SAFETY: room for one byte.
        assert_eq!(unsafe { libc::read(self.0[0], (&raw mut byte).cast(), 1) }, 1, "the other one failed");
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for end in self.0.into_iter().filter(|&end| end >= 0) {
            // SAFETY: this value's own.
            unsafe { libc::close(end) };
        }
    }
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
            // The drop gives back neither the new lock nor the new mapping.
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
                // No process gave the lock back, so the daemon holds it as long as it has the file.
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
            assert!(tree.iter().eq(keys.map(|key| (key, key + 1))));
        };
        all(&planted.words);
        drop(planted);
        all(&sower.words(&scratch.open()));
    }
}

fn own_pool() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    for sower in plants() {
        let _ = (std::fs::remove_file(&scratch.0), std::fs::remove_file(&other.0));
        let planted = Planted::in_(scratch.open(), &*sower);
        planted.fill(0..300);
        child(|| {
            let own = Planted::in_(other.open(), &*sower);
            std::thread::scope(|scope| {
                scope.spawn(|| own.fill(0..300));
                scope.spawn(|| own.words.get(7));
            });
            own.verify(300);
            own.pool.check();
        });
        Planted::in_(other.open(), &*sower).verify(300);
        planted.verify(300);
    }
}
