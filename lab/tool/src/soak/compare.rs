//! Compares the pool after an open: every key must be as acknowledged, or as intended.

use std::sync::atomic::Ordering::Relaxed;

use bristlecone::Tree;
use bristlecone_matrix::Items;

use super::board::{Board, State};
use super::checked::{Checked, expect, failed};
use super::items::{KeyTable, OwnedKey, OwnedValue};

/// Compares a tree with the board, read by every method. The found states become acknowledged if the pool was
/// opened for writing.
pub fn compare<I: Items>(
    board: &Board,
    keys: &KeyTable<I>,
    tree: &Tree<I::K, I::V>,
    settles: bool,
) -> Checked {
    let issues = tree.check();
    expect(issues.is_empty(), || format!("check of the tree: {issues:?}"))?;
    let forwards = tree.iter().collect::<Result<Vec<_>, _>>().map_err(failed("a read"))?;
    let mut backwards = tree.iter().rev().collect::<Result<Vec<_>, _>>().map_err(failed("a read"))?;
    backwards.reverse();
    expect(forwards == backwards, || "items differ forwards and backwards".to_owned())?;
    expect(forwards.is_sorted_by(|one, other| one.0 < other.0), || "items are out of order".to_owned())?;
    let len = tree.len().map_err(failed("a read"))?;
    expect(len == forwards.len() as u64, || format!("{len} items are counted, {} found", forwards.len()))?;
    let found = found(keys, forwards)?;
    for (key, value) in found.iter().enumerate() {
        let got = tree.get(I::key_ref(keys.key(key))).map_err(failed("a read"))?;
        expect(got == *value, || format!("key {key} is {got:?} by get, {value:?} in a scan"))?;
        let state = state(board, keys, key, value.as_ref())?;
        if settles {
            board.keys[key].settle(state);
        }
    }
    let damage = tree.damage();
    expect(damage.is_empty(), || format!("damage: {damage:?}"))?;
    board.compared.fetch_add(1, Relaxed);
    board.keys_compared.fetch_add(keys.len() as u64, Relaxed);
    Ok(())
}

/// Returns the value of each key.
fn found<I: Items>(
    keys: &KeyTable<I>,
    items: Vec<(OwnedKey<I>, OwnedValue<I>)>,
) -> Checked<Vec<Option<OwnedValue<I>>>> {
    let mut found: Vec<_> = (0..keys.len()).map(|_| None).collect();
    for (key, value) in items {
        let at = keys.find(&key).ok_or_else(|| Some(format!("a key that no thread wrote: {key:?}")))?;
        found[at] = Some(value);
    }
    Ok(found)
}

/// Returns which of a key's possible states was found.
fn state<I: Items>(
    board: &Board,
    keys: &KeyTable<I>,
    key: usize,
    value: Option<&OwnedValue<I>>,
) -> Checked<State> {
    let cell = &board.keys[key];
    let (acknowledged, intended, seen) = (cell.acknowledged(), cell.intended(), cell.seen());
    let possible = [acknowledged, intended]
        .into_iter()
        .find(|state| state.version >= seen.version && keys.value(key, *state).as_ref() == value);
    possible.ok_or_else(|| {
        let what = format!("key {key}: found {value:?}");
        let due = [acknowledged, intended].map(|state| keys.value(key, state));
        Some(format!("{what}; acknowledged {acknowledged:?}, intended {intended:?}, seen {seen:?}: {due:?}"))
    })
}
