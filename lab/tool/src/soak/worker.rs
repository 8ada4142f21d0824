//! A worker: opens or creates the pool, compares its contents with the board, and operates until it is killed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bristlecone::{Design, Error, KeepIndex, Native, Pool, PoolOptions, Tree};
use bristlecone_matrix::Items;
use bristlecone_pm::{PoolFile, Region};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::board::Phase;
use super::checked::{Checked, expect, failed};
use super::compare::compare;
use super::items::KeyTable;
use super::life::{Life, draft};
use super::operate::Operator;
use super::order::Flaw;
use super::other;
use super::round::{End, Round};

/// Name of the compared tree.
const TREE: &str = "t";
/// Number of entries of each additional tree.
const BESIDE: u64 = 50;
/// The values of `Board::created` for the pool and for the tree in it.
const POOL: u64 = 1;
const POOL_AND_TREE: u64 = 2;

/// Runs one life.
pub struct Worker<'a> {
    pub life: &'a Life<'a>,
}

impl Worker<'_> {
    /// Runs the life; a failure is recorded on the board.
    pub fn run<I: Items>(&self) {
        let board = self.life.board;
        // Ends the process, even if other threads wait.
        std::panic::set_hook(Box::new(move |panic| {
            board.fail(&panic.to_string());
            std::process::abort();
        }));
        if let Err(Some(what)) = self.live::<I>() {
            board.fail(&what);
        }
    }

    fn live<I: Items>(&self) -> Checked {
        if let Some(bytes) = self.life.round.file_bytes_max {
            let maximum = getrlimit(Resource::Fsize).maximum;
            let limited = setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum });
            limited.map_err(|error| Some(format!("limiting files: {error}")))?;
        }
        let look = matches!(self.life.end, End::Look);
        let Some(pool) = self.open_pool(look)? else { return Ok(()) };
        self.life.board.enter(Phase::Opened);
        let issues = pool.check();
        expect(issues.is_empty(), || format!("check of the pool: {issues:?}"))?;
        other::compare(self.life.board, &pool)?;
        self.trees_beside(&pool, look)?;
        let Some(tree) = self.open_tree::<I>(&pool, look)? else { return Ok(()) };
        let keys = KeyTable::<I>::of(self.life.round);
        if self.life.flaw == Some(Flaw::LostKey) && !look {
            let lost = tree.first_key_value().map_err(failed("a read"))?;
            lost.map(|(key, _)| tree.remove(I::key_ref(&key)));
        }
        self.life.board.enter(Phase::Comparing);
        compare(self.life.board, &keys, &tree, !look)?;
        if matches!(self.life.end, End::Look) {
            return Ok(());
        }
        self.life.board.enter(Phase::Working);
        if !matches!(self.life.end, End::Last) {
            self.operate(&keys, &pool, &tree)?;
        }
        self.life.board.enter(Phase::Done);
        if !matches!(self.life.end, End::Closed | End::Last) {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        drop(tree);
        pool.close().map_err(bristlecone::Error::from).map_err(failed("closing the pool"))?;
        self.life.board.closed.store(1, Relaxed);
        Ok(())
    }

    /// Opens the pool, or creates it if it was never created.
    fn open_pool(&self, look: bool) -> Checked<Option<Pool>> {
        let closed = self.life.board.closed.swap(0, Relaxed) == 1;
        let options = self.options().read_only(look);
        let pool = match options.open(self.life.path) {
            Err(Error::NotFound { .. }) if self.life.board.created.load(Relaxed) == 0 => {
                if look {
                    return Ok(None);
                }
                match self.create_pool() {
                    Err(error) if self.life.is_no_room(&error) => return Ok(None),
                    created => created.map_err(failed("creating the pool"))?,
                }
            }
            opened => {
                let pool = opened.map_err(failed("opening the pool"))?;
                let was = pool.info().was_clean;
                expect(!closed || was, || "a pool that was closed says that it was not".to_owned())?;
                // A pool that is only read stays unchanged.
                self.life.board.closed.store(u64::from(look && closed), Relaxed);
                pool
            }
        };
        self.life.board.created.fetch_max(POOL, Relaxed);
        Ok(Some(pool))
    }

    /// Returns the options of the open: a saved index is used, regardless of its size.
    fn options(&self) -> PoolOptions {
        let domain = self.life.round.cell.domain;
        Pool::options().domain(domain).recovery_threads(2).keep_index(KeepIndex::Always)
    }

    fn create_pool(&self) -> bristlecone::Result<Pool> {
        let Round { geometry, cell, .. } = self.life.round;
        let (chunk_bytes, max_bytes) = (geometry.chunk_bytes, geometry.chunk_bytes * geometry.chunks_max);
        let options = self.options();
        if chunk_bytes == 2 << 20 {
            return options.max_bytes(max_bytes).create_new(true).open(self.life.path);
        }
        // The library does not create such chunks in files: a pool in memory is written to a file.
        let (region, medium) = (Region::memory(geometry.max_bytes())?, Native::new(cell.domain));
        let made: Arc<PoolFile<Native>> = PoolFile::create_in(region, *geometry, cell.domain, medium)?;
        let words = made.words(0, geometry.header_bytes() as usize / 8);
        let header: Vec<u8> = words.iter().flat_map(|word| word.load(made.medium()).to_le_bytes()).collect();
        let draft = draft(self.life.path);
        let named = std::fs::write(&draft, header).and_then(|()| std::fs::rename(&draft, self.life.path));
        named.map_err(|source| Error::Io { doing: "writing a pool".to_owned(), source })?;
        options.open(self.life.path)
    }

    /// Opens the tree, or creates it if it was never created. Returns `None` for a tree that does not fit its
    /// pool.
    fn open_tree<I: Items>(&self, pool: &Pool, look: bool) -> Checked<Option<Tree<I::K, I::V>>> {
        let options = self.life.round.cell.configuration.tree(pool, TREE);
        let tree = match options.open() {
            Err(Error::NoSuchTree { .. }) if self.life.board.created.load(Relaxed) < POOL_AND_TREE => {
                match options.create() {
                    Err(Error::ReadOnly) if look => return Ok(None),
                    Err(error) if self.life.is_no_room(&error) => return Ok(None),
                    created => created.map_err(failed("creating the tree"))?,
                }
            }
            opened => opened.map_err(failed("opening the tree"))?,
        };
        self.life.board.created.store(POOL_AND_TREE, Relaxed);
        Ok(Some(tree))
    }

    /// Checks the additional trees, and creates missing ones.
    fn trees_beside(&self, pool: &Pool, look: bool) -> Checked {
        for number in 0..self.life.round.cell.pool_size.beside {
            let name = format!("beside {number}");
            if self.life.board.beside.load(Relaxed) > number {
                let (items, issues) = pool.check_tree(&name).map_err(failed("checking a tree beside"))?;
                expect((items, issues.len()) == (BESIDE, 0), || format!("{name}: {items}, {issues:?}"))?;
            } else if !look {
                match self.fill_beside(pool, &name, number) {
                    Err(error) if self.life.is_no_room(&error) => return Ok(()),
                    filled => filled.map_err(failed("filling a tree beside"))?,
                }
                self.life.board.beside.store(number + 1, Relaxed);
            }
        }
        Ok(())
    }

    fn fill_beside(&self, pool: &Pool, name: &str, number: u64) -> bristlecone::Result<()> {
        let options = pool.tree_options(name).design(Design::ALL[number as usize % Design::ALL.len()]);
        let tree: Tree<&str, u64> = match options.open() {
            Err(Error::NoSuchTree { .. }) => options.create(),
            opened => opened,
        }?;
        (0..BESIDE).try_for_each(|at| tree.upsert(&format!("key {at}"), at))
    }

    /// Runs the operations of every thread.
    fn operate<I: Items>(&self, keys: &KeyTable<I>, pool: &Pool, tree: &Tree<I::K, I::V>) -> Checked {
        std::thread::scope(|scope| {
            for thread in 0..self.life.round.threads {
                let operator = Operator::new(self.life, keys, pool, tree, thread);
                let run = move || {
                    if let Err(Some(what)) = operator.run() {
                        self.life.board.fail(&what);
                    }
                };
                let begun = std::thread::Builder::new().spawn_scoped(scope, run);
                begun.map_err(|error| Some(format!("a thread: {error}")))?;
            }
            Ok(())
        })
    }
}
