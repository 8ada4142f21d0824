//! Pools without a name: they are opened by descriptors, and survive a kill as long as any process has these.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use bristlecone::{Design, Domain, Error, KeepIndex, Pool, PoolOptions, Result, Tree};
use bristlecone_matrix::process::{self, Process};
use bristlecone_pm::failpoint;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use rustix::io::Errno;

use crate::common::Scratch;

const KILL: &str = "descriptors::pool_and_index_survive_a_kill_in_every_design";
const OTHER: &str = "descriptors::a_pool_has_one_writer";
const ITEMS: u64 = 2000;

fn memfd(name: &str) -> OwnedFd {
    // A process that is started here inherits it.
    memfd_create(name, MemfdFlags::ALLOW_SEALING).unwrap()
}

fn options() -> PoolOptions {
    Pool::options().max_bytes(64 << 20).create(true).keep_index(KeepIndex::Always)
}

/// A pool with an index.
pub struct Pair(pub OwnedFd, pub OwnedFd);

impl Pair {
    /// Returns a pool with some items in a tree, which was closed.
    pub fn filled() -> Self {
        let pair = Self(memfd("pool"), memfd("index"));
        let pool = pair.open(&options()).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        (0..ITEMS).for_each(|key| tree.upsert(key, !key).unwrap());
        drop(tree);
        pool.close().unwrap();
        pair
    }

    fn open(&self, options: &PoolOptions) -> Result<Pool> {
        options.open_fd(self.0.as_fd(), Some(self.1.as_fd()))
    }

    /// Verifies that everything is there, with the index.
    pub fn verify(&self, when: &str) {
        let pool = self.open(&options()).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(pool.info().index_was_kept, "{when}");
        verify_items(&pool, when);
        pool.close().unwrap();
    }
}

pub fn verify_items(pool: &Pool, when: &str) {
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert_eq!(tree.check(), [], "{when}");
    assert!(tree.iter().map(Result::unwrap).eq((0..ITEMS).map(|key| (key, !key))), "{when}");
}

fn borrowed(number: &str) -> BorrowedFd<'static> {
    // SAFETY: the process that started this one passes this descriptor, which stays open.
    unsafe { BorrowedFd::borrow_raw(number.parse().unwrap()) }
}

/// Writes items into a pool without a name, and waits to be killed.
fn write(design: &str, pool: &str, index: &str) {
    let pool = options().open_fd(borrowed(pool), Some(borrowed(index))).unwrap();
    let tree = pool.tree_options("t").design(design.parse().unwrap()).create::<u64, u64>().unwrap();
    (0..ITEMS).for_each(|key| tree.upsert(key, !key).unwrap());
    process::say("written");
    loop {
        std::thread::park();
    }
}

#[test]
fn pool_and_index_survive_a_kill_in_every_design() {
    let _alone = crate::alone();
    if let Some([design, pool, index]) = process::role().as_deref() {
        return write(design, pool, index);
    }
    for design in Design::ALL.iter().copied() {
        let pair = Pair(memfd("pool"), memfd("index"));
        let numbers = [&pair.0, &pair.1].map(|file| file.as_raw_fd().to_string());
        let mut writer = Process::start(KILL, &[design.name(), &numbers[0], &numbers[1]]);
        writer.expect("written");
        let refused = pair.open(&options()).unwrap_err();
        assert!(matches!(refused, Error::InUse { pid: Some(pid) } if pid == writer.id()), "{refused}");
        let follower = Pool::options().follow_fd(pair.0.as_fd(), pair.1.as_fd()).unwrap();
        let followed: Tree<u64, u64> = follower.tree("t").unwrap();
        assert_eq!(followed.get(7).unwrap(), Some(!7), "{design}");
        writer.kill();
        let after = (0..5000).map(|_| followed.get(7)).find(|found| !matches!(found, Ok(Some(_))));
        assert!(matches!(after, Some(Err(Error::NoWriter { .. }))), "{design}: {after:?}");
        let pool = pair.open(&options()).unwrap();
        assert_eq!(pool.info().path, None);
        verify_items(&pool, design.name());
        let is_able = matches!(design, Design::NbTree | Design::SsTree);
        assert_eq!(pool.info().index_was_kept, is_able, "{design}");
        assert_eq!(followed.get(8).ok().flatten(), None, "{design}: the new writer has not opened the tree");
        let tree: Tree<u64, u64> = pool.tree("t").unwrap();
        assert_eq!(followed.get(8).unwrap(), Some(!8), "{design}: a follower finds the new writer");
        drop(tree);
        pool.close().unwrap();
        if design != Design::WoTree {
            pair.verify(design.name());
        }
        let pool = options().open_fd(pair.0.as_fd(), None).unwrap();
        verify_items(&pool, design.name());
        pool.close().unwrap();
        let pool = pair.open(&options()).unwrap();
        assert!(!pool.info().index_was_kept, "{design}: the pool was opened without its index since");
        verify_items(&pool, design.name());
    }
}

#[test]
fn a_pool_has_one_writer() {
    let _alone = crate::alone();
    let is_in_use = |opened: Result<Pool>| matches!(opened, Err(Error::InUse { .. }));
    if let Some([pool, index]) = process::role().as_deref() {
        assert!(is_in_use(options().open_fd(borrowed(pool), Some(borrowed(index)))));
        return process::say("in use");
    }
    let pair = Pair::filled();
    let pool = pair.open(&options()).unwrap();
    assert!(is_in_use(pair.open(&options())) && is_in_use(options().open_fd(pair.0.as_fd(), None)));
    assert!(is_in_use(pair.open(&Pool::options().read_only(true))));
    assert!(is_in_use(Pool::open(format!("/proc/self/fd/{}", pair.0.as_raw_fd()))));
    let numbers = [&pair.0, &pair.1].map(|file| file.as_raw_fd().to_string());
    let mut other = Process::start(OTHER, &[&numbers[0], &numbers[1]]);
    other.expect("in use");
    other.end();
    // The index of an open pool, for another one.
    let new = memfd("new");
    assert!(is_in_use(options().open_fd(new.as_fd(), Some(pair.1.as_fd()))));
    verify_items(&pool, "while others tried");
    pool.close().unwrap();
    pair.verify("after others tried");
    let readers = [(); 2].map(|()| pair.open(&Pool::options().read_only(true)).unwrap());
    readers.iter().for_each(|reader| verify_items(reader, "a reader"));
    assert!(readers[0].info().index_was_kept && is_in_use(pair.open(&options())));
    drop(readers);
    pair.verify("after readers");
}

/// Opens the file of a descriptor again, with other access.
fn again(file: &OwnedFd, access: OFlags) -> OwnedFd {
    open(format!("/proc/self/fd/{}", file.as_raw_fd()), access, Mode::empty()).unwrap()
}

fn sealed(seals: SealFlags) -> OwnedFd {
    let file = memfd("sealed");
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn containing(bytes: &[u8]) -> OwnedFd {
    let file = memfd("contents");
    File::from(file.try_clone().unwrap()).write_all(bytes).unwrap();
    file
}

/// Opens a pool, which must be refused; returns the message.
fn refused(options: &PoolOptions, pool: &OwnedFd, index: Option<&OwnedFd>) -> String {
    let opened = options.open_fd(pool.as_fd(), index.map(AsFd::as_fd));
    opened.expect_err("descriptors that must be refused").to_string()
}

#[test]
fn a_wrong_file_for_a_pool_is_refused() {
    let _alone = crate::alone();
    let pair = Pair::filled();
    let (reader, writer) = std::io::pipe().unwrap();
    let files: [(&str, OwnedFd, &str); 11] = [
        ("pipe to read", reader.into(), "is not a Bristlecone pool"),
        ("pipe to write", writer.into(), "is not a Bristlecone pool"),
        ("folder", File::open("/").unwrap().into(), "is not a Bristlecone pool"),
        (
            "device",
            File::options().read(true).write(true).open("/dev/null").unwrap().into(),
            "is not a Bristlecone pool",
        ),
        ("other bytes", containing(b"other bytes"), "is not a Bristlecone pool"),
        ("many other bytes", containing(&[7; 1 << 20]), "is not a Bristlecone pool"),
        ("for reading", again(&pair.0, OFlags::RDONLY), "is not open for reading and writing"),
        ("for writing", again(&pair.0, OFlags::WRONLY), "is not open for reading and writing"),
        ("only a path", again(&pair.0, OFlags::PATH), "is not open for reading and writing"),
        ("sealed", sealed(SealFlags::WRITE), "is sealed against writing"),
        ("sealed later", sealed(SealFlags::FUTURE_WRITE), "is sealed against writing"),
    ];
    for (name, file, expected) in &files {
        let error = refused(&options(), file, Some(&pair.1));
        assert!(error.contains(expected) && error.starts_with("descriptor "), "{name}: {error}");
        pair.verify(name);
    }
    let error = refused(&options(), &pair.1, Some(&pair.0));
    assert!(error.contains("is an index, not a pool: pass the pool first"), "{error}");
    let error = refused(&options(), &pair.1, None);
    assert!(error.contains("is an index, not a pool"), "{error}");
    let error = refused(&Pool::options(), &memfd("empty"), None);
    assert!(error.contains("no pool at descriptor"), "{error}");
    let error = refused(&options().create_new(true), &pair.0, None);
    assert!(error.contains("exists already"), "{error}");
    pair.verify("at the end");
}

#[test]
fn a_wrong_file_for_an_index_is_refused() {
    let _alone = crate::alone();
    let (pair, other) = (Pair::filled(), Pair::filled());
    let on_disk = std::env::current_exe().unwrap().with_file_name(format!("index-{}", std::process::id()));
    let disk = File::options().read(true).write(true).create_new(true).open(&on_disk).unwrap();
    std::fs::remove_file(&on_disk).unwrap();
    let files: [(&str, OwnedFd, &str); 10] = [
        ("pipe", std::io::pipe().unwrap().0.into(), "is not in memory"),
        ("on a disk", disk.into(), "is not in memory"),
        ("pool itself", pair.0.try_clone().unwrap(), "is the pool's own file"),
        ("other pool", other.0.try_clone().unwrap(), "is a pool, not an index: pass the pool first"),
        ("other index", other.1.try_clone().unwrap(), "is the index of another pool"),
        ("other bytes", containing(b"other bytes"), "is neither empty nor an index"),
        ("for reading", again(&pair.1, OFlags::RDONLY), "is not open for reading and writing"),
        ("sealed against writes", sealed(SealFlags::WRITE), "is sealed against writing"),
        ("sealed against growth", sealed(SealFlags::GROW), "is sealed against changes of its size"),
        ("sealed against shrinking", sealed(SealFlags::SHRINK), "is sealed against changes of its size"),
    ];
    for (name, file, expected) in &files {
        let error = refused(&options(), &pair.0, Some(file));
        assert!(error.contains(expected) && error.starts_with("descriptor "), "{name}: {error}");
        pair.verify(name);
    }
    let new = memfd("new");
    let error = refused(&options(), &new, Some(&other.1));
    assert!(error.contains("is the index of another pool"), "{error}");
    assert_eq!(rustix::fs::fstat(&new).unwrap().st_size, 0, "nothing was created");
    let error = refused(&options().keep_index(KeepIndex::Never), &pair.0, Some(&pair.1));
    assert!(error.contains("needs no descriptor"), "{error}");
    pair.verify("at the end");
    other.verify("the other pool");
}

#[test]
fn a_pool_with_a_journal_needs_its_name() {
    let _alone = crate::alone();
    let error = refused(&options().domain(Domain::Journal), &memfd("pool"), None);
    assert!(error.contains("has no journal"), "{error}");
    let error = refused(&options().journal("/nowhere"), &memfd("pool"), None);
    assert!(error.contains("has no journal"), "{error}");
    let scratch = Scratch::new();
    let pool = options().domain(Domain::Journal).open(&scratch.0).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
    pool.close().unwrap();
    let file = OwnedFd::from(File::options().read(true).write(true).open(&scratch.0).unwrap());
    for options in [options(), Pool::options().read_only(true)] {
        let error = refused(&options, &file, None);
        assert!(error.contains("has no journal"), "{error}");
    }
    let pool = Pool::open(&scratch.0).unwrap();
    assert!(pool.info().was_clean);
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
}

/// Inserts until the pool is full; returns the number of items.
fn fill(pool: &Pool) -> u64 {
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let error = |key| tree.insert(key, !key).err();
    let (items, error) = (0..).find_map(|key| error(key).map(|error| (key, error))).unwrap();
    assert!(error.is_no_room(), "{error}");
    assert_eq!((tree.len().unwrap(), tree.check()), (items, Vec::new()));
    items
}

#[test]
fn a_file_that_may_not_grow_is_a_full_pool() {
    let _alone = crate::alone();
    let sized = |bytes, seals| {
        let file = memfd("sized");
        rustix::fs::ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let default = || Pool::options().create(true);
    let file = sized(8 << 20, SealFlags::GROW | SealFlags::SHRINK);
    let pool = default().open_fd(file.as_fd(), None).unwrap();
    assert_eq!(pool.info().max_bytes, 8 << 20, "all of the file");
    assert!(fill(&pool) > 100_000, "the items of the file");
    pool.tree::<u64, u64>("t").unwrap().retain(|_, _| false).unwrap();
    pool.trim().unwrap();
    let items = fill(&pool);
    assert!(items > 100_000, "{items} items again");
    pool.close().unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 8 << 20);
    let pool = default().open_fd(file.as_fd(), None).unwrap();
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), items);
    // Too small, and too large a maximum.
    let error = refused(&default(), &sized(1 << 20, SealFlags::GROW), None);
    assert!(error.contains("may not grow"), "{error}");
    let error = refused(&default().max_bytes(64 << 20), &sized(8 << 20, SealFlags::GROW), None);
    assert!(error.contains("has 8388608 bytes, and may not grow"), "{error}");
    // A file with a size may grow unless it is sealed.
    let file = sized(8 << 20, SealFlags::empty());
    let pool = default().max_bytes(16 << 20).open_fd(file.as_fd(), None).unwrap();
    assert!(fill(&pool) > items);
    pool.close().unwrap();
    // Sealed later.
    let file = memfd("later");
    let pool = default().open_fd(file.as_fd(), None).unwrap();
    pool.tree::<u64, u64>("t").unwrap().insert(0, !0).unwrap();
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    pool.tree::<u64, u64>("t").unwrap().remove(0).unwrap();
    let items = fill(&pool);
    pool.close().unwrap();
    let pool = default().open_fd(file.as_fd(), None).unwrap();
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), items);
}

#[test]
fn a_descriptor_for_reading_serves_a_reader() {
    let _alone = crate::alone();
    let pair = Pair::filled();
    fcntl_add_seals(&pair.0, SealFlags::WRITE).unwrap();
    let (pool, index) = (again(&pair.0, OFlags::RDONLY), again(&pair.1, OFlags::RDONLY));
    let read_only = Pool::options().read_only(true);
    for (index, is_kept) in [(None, false), (Some(index.as_fd()), true)] {
        let reader = read_only.open_fd(pool.as_fd(), index).unwrap();
        assert_eq!(reader.info().index_was_kept, is_kept);
        verify_items(&reader, "a reader");
    }
    assert!(refused(&read_only, &again(&pair.0, OFlags::PATH), None).contains("is not open for reading"));
}

#[test]
fn a_pool_whose_creation_was_killed_is_created() {
    let _alone = crate::alone();
    let whole = memfd("whole");
    options().open_fd(whole.as_fd(), None).unwrap().simulate_crash();
    let mut page = vec![0; 2 * 4096];
    File::from(again(&whole, OFlags::RDONLY)).read_exact(&mut page).unwrap();
    // A kill keeps a prefix of the stores to the first copy, and then to the second one.
    let mut outcomes = BTreeMap::new();
    for words in 0..=2 * 13_usize {
        let (first, second) = (8 * words.min(13), 8 * words.saturating_sub(13));
        let file = memfd("begun");
        rustix::fs::ftruncate(&file, 2 << 20).unwrap();
        let writer = File::from(file.try_clone().unwrap());
        writer.write_all_at(&page[..first], 0).unwrap();
        writer.write_all_at(&page[4096..4096 + second], 4096).unwrap();
        let pool = options().open_fd(file.as_fd(), None).unwrap_or_else(|error| panic!("{words}: {error}"));
        *outcomes.entry(pool.info().uuid).or_insert(0) += 1;
        pool.tree::<u64, u64>("t").unwrap().insert(1, 2).unwrap();
        pool.close().unwrap();
        let pool = Pool::options().open_fd(file.as_fd(), None).unwrap();
        assert_eq!(pool.tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
    }
    assert_eq!(outcomes.len(), 13 + 1, "new pools, or the one whose first copy is complete");
}

#[test]
fn a_failing_call_loses_nothing() {
    let _alone = crate::alone();
    let close = |pool: Pool, when: &str| {
        verify_items(&pool, when);
        pool.close().unwrap();
    };
    let (pair, mut refused) = (Pair::filled(), 0);
    for after in 0.. {
        let new = Pair(memfd("pool"), memfd("index"));
        let mut is_over = true;
        for pair in [&pair, &new] {
            failpoint::refuse(after, Errno::IO);
            let opened = pair.open(&options());
            is_over &= failpoint::cease();
            refused += u32::from(opened.is_err());
            drop(opened);
        }
        let when = format!("call {after} failed");
        close(pair.open(&options()).unwrap_or_else(|error| panic!("{when}: {error}")), &when);
        let pool = new.open(&options()).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), 0, "{when}");
        if is_over {
            break;
        }
    }
    assert!(refused > 10, "{refused} refused openings");
}
