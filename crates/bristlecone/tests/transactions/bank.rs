//! Transfers between accounts on several threads: the total must not change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bristlecone::{Design, Error, Pool, Result, Tree};
use bristlecone_matrix::process::{self, Process};

use crate::{Scratch, mix};

const ACCOUNTS: u64 = 64;
const EACH: u64 = 1000;

fn open(pool: &Pool) -> (Tree<u64, u64>, Tree<String, u64>) {
    let odd = pool.tree_options("odd").design(Design::CclBTree);
    (pool.tree("even").unwrap(), odd.create().or_else(|_| odd.open()).unwrap())
}

fn name(account: u64) -> String {
    format!("account {account:04}")
}

/// Moves an amount from one account to another, in the same tree or another one.
fn transfer(pool: &Pool, trees: &(Tree<u64, u64>, Tree<String, u64>), noise: u64) -> Result<()> {
    let (from, to, amount) = (noise % ACCOUNTS, (noise >> 16) % ACCOUNTS, noise >> 40 & 0xff);
    pool.transaction(|tx| {
        let balance = |account: u64| match account % 2 {
            0 => tx.get(&trees.0, account),
            _ => tx.get(&trees.1, &name(account)),
        };
        let set = |account: u64, balance| match account % 2 {
            0 => tx.insert(&trees.0, account, balance),
            _ => tx.insert(&trees.1, &name(account), balance),
        };
        let held = balance(from)?.unwrap_or(0);
        if held >= amount && from != to {
            set(from, held - amount)?;
            set(to, balance(to)?.unwrap_or(0) + amount)?;
        }
        Ok(())
    })
}

fn total(pool: &Pool, trees: &(Tree<u64, u64>, Tree<String, u64>)) -> u64 {
    let view = pool.snapshot().unwrap();
    let sum: u64 = view.tree(&trees.0).iter().map(Result::unwrap).map(|(_, balance)| balance).sum();
    sum + view.tree(&trees.1).iter().map(Result::unwrap).map(|(_, balance)| balance).sum::<u64>()
}

#[test]
pub fn the_total_is_the_same_in_every_snapshot_and_after_every_opening() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let trees = open(&pool);
    for account in 0..ACCOUNTS {
        match account % 2 {
            0 => _ = trees.0.insert(account, EACH).unwrap(),
            _ => _ = trees.1.insert(&name(account), EACH).unwrap(),
        }
    }
    drop((trees, pool));
    for round in 0..3 {
        let pool = scratch.open();
        let trees = open(&pool);
        assert_eq!(total(&pool, &trees), ACCOUNTS * EACH);
        let (over, sums, conflicts) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (pool, trees) = (&pool, &trees);
            let (over, sums, conflicts) = (&over, &sums, &conflicts);
            let movers: Vec<_> = (0..3_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        for step in 0..1000 {
                            match transfer(pool, trees, mix(step << 8 | thread << 4 | round)) {
                                Ok(()) => {}
                                Err(Error::Conflict) => _ = conflicts.fetch_add(1, Relaxed),
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    assert_eq!(total(pool, trees), ACCOUNTS * EACH);
                    sums.fetch_add(1, Relaxed);
                }
            });
            movers.into_iter().for_each(|mover| mover.join().unwrap());
            over.store(true, Relaxed);
        });
        assert!(sums.into_inner() > 0);
        assert_eq!(total(&pool, &trees), ACCOUNTS * EACH);
        assert!(trees.0.check().is_empty() && trees.1.check().is_empty());
        drop(trees);
        scratch.crash(pool);
    }
}

/// Environment variable that marks the process to be killed.
const KILLED: &str = "bank::the_total_survives_kills";

/// A process that makes transfers is killed repeatedly: the total must be unchanged after every
/// opening, and also for a read-only open.
#[test]
pub fn the_total_survives_kills() {
    if let Some([path]) = process::role().as_deref() {
        let pool = Pool::options().open(path).unwrap();
        let trees = open(&pool);
        process::say("open");
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (pool, trees) = (&pool, &trees);
                scope.spawn(move || {
                    for step in 0.. {
                        let _ = transfer(
                            pool,
                            trees,
                            mix(step << 2 | thread << 1 | u64::from(std::process::id()) << 40),
                        );
                    }
                });
            }
        });
    }
    let scratch = Scratch::new();
    let pool = scratch.open();
    let trees = open(&pool);
    let mut batch = pool.batch();
    (0..ACCOUNTS).step_by(2).for_each(|account| _ = batch.insert(&trees.0, account, EACH));
    (1..ACCOUNTS).step_by(2).for_each(|account| _ = batch.insert(&trees.1, &name(account), EACH));
    batch.commit().unwrap();
    drop((trees, pool));
    let mut moved = 0;
    for round in 0..8_u64 {
        let mut victim = Process::start(KILLED, &[scratch.0.to_str().unwrap()]);
        // Killed while it opens a pool with a journal, it leaves one that is restored before it is read.
        victim.expect("open");
        victim.kill_after(std::time::Duration::from_millis(150 + mix(round) % 100));
        let reader = Pool::options().read_only(true).open(&scratch.0).unwrap();
        let trees = (reader.tree("even").unwrap(), reader.tree("odd").unwrap());
        assert_eq!(total(&reader, &trees), ACCOUNTS * EACH, "round {round}, for a reader");
        let shown: Vec<_> = trees.0.iter().map(Result::unwrap).collect();
        drop((trees, reader));
        let pool = scratch.open();
        let trees = open(&pool);
        assert_eq!(total(&pool, &trees), ACCOUNTS * EACH, "round {round}");
        assert!(
            trees.0.iter().map(Result::unwrap).eq(shown)
                && trees.0.check().is_empty()
                && trees.1.check().is_empty()
        );
        moved += trees.0.iter().map(Result::unwrap).filter(|(_, balance)| *balance != EACH).count();
        assert!(pool.check().is_empty());
    }
    assert!(moved > 0, "no transfer was made");
}
