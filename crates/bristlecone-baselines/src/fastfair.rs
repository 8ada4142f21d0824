//! FAST & FAIR (Hwang et al., *Endurable Transient Inconsistency in Byte-Addressable Persistent
//! B+-Tree*, FAST 2018): sorted nodes whose entries shift in such an order that a crash, or a reader
//! without a lock, finds at worst an entry twice; nodes that split in place, with siblings; no log.
//!
//! ```text
//! word 0  level + 1      1  right sibling      2  low key      3  leftmost child
//!      4  entries in order: key, value + 1 or child; a zero ends them
//! ```
//!
//! Insert (FAST): entries shift right from the end, a line is flushed before the shift leaves it.
//! The last store makes the entry valid. Delete: they shift left. Split (FAIR): the right node is
//! written and flushed, then linked, then the left one is cut by one store, then the parent hears.
//!
//! What the paper leaves open, and how it is closed here:
//! - Two entries of a leaf with equal values look like one entry that moves. Leaves tell entries that
//!   are there twice by their keys: of two equal ones the right one counts, so inserts end with the
//!   key. A zero value would end the leaf: values are kept plus one, and the largest is refused.
//! - A search that no parent leads to a new sibling compares with the sibling's first key, which
//!   changes when that is deleted: keys get lost after a crash, or when an insert races a split. Here
//!   a node keeps the key that it began with, which never changes.
//! - Readers without locks see values that a crash takes back. Leaves are read under versions, as
//!   the paper's own variant with leaf locks; inner nodes are searched without locks.
//! - Leftovers of a crash are put right by recovery, which goes through the nodes anyway, not by the
//!   writers who meet them. Nodes are not merged, so entries of inner nodes only ever shift right.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex};

use bristlecone::shared::version_lock::{Version, VersionLock};
use bristlecone::{Error, Finding, Medium, Result};
use bristlecone_pm::{Durable, Flushed, Persist, PoolFile, TreeEntry, wait};

use crate::index::{Aim, Census, Core, Fate, Span};
use crate::store::{LINE_WORDS, Locked, Store, damaged};

const NEXT: usize = 1;
/// The least key that a node may hold; 0 in the first of a level, as separators are above some key.
const LOW: usize = 2;
const LEFTMOST: usize = 3;
const HEADER: usize = 4;
const LEVELS_MAX: u64 = 24;

/// See the module.
pub struct FastFair<M: Medium> {
    store: Store<M>,
    capacity: usize,
    root: AtomicU64,
    rooting: Mutex<()>,
    census: Census,
}

/// A leaf as a descent found it.
struct Found<'t> {
    leaf: u64,
    lock: &'t VersionLock,
    version: Version,
    /// The first place whose key the aim does not lie at or after.
    place: usize,
}

impl<M: Medium> FastFair<M> {
    fn medium(&self) -> &M {
        self.store.medium()
    }

    #[inline(always)]
    fn key(&self, node: u64, at: usize) -> u64 {
        self.store.load(node, HEADER + at * 2)
    }

    #[inline(always)]
    fn word(&self, node: u64, at: usize) -> u64 {
        self.store.load(node, HEADER + at * 2 + 1)
    }

    fn set_key(&self, node: u64, at: usize, key: u64) {
        self.store.word(node, HEADER + at * 2).store(self.medium(), key);
        let _ordered = self.medium().ordered_within_line();
    }

    fn set_word(&self, node: u64, at: usize, word: u64) {
        self.store.word(node, HEADER + at * 2 + 1).store(self.medium(), word);
        let _ordered = self.medium().ordered_within_line();
    }

    /// Makes the line of an entry durable.
    fn persist(&self, node: u64, at: usize, step: &'static str) {
        let Durable { .. } = self.medium().persist(self.store.word(node, HEADER + at * 2), step);
    }

    fn begins_line(at: usize) -> bool {
        (HEADER + at * 2).is_multiple_of(LINE_WORDS)
    }

    /// Entries up to the zero that ends them.
    fn count(&self, node: u64) -> usize {
        (0..self.capacity).take_while(|at| self.word(node, *at) != 0).count()
    }

    fn entries(&self, node: u64) -> Vec<(u64, u64)> {
        (0..self.count(node)).map(|at| (self.key(node, at), self.word(node, at))).collect()
    }

    /// The right sibling, if the aim lies there.
    #[inline(always)]
    fn right_of(&self, node: u64, aim: Aim) -> Result<Option<u64>> {
        let next = self.store.load(node, NEXT);
        if next == 0 {
            return Ok(None);
        }
        self.store.lock(next)?;
        Ok(aim.is_at_or_after(self.store.load(next, LOW)).then_some(next))
    }

    /// Goes to the node of an aim on a level, without locks. `None`: the root stands below it.
    fn descend_inner(&self, aim: Aim, level: u64) -> Result<Option<u64>> {
        // Pairs with the store when the root was split.
        let mut node = self.root.load(Acquire);
        self.store.lock(node)?;
        let mut at = self.level(node)?;
        if at < level {
            return Ok(None);
        }
        while at > level {
            let mut child = self.store.load(node, LEFTMOST);
            let mut at_end = true;
            for place in 0..self.capacity {
                // Before an entry has its word, its key may be anything.
                if self.word(node, place) == 0 {
                    break;
                }
                // Entries shift to the right only, child before key: what is read in between leads
                // to the left of the aim, from where siblings lead on.
                let (key, word) = (self.key(node, place), self.word(node, place));
                if word == 0 {
                    break;
                }
                if !aim.is_at_or_after(key) {
                    at_end = false;
                    break;
                }
                child = word;
            }
            // Only behind the last entry can the aim be the sibling's.
            if at_end && let Some(next) = self.right_of(node, aim)? {
                node = next;
                continue;
            }
            self.store.lock(child)?;
            at -= 1;
            if self.level(child)? != at {
                return Err(damaged("a node of another level", child));
            }
            node = child;
        }
        Ok(Some(node))
    }

    fn level(&self, node: u64) -> Result<u64> {
        match self.store.load(node, 0) {
            level @ 1..=LEVELS_MAX => Ok(level - 1),
            _ => Err(damaged("a reference to no node", node)),
        }
    }

    #[inline(always)]
    fn descend(&self, aim: Aim) -> Result<Found<'_>> {
        let mut leaf = self.descend_inner(aim, 0)?.expect("every tree has leaves");
        loop {
            let lock = self.store.lock(leaf)?;
            let Some(version) = lock.read() else { return Err(damaged("an obsolete node", leaf)) };
            // From entry to entry, as published.
            let ends = |at: &usize| self.word(leaf, *at) == 0 || !aim.is_at_or_after(self.key(leaf, *at));
            let place = (0..self.capacity).find(ends).unwrap_or(self.capacity);
            let at_end = place == self.capacity || self.word(leaf, place) == 0;
            let right = if at_end { self.right_of(leaf, aim)? } else { None };
            match right {
                _ if !lock.validate(version) => {}
                Some(next) => leaf = next,
                None => return Ok(Found { leaf, lock, version, place }),
            }
        }
    }

    /// The item of a key, or its place, where a descent ended.
    #[inline(always)]
    fn find(&self, leaf: u64, place: usize, key: u64) -> std::result::Result<(usize, u64), usize> {
        match place.checked_sub(1) {
            Some(at) if self.key(leaf, at) == key => Ok((at, self.word(leaf, at).wrapping_sub(1))),
            _ => Err(place),
        }
    }

    /// FAST: adds an entry to a locked node with room, durably.
    fn add(&self, node: u64, key: u64, word: u64, is_leaf: bool) {
        let count = self.count(node);
        let at = (0..count).position(|at| self.key(node, at) > key).unwrap_or(count);
        if count + 1 < self.capacity && self.word(node, count + 1) != 0 {
            // What was cut off, or was there in another life, lies behind the zero that is about to go.
            self.set_word(node, count + 1, 0);
            if Self::begins_line(count + 1) {
                self.persist(node, count + 1, "fastfair insert.1");
            }
        }
        for from in (at..count).rev() {
            if from + 1 == count {
                self.set_key(node, from + 1, self.key(node, from));
                self.set_word(node, from + 1, self.word(node, from));
            } else {
                self.set_word(node, from + 1, self.word(node, from));
                self.set_key(node, from + 1, self.key(node, from));
            }
            if Self::begins_line(from + 1) {
                self.persist(node, from + 1, "fastfair insert.2");
            }
        }
        if at == count {
            // Behind the zero nothing is seen.
            self.set_key(node, at, key);
            self.set_word(node, at, word);
        } else if is_leaf {
            // The place has its right neighbour's key, so it does not count until it gets its own.
            self.set_word(node, at, word);
            self.set_key(node, at, key);
        } else {
            // It leads where its left neighbour leads until it gets its own child.
            let left = if at == 0 { self.store.load(node, LEFTMOST) } else { self.word(node, at - 1) };
            self.set_word(node, at, left);
            self.set_key(node, at, key);
            self.set_word(node, at, word);
        }
        self.persist(node, at, "fastfair insert.3");
    }

    /// Takes an entry out of a locked node whose right neighbour, if any, may have its key.
    fn take_out(&self, node: u64, at: usize) {
        let count = self.count(node);
        for to in at..count - 1 {
            self.set_key(node, to, self.key(node, to + 1));
            self.set_word(node, to, self.word(node, to + 1));
            if Self::begins_line(to + 1) {
                self.persist(node, to, "fastfair delete.1");
            }
        }
        self.set_word(node, count - 1, 0);
        self.persist(node, count - 1, "fastfair delete.2");
    }

    /// Writes a node that nobody knows.
    fn fill(&self, node: u64, header: [u64; HEADER], entries: &[(u64, u64)]) -> Flushed {
        let entries = entries.iter().flat_map(|(key, word)| [*key, *word]);
        let end = (entries.clone().count() < self.capacity * 2).then_some([0, 0]);
        let words: Vec<u64> = header.into_iter().chain(entries).chain(end.into_iter().flatten()).collect();
        let cells = self.store.words(node, 0, words.len());
        cells.iter().zip(words).for_each(|(cell, word)| cell.store(self.medium(), word));
        self.medium().flush(cells, "fastfair split.1")
    }

    /// FAIR: splits a locked full node and unlocks it; then the level above hears of it.
    fn split(&self, node: u64, level: u64, held: Locked<'_>) -> Result<()> {
        let medium = self.medium();
        let right = self.store.alloc()?;
        let entries = self.entries(node);
        let kept = entries.len() / 2;
        let (separator, middle) = entries[kept];
        let moved = if level == 0 { &entries[kept..] } else { &entries[kept + 1..] };
        let leftmost = if level == 0 { 0 } else { middle };
        let header = [level + 1, self.store.load(node, NEXT), separator, leftmost];
        let durable = medium.fence(self.fill(right, header, moved), "fastfair split.1");
        self.store.word(node, NEXT).publish(medium, right, &durable, "fastfair split.2");
        let Durable { .. } = medium.persist(self.store.word(node, NEXT), "fastfair split.2");
        // As published. Recovery would cut a node where its sibling begins without it.
        self.set_word(node, kept, 0);
        self.persist(node, kept, "fastfair split.3");
        drop(held);
        if level == 0 {
            self.census.leaves.add(1);
        }
        self.tell(level + 1, separator, right)
    }

    /// A level hears of a new node below it.
    fn tell(&self, level: u64, separator: u64, child: u64) -> Result<()> {
        loop {
            let Some(mut node) = self.descend_inner(Aim::At(separator), level)? else {
                if self.grow(level, separator, child)? {
                    return Ok(());
                }
                continue;
            };
            let held = loop {
                let held = Locked::wait(self.store.lock(node)?);
                match self.right_of(node, Aim::At(separator))? {
                    Some(next) => node = next,
                    None => break held,
                }
            };
            if self.count(node) < self.capacity {
                self.add(node, separator, child, false);
                return Ok(());
            }
            self.split(node, level, held)?;
        }
    }

    /// A root for a level that is not there yet; `false`: it is there by now.
    fn grow(&self, level: u64, separator: u64, child: u64) -> Result<bool> {
        let _rooting = wait::lock(&self.rooting);
        let (medium, old) = (self.medium(), self.root.load(Acquire));
        if self.level(old)? >= level {
            return Ok(false);
        }
        let root = self.store.alloc()?;
        let flushed = self.fill(root, [level + 1, 0, 0, old], &[(separator, child)]);
        let durable = medium.fence(flushed, "fastfair grow.1");
        self.name(root, &durable);
        Ok(true)
    }

    fn name(&self, root: u64, durable: &Durable) {
        let (medium, anchor) = (self.medium(), self.store.pool.anchor(self.store.id));
        anchor.publish(medium, root, durable, "fastfair grow.2");
        let Durable { .. } = medium.persist(anchor, "fastfair grow.2");
        // Pairs with the loads of those who descend.
        self.root.store(root, Release);
    }

    /// Where the right sibling begins.
    fn high(&self, node: u64) -> Option<u64> {
        let next = self.store.load(node, NEXT);
        self.store.lock(next).ok().filter(|_| next != 0).map(|_| self.store.load(next, LOW))
    }

    /// Puts right what a crash left of a node: entries that moved to the right sibling, and one that
    /// is there twice.
    fn mend(&self, node: u64, level: u64) {
        if let Some(high) = self.high(node) {
            let kept = self.entries(node).partition_point(|(key, _)| *key < high);
            if kept < self.count(node) {
                self.set_word(node, kept, 0);
                self.persist(node, kept, "fastfair mend.1");
            }
        }
        let mut at = 0;
        while at < self.count(node) {
            let twice = if level == 0 {
                at + 1 < self.count(node) && self.key(node, at) == self.key(node, at + 1)
            } else {
                let left = if at == 0 { self.store.load(node, LEFTMOST) } else { self.word(node, at - 1) };
                self.word(node, at) == left
            };
            if twice { self.take_out(node, at) } else { at += 1 }
        }
    }

    /// Goes through the nodes, level by level from the root: items, nodes, and the nodes that no
    /// parent leads to, with the level that should hear of them and where they begin.
    fn walk(&self, visit: &mut impl FnMut(u64, u64) -> Result<()>) -> Result<(u64, u64, Vec<[u64; 3]>)> {
        let mut first = self.root.load(Acquire);
        self.store.lock(first)?;
        let mut level = self.level(first)?;
        let (mut items, mut leaves, mut strays) = (0, 0, Vec::new());
        let mut expected: HashMap<u64, u64> = HashMap::new();
        loop {
            let (mut node, mut below) = (first, 0);
            let mut children = HashMap::new();
            while node != 0 {
                self.store.lock(node)?;
                visit(node, level)?;
                if self.level(node)? != level {
                    return Err(damaged("a node of another level", node));
                }
                let low = self.store.load(node, LOW);
                if (node == first) != (low == 0) || low < below {
                    return Err(damaged("siblings out of order", node));
                }
                match expected.remove(&node) {
                    None if node != first => strays.push([level + 1, low, node]),
                    Some(told) if told != low => return Err(damaged("a child in the wrong place", node)),
                    _ => {}
                }
                let (entries, high) = (self.entries(node), self.high(node));
                let inside = |key: u64| low <= key && high.is_none_or(|high| key < high);
                if !entries.is_sorted_by(|left, right| left.0 < right.0)
                    || !entries.iter().all(|entry| inside(entry.0))
                {
                    return Err(damaged("keys out of order", node));
                }
                if level == 0 {
                    (items, leaves) = (items + entries.len() as u64, leaves + 1);
                }
                if level > 0 && node != first {
                    children.insert(self.store.load(node, LEFTMOST), low);
                }
                children.extend(entries.into_iter().map(|(key, child)| (child, key)));
                (node, below) = (self.store.load(node, NEXT), low);
            }
            if let Some(stray) = expected.keys().next() {
                return Err(damaged("a child beside its level", *stray));
            }
            if level == 0 {
                return Ok((items, leaves, strays));
            }
            (first, level, expected) = (self.store.load(first, LEFTMOST), level - 1, children);
        }
    }
}

impl<M: Medium> Core<M> for FastFair<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        let capacity = (store.node_words() - HEADER) / 2;
        let root = pool.anchor(entry.id).load(pool.medium());
        let tree = Self {
            store,
            capacity,
            root: AtomicU64::new(root),
            rooting: Mutex::default(),
            census: Census::default(),
        };
        if root == 0 {
            let root = tree.store.alloc()?;
            let flushed = tree.fill(root, [1, 0, 0, 0], &[]);
            let durable = tree.medium().fence(flushed, "fastfair create.1");
            tree.name(root, &durable);
            tree.census.leaves.add(1);
            return Ok(tree);
        }
        let (items, leaves, strays) = tree.walk(&mut |node, level| {
            tree.mend(node, level);
            tree.store.mark_live(node)
        })?;
        tree.store.finish_recovery();
        tree.census.items.add(items as i64);
        tree.census.leaves.add(leaves as i64);
        for [level, low, node] in strays.into_iter().rev() {
            match tree.tell(level, low, node) {
                // Siblings lead to it as well.
                Ok(()) | Err(Error::PoolFull { .. } | Error::MediumFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tree)
    }

    fn store(&self) -> &Store<M> {
        &self.store
    }

    fn census(&self) -> &Census {
        &self.census
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        loop {
            let Found { leaf, lock, version, place } = self.descend(Aim::At(key)).ok()?;
            let found = self.find(leaf, place, key);
            if lock.validate(version) {
                return found.ok().map(|(_, value)| value);
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            let Found { leaf, lock, version, place } = self.descend(Aim::At(key))?;
            if !lock.upgrade(version) {
                continue;
            }
            let held = Locked::held(lock);
            let found = self.find(leaf, place, key);
            let old = found.ok().map(|(_, value)| value);
            match (decide(old), found) {
                (Fate::Gets(u64::MAX), _) => {
                    return Err(Error::invalid(format!("fastfair cannot keep the value {}", u64::MAX)));
                }
                (Fate::Gets(value), Ok((at, _))) => {
                    self.set_word(leaf, at, value + 1);
                    self.persist(leaf, at, "fastfair update");
                }
                (Fate::Goes, Ok((at, _))) => {
                    self.take_out(leaf, at);
                    self.census.items.add(-1);
                }
                (Fate::Gets(_), Err(_)) if self.count(leaf) == self.capacity => {
                    self.split(leaf, 0, held)?;
                    continue;
                }
                (Fate::Gets(value), Err(_)) => {
                    self.add(leaf, key, value + 1, true);
                    self.census.items.add(1);
                }
                (Fate::Stays, _) | (Fate::Goes, Err(_)) => {}
            }
            drop(held);
            self.store.pool.health()?;
            return Ok(old);
        }
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        loop {
            let Found { leaf, lock, version, .. } = self.descend(aim)?;
            into.clear();
            into.extend(self.entries(leaf).into_iter().map(|(key, word)| (key, word.wrapping_sub(1))));
            let low = self.store.load(leaf, LOW);
            let span = Span { low: (low != 0).then_some(low), high: self.high(leaf) };
            if lock.validate(version) {
                return Ok(span);
            }
        }
    }

    fn check(&self) -> Vec<Finding> {
        let mut nodes = 0;
        let found = self.walk(&mut |_, _| {
            nodes += 1;
            Ok(())
        });
        let mut findings = Vec::new();
        let mut expect = |what: &str, there: u64, due: u64| {
            if there != due {
                findings.push(Finding::new(what, format!("{there}, where {due} are due")));
            }
        };
        match found {
            Ok((items, _, _)) => {
                expect("items", items, self.census.items.sum());
                expect("nodes", nodes, self.store.stats().live_slots);
            }
            Err(error) => findings.push(Finding::new("tree", error.to_string())),
        }
        findings
    }
}
