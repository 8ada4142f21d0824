//! Operations on a tree by number, and every method of reading it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;

use bristlecone::parts::codec::Codec as _;
use bristlecone::{Error, Key, Tree, Value};
use bristlecone_sim::{Access, Seen, Way};

use super::items::Items;

/// Runs an operation on one key.
pub(super) fn act<I: Items>(tree: &Tree<I::K, I::V>, key: u64, access: Access) -> Result<Seen, String> {
    match attempt::<I>(tree, key, access) {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(held)) => Ok(Seen::Value(held.as_ref().map(I::value_number).transpose()?)),
        Err(error) if error.is_no_room() => Ok(Seen::Refused),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the same kind of operation on several keys, in one call.
pub(super) fn act_on_many<I: Items>(
    tree: &Tree<I::K, I::V>,
    each: &[(u64, Access)],
) -> Result<Vec<Seen>, String> {
    let own = |(key, access): &(u64, Access)| (I::key(*key), access.written().map(I::value));
    let owned: Vec<_> = each.iter().map(own).collect();
    let keys: Vec<_> = owned.iter().map(|(key, _)| I::K::lend(key)).collect();
    let mut items = Vec::with_capacity(owned.len());
    for (key, value) in &owned {
        items.extend(value.as_ref().map(|value| (I::K::lend(key), I::V::lend(value))));
    }
    let number = |old: &Option<_>| Ok(Seen::Value(old.as_ref().map(I::value_number).transpose()?));
    let mut old = Vec::new();
    let outcome = match each.first() {
        Some((_, Access::Insert(_))) => tree.insert_many(&items, &mut old),
        Some((_, Access::Upsert(_))) => tree.upsert_many(&items),
        Some((_, Access::Remove)) => tree.remove_many(&keys, &mut old),
        Some((_, Access::Get)) => {
            tree.get_many(&keys, &mut old).map_err(text)?;
            Ok(())
        }
        other => return Err(format!("no call does {other:?} to several keys")),
    };
    let done = match outcome {
        Ok(()) => each.len(),
        Err(stopped) if stopped.error.is_no_room() => stopped.done,
        Err(stopped) => return Err(stopped.to_string()),
    };
    let blind = matches!(each.first(), Some((_, Access::Upsert(_))));
    let mut seen = if blind {
        vec![Seen::Done; done]
    } else {
        old.iter().map(number).collect::<Result<Vec<_>, String>>()?
    };
    if seen.len() != done {
        return Err(format!("{} answers of {done} operations", seen.len()));
    }
    seen.resize(each.len(), Seen::Refused);
    Ok(seen)
}

/// Result of an operation on one key: `Err` within `Ok` is the existing value.
type Attempt<I> = Result<Result<Seen, Option<<<I as Items>::V as Value>::Owned>>, Error>;

fn attempt<I: Items>(tree: &Tree<I::K, I::V>, key: u64, access: Access) -> Attempt<I> {
    I::with_key(key, |key| {
        let held = match access {
            Access::Get => tree.get(key)?,
            Access::Insert(value) => I::with_value(value, |value| tree.insert(key, value))?,
            Access::Upsert(value) => {
                I::with_value(value, |value| tree.upsert(key, value))?;
                return Ok(Ok(Seen::Done));
            }
            Access::InsertNew(value) => match I::with_value(value, |value| tree.try_insert(key, value)) {
                Ok(()) => None,
                Err(present) => Some(present.into_present()?),
            },
            Access::Update(value) => I::with_value(value, |value| tree.update(key, value))?,
            Access::Remove => tree.remove(key)?,
            Access::Discard => {
                tree.remove(key)?;
                return Ok(Ok(Seen::Done));
            }
            Access::RemoveIf(expected) => {
                match I::with_value(expected, |expected| tree.compare_and_swap(key, Some(expected), None)) {
                    Ok(()) => return Ok(Ok(Seen::Removed)),
                    Err(differs) => differs.into_found()?,
                }
            }
            Access::Swap(expected, new) => {
                let swapped = I::with_value(expected, |expected| {
                    I::with_value(new, |new| tree.compare_and_swap(key, Some(expected), Some(new)))
                });
                match swapped {
                    Ok(()) => return Ok(Ok(Seen::Swapped)),
                    Err(differs) => differs.into_found()?,
                }
            }
        };
        Ok(Err(held))
    })
}

/// Checks a tree and reads it by every method.
pub(super) fn read<I: Items>(tree: &Tree<I::K, I::V>) -> Result<BTreeMap<u64, u64>, String> {
    let issues = tree.check();
    if !issues.is_empty() {
        return Err(format!("{issues:?}"));
    }
    let forward = all::<I>(tree, Way::Forward)?;
    for way in [Way::Backward, Way::Visit] {
        let found = all::<I>(tree, way)?;
        if found != forward {
            return Err(format!("forward {forward:?}, {way:?} {found:?}"));
        }
    }
    let forward: Vec<(u64, u64)> = forward.into_iter().collect();
    let len = tree.len().map_err(text)?;
    if len != forward.len() as u64 {
        return Err(format!("a length of {len}, but {forward:?}"));
    }
    for (key, value) in &forward {
        let got = I::with_key(*key, |key| tree.get(key)).map_err(text)?;
        if got.as_ref().map(I::value_number) != Some(Ok(*value)) {
            return Err(format!("key {key} is there with {value}, but get says {:?}", got.is_some()));
        }
    }
    read_beside::<I>(tree, &forward)?;
    read_parts::<I>(tree, &forward)?;
    Ok(forward.into_iter().collect())
}

/// Reads all items by one of the methods. Returns an error if they are out of order.
pub(super) fn all<I: Items>(tree: &Tree<I::K, I::V>, way: Way) -> Result<BTreeMap<u64, u64>, String> {
    let number = |(key, value): (_, _)| Ok((I::key_number(&key)?, I::value_number(&value)?));
    let numbers = |item: bristlecone::Result<_>| item.map_err(text).and_then(number);
    let mut found: Vec<(u64, u64)> = match way {
        Way::Forward => tree.iter().map(numbers).collect::<Result<_, String>>()?,
        Way::Backward => tree.iter().rev().map(numbers).collect::<Result<_, String>>()?,
        Way::Visit => {
            let mut found = Vec::new();
            tree.for_each_in(.., |key, value| {
                let key = I::K::with(&(), key, |key| Ok(<I::K as Key>::Codec::owned(key))).ok();
                let key = key.and_then(|key| I::K::decode(&(), key));
                let value = I::V::with(&(), value, |code| Ok(I::V::decode(&(), code))).ok().flatten();
                let item = key.zip(value).ok_or_else(|| "an item that is none".to_owned());
                found.push(item.and_then(number));
                ControlFlow::Continue(())
            })
            .map_err(text)?;
            found.into_iter().collect::<Result<_, String>>()?
        }
    };
    if way == Way::Backward {
        found.reverse();
    }
    if !found.is_sorted_by(|left, right| left.0 < right.0) {
        return Err(format!("{way:?} out of order: {found:?}"));
    }
    Ok(found.into_iter().collect())
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Looks up absent keys: next to each existing key, below all of them, and above.
fn read_beside<I: Items>(tree: &Tree<I::K, I::V>, all: &[(u64, u64)]) -> Result<(), String> {
    let beside = all.iter().flat_map(|(key, _)| [key.saturating_sub(1), key + 1]);
    let beside: BTreeSet<_> = beside.chain([0, LAST_KEY]).collect();
    let is_absent = |key: &&u64| all.binary_search_by_key(*key, |(key, _)| *key).is_err();
    for key in beside.iter().filter(is_absent) {
        let is_there =
            I::with_key(*key, |key| Ok(tree.get(key)?.is_some() || tree.contains_key(key)?)).map_err(text)?;
        if is_there {
            return Err(format!("key {key} is there by itself, and not among {all:?}"));
        }
    }
    Ok(())
}

/// The largest key that scenarios may use.
const LAST_KEY: u64 = 9999;

/// Reads parts of the tree from both ends: their limits are existing keys and possibly absent ones.
fn read_parts<I: Items>(tree: &Tree<I::K, I::V>, all: &[(u64, u64)]) -> Result<(), String> {
    let at = |part: usize| all.get(all.len() * part / 6).map_or(part as u64, |(key, _)| *key);
    for (from, to) in [(at(1), at(3)), (at(2) + 1, at(5) + 1), (at(3), at(3)), (at(4), at(1))] {
        let range = || I::with_keys(from, to, |from, to| tree.range(from..to));
        let until = || I::with_keys(from, to, |from, to| tree.range((Excluded(from), Included(to))));
        for (parts, is_due) in [
            ([range(), range()], &(|key| from <= key && key < to) as &dyn Fn(u64) -> bool),
            ([until(), until()], &|key| from < key && key <= to),
        ] {
            let number = |item: bristlecone::Result<(_, _)>| {
                let (key, value) = item.map_err(text)?;
                Ok((I::key_number(&key)?, I::value_number(&value)?))
            };
            let [forward, backward] = parts;
            let forward: Vec<(u64, u64)> = forward.map(number).collect::<Result<_, String>>()?;
            let mut backward: Vec<(u64, u64)> = backward.rev().map(number).collect::<Result<_, String>>()?;
            backward.reverse();
            let due: Vec<_> = all.iter().copied().filter(|(key, _)| is_due(*key)).collect();
            if forward != due || backward != due {
                return Err(format!("from {from} to {to}: {forward:?} and {backward:?}, but {all:?}"));
            }
        }
    }
    Ok(())
}
