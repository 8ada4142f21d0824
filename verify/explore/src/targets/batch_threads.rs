//! Threads that change two trees together: even keys are in the first one, odd keys in the second.

use std::collections::BTreeMap;

use bristlecone::{Error, Transaction, Tree};
use bristlecone_sim::{Access, Answer, Memory, Operation, Plan, Registers, Seen, Sim, System};

use super::batch_pool::{BatchPool, Live, note, remove_range, shown};
use super::items::Items;
use super::tree_access::act;

impl<A: Items, B: Items> Registers for BatchPool<A, B> {
    type Live = Live<A, B>;

    fn memory(&self) -> Memory {
        System::memory(self)
    }

    fn create(&self, sim: &Sim) -> Result<Live<A, B>, String> {
        let mut live = System::create(self, sim)?;
        for tree in [0, 1] {
            self.create_tree(&mut live, tree).map_err(|error| error.to_string())?;
        }
        Ok(live)
    }

    fn open(&self, sim: &Sim) -> Result<Live<A, B>, String> {
        System::open(self, sim)?.ok_or_else(|| "nothing is there any more".to_owned())
    }

    fn act(&self, live: &Live<A, B>, operation: &Operation) -> Result<Answer, String> {
        let (a, b) = live.both()?;
        match operation {
            Operation::On(key, access) if key % 2 == 0 => Ok(Answer::One(act::<A>(a, *key, *access)?)),
            Operation::On(key, access) => Ok(Answer::One(act::<B>(b, *key, *access)?)),
            Operation::Together { scans: true, each } if each.is_empty() => {
                let view = live.pool.snapshot().map_err(|error| error.to_string())?;
                let mut items = shown::<A>(&view, a)?;
                items.extend(shown::<B>(&view, b)?);
                Ok(Answer::Together { items: Some(items), seen: Vec::new() })
            }
            Operation::Together { scans: false, each }
                if each.iter().all(|(_, access)| is_blind(*access)) =>
            {
                let mut batch = live.pool.batch();
                for (key, access) in each {
                    let place = (0, *key, access.written());
                    match key % 2 {
                        0 => note::<A>(&mut batch, a, place, false),
                        _ => note::<B>(&mut batch, b, place, false),
                    }
                }
                batch.commit().map_err(|error| error.to_string())?;
                Ok(Answer::Together { items: None, seen: vec![Seen::Done; each.len()] })
            }
            Operation::Together { scans: false, each }
                if each.iter().all(|(_, access)| *access == Access::Discard) =>
            {
                let (first, last) = (each[0].0, each[each.len() - 1].0);
                match first % 2 {
                    0 => remove_range::<A>(a, first, last + 1),
                    _ => remove_range::<B>(b, first, last + 1),
                }
                .map_err(|error| error.to_string())?;
                Ok(Answer::Together { items: None, seen: vec![Seen::Done; each.len()] })
            }
            Operation::Together { scans, each } => transact(live, *scans, each),
            Operation::Scan(_) => Ok(Answer::All(live.observed()?)),
            Operation::Many(_) => Err("a call for many keys of two trees".to_owned()),
        }
    }

    fn plan(&self, draw: &mut dyn FnMut(usize) -> usize) -> Plan {
        let keys = 3 + draw(4);
        let before =
            (0..keys as u64).filter(|_| draw(3) != 0).map(|key| (key, Access::Insert(key))).collect();
        let mut written = 1000;
        let mut access = |draw: &mut dyn FnMut(usize) -> usize| {
            written += 1;
            let key = draw(keys) as u64;
            (key, [Access::Get, Access::Remove, Access::Insert(written), Access::Upsert(written)][draw(4)])
        };
        let mut operation = |draw: &mut dyn FnMut(usize) -> usize| match draw(7) {
            0 => {
                let (key, access) = access(draw);
                Operation::On(key, access)
            }
            1 => Operation::Together { scans: true, each: Vec::new() },
            2 | 3 => {
                let count = 2 + draw(2);
                let mut each: Vec<_> = (0..count).map(|_| access(draw)).collect();
                each.iter_mut()
                    .zip(2000..)
                    .for_each(|((key, access), new)| *access = Access::Upsert(new + *key * 10));
                Operation::Together { scans: false, each }
            }
            // The range of all keys of a tree, or of those from the second one on.
            6 => {
                let (tree, skipped) = (draw(2), draw(2));
                let of_tree = (0..keys as u64).filter(|key| key % 2 == tree as u64);
                let first = if skipped < (keys - tree).div_ceil(2) { skipped } else { 0 };
                let each = of_tree.skip(first).map(|key| (key, Access::Discard)).collect();
                Operation::Together { scans: false, each }
            }
            kind => Operation::Together {
                scans: kind == 4,
                each: (0..1 + draw(3)).map(|_| access(draw)).collect(),
            },
        };
        let threads = (0..2 + draw(2)).map(|_| (0..1 + draw(3)).map(|_| operation(draw)).collect()).collect();
        Plan::new(before, threads)
    }

    fn contents(&self, live: &Live<A, B>) -> Result<BTreeMap<u64, u64>, String> {
        let [a, b] = self.observe(live)?;
        Ok(a.into_iter().chain(b).flatten().collect())
    }
}

fn is_blind(access: Access) -> bool {
    matches!(access, Access::Upsert(_))
}

fn transact<A: Items, B: Items>(
    live: &Live<A, B>,
    scans: bool,
    each: &[(u64, Access)],
) -> Result<Answer, String> {
    let (a, b) = live.both()?;
    let done = live.pool.transaction(|tx| {
        let scan = || {
            let mut items = scanned::<A>(tx, a)?;
            items.extend(scanned::<B>(tx, b)?);
            Ok::<_, Error>(items)
        };
        let items = scans.then(scan).transpose()?;
        let step = |(key, access): &(u64, Access)| match key % 2 {
            0 => step::<A>(tx, a, *key, *access),
            _ => step::<B>(tx, b, *key, *access),
        };
        Ok((items, each.iter().map(step).collect::<Result<Vec<_>, _>>()?))
    });
    match done {
        Ok((items, seen)) => Ok(Answer::Together { items, seen }),
        Err(Error::Conflict) => Ok(Answer::Together { items: None, seen: vec![Seen::Refused; each.len()] }),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns all items; those of other kinds are left to the other ways of reading.
fn scanned<I: Items>(tx: &Transaction, tree: &Tree<I::K, I::V>) -> bristlecone::Result<BTreeMap<u64, u64>> {
    let number = |(key, value)| Some((I::key_number(&key).ok()?, I::value_number(&value).ok()?));
    tx.range(tree, ..).filter_map(|item| item.map(number).transpose()).collect()
}

fn step<I: Items>(
    tx: &Transaction,
    tree: &Tree<I::K, I::V>,
    key: u64,
    access: Access,
) -> Result<Seen, Error> {
    I::with_key(key, |key| {
        let held = match access {
            Access::Upsert(_) => None,
            _ => tx.get(tree, key)?.and_then(|held| I::value_number(&held).ok()),
        };
        match access {
            Access::Remove => tx.remove(tree, key)?,
            _ => access
                .written()
                .map_or(Ok(()), |value| I::with_value(value, |value| tx.insert(tree, key, value)))?,
        }
        Ok(if is_blind(access) { Seen::Done } else { Seen::Value(held) })
    })
}
