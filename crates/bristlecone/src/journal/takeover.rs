//! What a killed process left in the ring: it is completed, and written to a segment.
//!
//! 1. The ring says from which LSN on entries are written. *A kill from here on: the next process begins again there, and
//!    overwrites what this one wrote. No thread has changed anything in between.*
//! 2. Each entry is written. One whose changes may have been applied gets the values that the trees have for its keys:
//!    the pool has finished or undone a batch before. The segment is synced.
//! 3. The ring says that all is done. *A kill from here on: the next process removes the entries.*
//! 4. The entries are removed, and the ring says that nothing is under way.

use std::collections::HashMap;

use bristlecone_pm::{Result, Storage, TreeEntry, TreeId};

use super::aside::{self, Asides};
use super::entry::{Aside, Directory, Kind, State, body_of, broken, changes};
use super::log::{Log, push_entry};
use super::mutation::{Mutation, is_mutated};
use super::ring::{Found, Ring, Takeover};
use super::{SHARE, head_of};
use crate::Pool;
use crate::transaction::AnyTree;
use crate::transaction::record::Change;

/// Writes the entries of the ring to the log, whose end is that of the segment.
pub fn take_over(
    pool: &Pool,
    storage: &dyn Storage,
    ring: &Ring,
    log: &mut Log,
    asides: &Asides,
) -> Result<()> {
    if ring.takeover() != Takeover::Done {
        let found = ring.found(log.written())?;
        ring.set_takeover(Takeover::From(log.written()));
        let mut trees = Trees { pool, entries: pool.trees()?, open: HashMap::new() };
        let mut entries = Vec::new();
        for found in &found {
            let Some((kind, counts, body)) = trees.completed(storage, found)? else { continue };
            let is_aside = found.head.aside && found.head.state == State::Complete;
            let (from, limit) = (log.written(), ring.bytes() / SHARE);
            if !is_aside && body.len() as u64 > limit {
                let aside = asides.write(storage, &body)?.encode();
                push_entry(&mut entries, from, head_of(kind, counts, true, aside.len()), &aside);
            } else {
                push_entry(&mut entries, from, head_of(kind, counts, is_aside, body.len()), &body);
            }
        }
        log.append(&entries)?;
        log.sync()?;
    }
    ring.set_takeover(Takeover::Done);
    ring.clear();
    Ok(())
}

/// The trees of a pool that has no users yet.
struct Trees<'a> {
    pool: &'a Pool,
    entries: Vec<TreeEntry>,
    open: HashMap<TreeId, AnyTree>,
}

impl Trees<'_> {
    /// Returns the kind of an entry, how much of it counts, and its body; `None` if nothing of it counts.
    fn completed(&mut self, storage: &dyn Storage, found: &Found) -> Result<Option<(Kind, u16, Vec<u8>)>> {
        let head = found.head;
        match head.state {
            State::Reserved => return Ok(None),
            State::Complete => {
                return Ok((head.counts > 0).then(|| (head.kind, head.counts, found.body.clone())));
            }
            State::Intent if is_mutated(Mutation::IntentsIgnored) => return Ok(None),
            State::Intent => {}
        }
        let body = match head.aside {
            true => aside::read(storage, &Aside::decode(&found.body).ok_or_else(broken)?)?,
            false => found.body.clone(),
        };
        if !matches!(head.kind, Kind::Each | Kind::All) {
            return Ok(self.directory(head.kind, &body)?.map(|body| (head.kind, 1, body)));
        }
        let mut now = changes(&body)?;
        for Change { tree, key, value } in &mut now {
            *value = self.tree(*tree)?.get(key)?;
        }
        let counts = if head.kind == Kind::Each { now.len() as u16 } else { 1 };
        Ok(Some((head.kind, counts, body_of(&now))))
    }

    fn tree(&mut self, id: TreeId) -> Result<&AnyTree> {
        if !self.open.contains_key(&id) {
            let entry = self.entries.iter().find(|entry| entry.id == id).ok_or_else(broken)?;
            self.open.insert(id, self.pool.open_any(entry, self.pool.0.recovery_threads)?);
        }
        self.open.get(&id).ok_or_else(broken)
    }

    /// Returns the body of a change of the directory, if it took effect.
    fn directory(&self, kind: Kind, body: &[u8]) -> Result<Option<Vec<u8>>> {
        let (change, rest) = Directory::of(kind, body).ok_or_else(broken)?;
        let named = |name: &str| self.entries.iter().find(|entry| entry.spec.name == name);
        let with_id = |id: TreeId| self.entries.iter().find(|entry| entry.id == id);
        let done = match change {
            Directory::Create(_, spec) => named(&spec.name).map(|entry| Directory::Create(entry.id, spec)),
            Directory::Drop(id) => with_id(id).is_none().then_some(Directory::Drop(id)),
            Directory::Rename(id, name) => {
                let has_it = with_id(id).is_some_and(|entry| entry.spec.name == name);
                has_it.then_some(Directory::Rename(id, name))
            }
            Directory::Clear(old, _, name) => match named(&name) {
                Some(new) if new.id != old => Some(Directory::Clear(old, new.id, name)),
                _ => None,
            },
        };
        Ok(done.map(|change| [&change.body(), rest].concat()))
    }
}
