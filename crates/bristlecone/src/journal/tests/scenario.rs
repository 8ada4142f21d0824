//! A list of operations, the states between them, and what a crash may leave.

use std::collections::BTreeMap;

use bristlecone_random::Generator as Random;

use super::{Scratch, open};
use crate::journal::simulated::Disk;
use crate::{Design, Durability, Error, Pool, Result};

/// The items of a tree.
pub type Items = BTreeMap<u64, Vec<u8>>;
/// The items of all trees.
pub type State = BTreeMap<String, Items>;

/// An operation on a tree by its name, or on the pool.
#[derive(Clone, Debug)]
pub enum Op {
    Create(&'static str),
    Insert(&'static str, u64, usize),
    Remove(&'static str, u64),
    /// Removes the keys from one to before another one.
    Range(&'static str, u64, u64),
    Batch(&'static str, u64, u64, usize),
    Load(&'static str, u64),
    Rename(&'static str, &'static str),
    Clear(&'static str),
    Drop(&'static str),
    Sync,
    Checkpoint,
    /// A part of a checkpoint, of N bytes or one leaf.
    Part(u64),
    Reopen,
}

fn value(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed as usize + at * 7) as u8).collect()
}

impl Op {
    /// Changes a model.
    fn model(&self, state: &mut State) {
        let tree = |state: &mut State, name: &str, change: &mut dyn FnMut(&mut Items)| {
            change(state.get_mut(name).expect("a tree of the scenario"));
        };
        match *self {
            Self::Create(name) => _ = state.insert(name.to_owned(), BTreeMap::new()),
            Self::Insert(name, key, bytes) => {
                tree(state, name, &mut |tree| _ = tree.insert(key, value(key, bytes)));
            }
            Self::Remove(name, key) => tree(state, name, &mut |tree| _ = tree.remove(&key)),
            Self::Range(name, from, to) => {
                tree(state, name, &mut |tree| tree.retain(|key, _| !(from..to).contains(key)));
            }
            Self::Batch(name, from, count, bytes) => tree(state, name, &mut |tree| {
                tree.extend((from..from + count).map(|key| (key, value(key + 1, bytes))));
            }),
            Self::Load(name, count) => {
                state.insert(name.to_owned(), (0..count).map(|key| (key, value(key, 20))).collect());
            }
            Self::Rename(from, to) => {
                let tree = state.remove(from).expect("a tree of the scenario");
                state.insert(to.to_owned(), tree);
            }
            Self::Clear(name) => tree(state, name, &mut BTreeMap::clear),
            Self::Drop(name) => _ = state.remove(name),
            Self::Sync | Self::Checkpoint | Self::Part(_) | Self::Reopen => {}
        }
    }

    fn run(&self, pool: &Pool, design: Design) -> Result<()> {
        let tree = |name: &str| pool.tree::<u64, &[u8]>(name);
        match *self {
            Self::Create(name) => pool.tree_options(name).design(design).create::<u64, &[u8]>().map(drop),
            Self::Insert(name, key, bytes) => tree(name)?.upsert(key, &value(key, bytes)),
            Self::Remove(name, key) => tree(name)?.remove(key).map(drop),
            Self::Range(name, from, to) => tree(name)?.remove_range(from..to).map(drop),
            Self::Batch(name, from, count, bytes) => {
                let (tree, mut batch) = (tree(name)?, pool.batch());
                for key in from..from + count {
                    batch.insert(&tree, key, &value(key + 1, bytes));
                }
                batch.commit()
            }
            Self::Load(name, count) => {
                let options = pool.tree_options(name).design(design);
                let load = options.create_with::<u64, &[u8]>(|loader| {
                    (0..count).try_for_each(|key| loader.push(key, &value(key, 20)))
                });
                load.map(drop)
            }
            Self::Rename(from, to) => pool.rename_tree(from, to),
            Self::Clear(name) => pool.clear_tree(name),
            Self::Drop(name) => pool.drop_tree(name),
            Self::Sync => pool.sync(),
            Self::Checkpoint => pool.checkpoint(),
            Self::Part(bytes) => {
                // Otherwise a part is a whole tree.
                let names = pool.trees()?.into_iter().map(|entry| entry.spec.name);
                let _open = names.map(|name| tree(&name)).collect::<Result<Vec<_>>>()?;
                pool.0.journal.get().expect("a pool with a journal").checkpoint_part(pool, bytes)
            }
            Self::Reopen => unreachable!("by the caller"),
        }
    }
}

/// Every kind of operation, on few keys.
pub fn every_kind() -> Vec<Op> {
    use Op::{
        Batch, Checkpoint, Clear, Create, Drop, Insert, Load, Part, Range, Remove, Rename, Reopen, Sync,
    };
    vec![
        Create("a"),
        Insert("a", 1, 9),
        Insert("a", 2, 200),
        Batch("a", 1, 6, 30),
        Create("b"),
        Load("c", 50),
        Remove("a", 2),
        Insert("c", 77, 3000),
        Range("c", 20, 60),
        Insert("c", 30, 12),
        Checkpoint,
        Insert("a", 1, 5),
        Drop("b"),
        // Takes the number of the tree that was dropped.
        Create("d"),
        Insert("d", 5, 50),
        Batch("d", 0, 60, 200),
        Rename("a", "e"),
        Insert("e", 9, 100),
        Sync,
        Clear("c"),
        Insert("c", 3, 30),
        Reopen,
        Insert("e", 1, 44),
        Checkpoint,
        Checkpoint,
        Insert("e", 2, 45),
        Create("f"),
        Batch("c", 40, 30, 300),
        Range("c", 45, 60),
        // A checkpoint in parts: trees change between two of them.
        Part(1),
        Remove("e", 9),
        Rename("e", "g"),
        Part(1),
        Clear("c"),
        Batch("c", 10, 12, 900),
        Range("c", 12, 15),
        Insert("c", 13, 902),
        Part(1),
        Range("c", 14, 17),
        Insert("c", 10, 901),
        Drop("d"),
        Create("h"),
        Insert("h", 1, 10),
        Part(u64::MAX),
        Insert("g", 3, 46),
        // Another one, which is left incomplete.
        Part(1),
        Insert("h", 2, 11),
        Reopen,
        Insert("h", 3, 12),
        Part(1),
        Insert("g", 4, 47),
    ]
}

/// What a run did until it was stopped.
pub struct Run {
    /// The states before the first operation, and after each one.
    pub states: Vec<State>,
    /// Number of operations that returned `Ok`.
    pub done: usize,
    /// Number of them that were synced.
    pub synced: usize,
    /// Whether the pool was created.
    pub created: bool,
}

/// Runs operations until one fails; leaves the pool as after a crash.
pub fn run(scratch: &Scratch, disk: &Disk, ops: &[Op], design: Design, durability: Durability) -> Run {
    let mut states = vec![State::new()];
    for op in ops {
        let mut next = states.last().cloned().unwrap_or_default();
        op.model(&mut next);
        states.push(next);
    }
    let mut run = Run { states, done: 0, synced: 0, created: false };
    let Ok(mut pool) = open(scratch, disk, durability) else { return run };
    run.created = true;
    for op in ops {
        let done = match op {
            Op::Reopen => match pool.close() {
                Ok(()) => {
                    run.synced = run.done;
                    match open(scratch, disk, durability) {
                        Ok(opened) => {
                            pool = opened;
                            Ok(())
                        }
                        Err(_) => return run,
                    }
                }
                Err(refused) => {
                    let (back, error) = refused.into_parts();
                    pool = back;
                    Err(error)
                }
            },
            op => op.run(&pool, design),
        };
        if done.is_err() {
            break;
        }
        run.done += 1;
        if durability == Durability::Commit || matches!(op, Op::Sync | Op::Checkpoint | Op::Reopen) {
            run.synced = run.done;
        }
    }
    pool.simulate_crash();
    run
}

/// Reads the state of a pool.
pub fn state(pool: &Pool) -> Result<State> {
    let mut state = State::new();
    for entry in pool.trees()? {
        let tree = pool.tree::<u64, &[u8]>(&entry.spec.name)?;
        let issues = tree.check();
        if !issues.is_empty() {
            return Err(Error::corrupted(format!("{issues:?}"), entry.spec.name));
        }
        state.insert(entry.spec.name, tree.range(..).map(Result::unwrap).collect());
    }
    Ok(state)
}

impl Run {
    /// Opens the pool after a crash, and compares it with the states that the crash may leave: those from the last
    /// durable one on. Returns the state that it has.
    pub fn verify(
        &self,
        scratch: &Scratch,
        disk: &Disk,
        design: Design,
        from: usize,
    ) -> std::result::Result<State, String> {
        let pool = match open(scratch, disk, Durability::Commit) {
            Ok(pool) => pool,
            Err(error) => return Err(format!("after {} operations: {error}", self.done)),
        };
        let found = state(&pool).map_err(|error| error.to_string())?;
        let allowed = &self.states[from..(self.done + 2).min(self.states.len())];
        if !allowed.contains(&found) {
            return Err(format!("after {} operations, {from} durable: another state: {found:?}", self.done));
        }
        // It can be used.
        let tree = pool
            .tree_options("after")
            .design(design)
            .create::<u64, &[u8]>()
            .map_err(|error| error.to_string())?;
        tree.upsert(1, b"after").map_err(|error| error.to_string())?;
        drop(tree);
        pool.simulate_crash();
        Ok(found)
    }

    /// Lets the power fail, and verifies what is left. `scratch` gets another content.
    pub fn verify_failure(
        &self,
        scratch: &Scratch,
        disk: &Disk,
        design: Design,
        random: &mut Random,
    ) -> std::result::Result<(), String> {
        let image = disk.after_failure(random);
        if !self.created {
            let _ = std::fs::remove_file(&scratch.0);
        } else if scratch.0.exists() {
            scratch.scramble_unless_closed();
        }
        self.verify(scratch, &image, design, self.synced)?;
        // The state of this opening is durable, too.
        let again = image.after_failure(random);
        scratch.scramble_unless_closed();
        let pool =
            open(scratch, &again, Durability::Commit).map_err(|error| format!("once more: {error}"))?;
        let after = pool.tree::<u64, &[u8]>("after").map_err(|error| error.to_string())?;
        match after.get(1).unwrap().as_deref() {
            Some(b"after") => Ok(()),
            found => Err(format!("a change after the crash is lost: {found:?}")),
        }
    }
}
