//! Errors that a process gets for a pool that another one opened.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bristlecone::{BackupOptions, Error, Pool, Result, ScrubOptions};

use super::fixtures::Planted;

pub fn is_in_use(opened: Result<Pool>, by: u32) {
    assert!(matches!(&opened, Err(Error::InUse { pid: Some(pid) }) if *pid == by), "{opened:?}");
}

/// Returns whether the error contains the path of the pool and the process that has it.
pub fn is_forked<T>(answer: Result<T>, path: &Path, opener: u32) -> bool {
    let Err(error) = answer else { return false };
    let said = error.to_string();
    matches!(error, Error::Forked { .. })
        && said.contains(path.to_str().unwrap())
        && said.contains(&format!("process {opener}"))
        && said.contains("open it again")
}

/// Returns whether `ask` panics with an error that contains the same.
pub fn panics<T>(path: &Path, ask: impl FnOnce() -> T) -> bool {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let asked = catch_unwind(AssertUnwindSafe(ask));
    std::panic::set_hook(hook);
    let Err(panic) = asked else { return false };
    let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    said.contains(path.to_str().unwrap()) && said.contains("open it again")
}

/// Calls all operations of a tree and its pool in a process that is not its opener.
pub fn ask_all(planted: &Planted, path: &Path, opener: u32) {
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
    forked(words.get(7).map(drop));
    forked(words.len().map(drop));
    forked(words.leaves_by_items().map(drop));
    forked(words.pop_first().map(drop));
    forked(words.pop_last().map(drop));
    forked(words.entry(7).or_insert(7).map(drop));
    forked(words.entry(7000).or_insert(7).map(drop));
    forked(words.fetch_update(7, |old| old).map(drop));
    forked(words.insert_many(&[(7, 7)], &mut Vec::new()).map_err(Error::from));
    forked(words.upsert_many(&[(7, 7)]).map_err(Error::from));
    forked(words.remove_many(&[7], &mut Vec::new()).map_err(Error::from));
    forked(words.remove_range(..).map(drop));
    forked(words.retain(|_, _| false));
    forked(words.clear());
    forked(words.drain(..).next().unwrap().map(drop));
    let mut batch = pool.batch();
    batch.insert(words, 7, 7).remove(words, 8);
    forked(batch.commit());
    forked(pool.begin_transaction().map(drop));
    forked(pool.transaction(|transaction| transaction.get(words, 7)).map(drop));
    forked(pool.snapshot().map(drop));
    forked(pool.snapshot_within(1 << 20).map(drop));
    forked(pool.usage("words").map(drop));
    forked(pool.metrics().map(drop));
    forked(pool.scrub(ScrubOptions::new()).map(drop));
    forked(pool.trim().map(drop));
    forked(pool.sync());
    forked(pool.checkpoint());
    forked(pool.deferred(|| words.upsert(7, 7)));
    forked(pool.with_ticket(|| words.upsert(7, 7)).map(drop));
    let other = path.with_extension("backup");
    forked(pool.backup(&other, BackupOptions::new()).map(drop));
    assert!(!other.exists());
    let mut checked = words.range(3..9);
    forked(checked.next_back().unwrap().map(drop));
    assert!(checked.next().is_none());
    forked(words.range(3..9).next().unwrap().map(drop));
    forked(pool.clone().close().map_err(Error::from));
    forked(pool.rename_tree("words", "others"));
    forked(pool.clear_tree("words"));
    if let Some(texts) = texts {
        forked(texts.insert("x", b"x").map(drop));
        forked(texts.remove("x").map(drop));
        forked(texts.get("x").map(drop));
    }
    forked(words.get(7).map(drop));
    forked(words.get_with(7, |_| ()).map(drop));
    forked(words.contains_key(7).map(drop));
    forked(words.iter().next().unwrap().map(drop));
    forked(words.range(3..9).next_back().unwrap().map(drop));
    forked(words.first_key_value().map(drop));
    forked(words.last_key_value().map(drop));
    forked(words.get_many(&[7, 8], &mut Vec::new()).map(drop));
    forked(words.contains_many(&[7, 8], &mut Vec::new()).map(drop));
    forked(words.get_gt(7).map(drop));
    forked(words.keys().next().unwrap().map(drop));
    forked(words.count(3..9).map(drop));
    forked(words.leaves_by_items().map(drop));
    forked(words.len().map(drop));
    forked(words.is_empty().map(drop));
    forked(words.stats().map(drop));
    assert!(panics(path, || pool.info()));
    for issues in [words.check(), pool.check()] {
        assert!(issues[0].what.contains("open it again"), "{issues:?}");
    }
    pool.clone().simulate_crash();
}
