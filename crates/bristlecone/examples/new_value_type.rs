//! Changing the value type of a tree: a new tree, a copy, and a rename, each of which may be interrupted.
//!
//! The types of a tree are fixed when it is created, and opening it with others is an error. A newer program
//! therefore copies the tree, and the name decides which tree is valid. If a tree `balances.old` or
//! `balances.new` exists, the upgrade has begun, and [`upgrade`] completes it, even after any number of
//! interruptions.
//!
//! ```sh
//! cargo run --release --example new_value_type
//! ```

use std::path::PathBuf;

use bristlecone::{Error, Pool, Result, Tree};

/// Cents by account, in the old format.
type Old = Tree<&'static str, u32>;
/// Cents by account, which may be overdrawn.
type New = Tree<&'static str, i64>;

fn has(pool: &Pool, name: &str) -> Result<bool> {
    Ok(pool.trees()?.iter().any(|tree| tree.spec.name == name))
}

/// Opens the balances, and first upgrades them to this program's type. No other thread may use them meanwhile.
///
/// 1. `balances` has the new type or does not exist: nothing to do.
/// 2. It has the old type: the rest of an interrupted copy is dropped, and `balances.new` is created from it.
/// 3. `balances` becomes `balances.old`. *From here on the copy is known to be complete.*
/// 4. `balances.new` becomes `balances`.
/// 5. `balances.old` is dropped.
fn upgrade(pool: &Pool) -> Result<New> {
    match pool.tree_options("balances").open::<&str, u32>() {
        Ok(old) => {
            if has(pool, "balances.new")? {
                pool.drop_tree("balances.new")?;
            }
            copy(&old, &pool.tree("balances.new")?)?;
            drop(old);
            pool.rename_tree("balances", "balances.old")?;
        }
        Err(Error::Mismatch { .. } | Error::NoSuchTree { .. }) => {}
        Err(error) => return Err(error),
    }
    if has(pool, "balances.new")? {
        pool.rename_tree("balances.new", "balances")?;
    }
    if has(pool, "balances.old")? {
        pool.drop_tree("balances.old")?;
    }
    pool.tree("balances")
}

fn copy(old: &Old, new: &New) -> Result<()> {
    for item in old {
        let (account, cents) = item?;
        new.upsert(&account, cents.into())?;
    }
    Ok(())
}

/// Runs the example.
pub fn main() -> Result<()> {
    let path = PathBuf::from(format!("/dev/shm/bristlecone-balances-{}.pool", std::process::id()));
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    let old: Old = pool.tree("balances")?;
    old.insert("ada", 1200)?;
    old.insert("grace", 50)?;

    // A first attempt, interrupted in the middle of the copy.
    let half: New = pool.tree("balances.new")?;
    half.insert("ada", 1)?;
    drop((old, half));
    pool.simulate_crash();

    let pool = Pool::options().open(&path)?;
    let balances = upgrade(&pool)?;
    balances.insert("grace", -75)?;
    for item in &balances {
        let (account, cents) = item?;
        println!("{account}: {cents} cents");
    }
    assert_eq!((balances.get("ada")?, balances.get("grace")?), (Some(1200), Some(-75)));
    drop(balances);

    // Again, with a crash after step 3: the new tree is complete, and takes the name.
    pool.rename_tree("balances", "balances.new")?;
    drop(pool.tree::<&str, u32>("balances.old")?);
    pool.simulate_crash();
    let pool = Pool::options().open(&path)?;
    assert_eq!(upgrade(&pool)?.get("grace")?, Some(-75));
    assert_eq!(pool.trees()?.len(), 1);

    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| Error::io("removing the pool", error))
}
