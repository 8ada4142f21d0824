//! Transfers between accounts with a history: two trees change together, on several threads, while a snapshot
//! computes the total.
//!
//! `cargo run -p bristlecone --example transfer`

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bristlecone::{Error, Pool, Result, Tree};

const ACCOUNTS: u32 = 100;
const EACH: u64 = 1000;

/// Account balances, and the history of transfers by number.
struct Bank {
    pool: Pool,
    balances: Tree<u32, u64>,
    transfers: Tree<u64, (u32, u32, u64)>,
}

impl Bank {
    fn open(path: &str) -> Result<Self> {
        let pool = Pool::options().max_bytes(64 << 20).create(true).open(path)?;
        let (balances, transfers) = (pool.tree("balances")?, pool.tree("transfers")?);
        Ok(Self { pool, balances, transfers })
    }

    /// Moves an amount and records it, or returns `false` if the balance is insufficient.
    fn transfer(&self, from: u32, to: u32, amount: u64) -> Result<bool> {
        self.pool.transaction(|tx| {
            let held = tx.get(&self.balances, from)?.unwrap_or(0);
            if held < amount || from == to {
                return Ok(false);
            }
            let other = tx.get(&self.balances, to)?.unwrap_or(0);
            tx.insert(&self.balances, from, held - amount)?;
            tx.insert(&self.balances, to, other + amount)?;
            let last = tx.range(&self.transfers, ..).next_back().transpose()?.map_or(0, |(number, _)| number);
            tx.insert(&self.transfers, last + 1, (from, to, amount))?;
            Ok(true)
        })
    }

    /// Returns the total, and the number of transfers so far, at one point in time.
    fn total(&self) -> Result<(u64, u64)> {
        let view = self.pool.snapshot()?;
        let balances = view.tree(&self.balances).iter().map(|item| Ok(item?.1));
        Ok((balances.sum::<Result<u64>>()?, view.tree(&self.transfers).len()?))
    }
}

/// Runs the example.
///
/// # Errors
///
/// Returns errors of the pool.
pub fn main() -> Result<()> {
    let path = format!("/dev/shm/bristlecone-transfer-{}.pool", std::process::id());
    let bank = Bank::open(&path)?;
    // Create all accounts atomically, unless they exist.
    let mut opening = bank.pool.batch();
    for account in 0..ACCOUNTS {
        opening.expect(&bank.balances, account, None).insert(&bank.balances, account, EACH);
    }
    opening.commit()?;

    let over = AtomicBool::new(false);
    let made: u64 = std::thread::scope(|scope| {
        let work = |thread: u32| {
            let bank = &bank;
            move || {
                let mut made = 0;
                for step in 0..200 {
                    let (from, to) = ((step * 7 + thread) % ACCOUNTS, (step * 13 + thread * 5) % ACCOUNTS);
                    match bank.transfer(from, to, u64::from(step % 50)) {
                        Ok(moved) => made += u64::from(moved),
                        // Repeated conflicts: retry later.
                        Err(Error::Conflict) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                made
            }
        };
        let threads: Vec<_> = (0..2).map(|thread| scope.spawn(work(thread))).collect();
        let auditor = scope.spawn(|| {
            while !over.load(Relaxed) {
                assert_eq!(bank.total().expect("the pool is open").0, u64::from(ACCOUNTS) * EACH);
            }
        });
        let made = threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
        over.store(true, Relaxed);
        auditor.join().expect("it does not panic");
        made
    });
    assert_eq!(bank.total()?, (u64::from(ACCOUNTS) * EACH, made));
    println!("{made} transfers, and {} in all accounts as before", bank.total()?.0);
    drop(bank);
    std::fs::remove_file(&path).map_err(|error| Error::io(path, error))
}
