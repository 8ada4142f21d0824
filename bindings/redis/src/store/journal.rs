//! A rollback journal: undoes changes of the pool whose other half the server's append-only file does not have.
//!
//! `MULTI`, scripts, `SWAPDB`, `FLUSHDB` and `DEL` may change maps and values of other types together. The pool has its part
//! immediately, and the file has the rest at the end of the server's turn. A start must undo the first part if a crash came
//! in between:
//!
//! 1. Each step of such a turn writes the old values into `redis.meta` too, under a number, and gives the server the command
//!    `OM.UNIT number` for its file. There it is in one transaction with the commands that the step belongs to.
//! 2. The server writes the file, and replies.
//! 3. When it wakes up, the journal is emptied in one step.
//! 4. At a start the file tells the last number that it has. *Steps with later numbers are undone, the last one first.*
//!
//! Nothing is undone that has a reply. So if the server replies before it writes the file, or has no file, the journal is
//! emptied before. If there is no room for a journal, it is emptied, and the steps of that turn are single ones.

use std::collections::HashSet;
use std::ops::Bound;
use std::time::SystemTime;

use bristlecone::{Batch, Error, Result, VALUE_BYTES_MAX};

use super::{Bytes, Garbage, NO_TIME, Store, borrowed, damaged, expiries, lock, number};
use crate::server;

/// What all keys of the journal begin with.
const PREFIX: &[u8] = b"undo:";
/// Lengths that values of rows have: each size of records has a chunk of its own.
const ROW_BYTES: [usize; 5] = [48, 496, 4080, 32_752, VALUE_BYTES_MAX];
/// Instead of the length of an old value: there was none.
const ABSENT: u32 = u32::MAX;

/// A tree whose changes can be undone.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// `redis.items`
    Items = 0,
    /// `redis.directory`
    Directory = 1,
    /// `redis.meta`
    Meta = 2,
    /// `redis.small`, whose keys are words: eight bytes big-endian.
    Small = 3,
    /// `redis.expiries`, whose values are numbers: eight bytes big-endian.
    Times = 4,
}

/// The journal in memory.
#[derive(Debug, Default)]
pub struct Journal {
    /// The keys of its rows.
    rows: Vec<Vec<u8>>,
    /// The last number.
    last: u64,
    /// What is to be removed in the background, once its removal cannot be undone any more.
    held: Vec<Garbage>,
    /// Names that lost their values in this turn, of whichever type.
    freed: HashSet<Vec<u8>>,
    /// All names of a database lost theirs.
    freed_all: bool,
    /// The replies of this turn are next.
    ends: bool,
    /// There is no room for a journal in this turn.
    is_off: bool,
    /// A start has not decided yet what is undone.
    undecided: bool,
}

/// The number of a step, and whether the server has an append-only file.
#[derive(Clone, Copy, Debug)]
struct Number(u64, bool);

/// A batch that can be undone.
pub struct Step<'s> {
    store: &'s Store,
    batch: Batch,
    number: Option<Number>,
    rows: Vec<Vec<u8>>,
    refused: Option<Error>,
}

impl Step<'_> {
    /// Inserts or overwrites the value of a key.
    pub fn insert(&mut self, of: Of, key: &[u8], value: &[u8]) {
        self.keep(of, key);
        match of {
            Of::Small => self.batch.insert(&self.store.small, word(key), value),
            of => self.batch.insert(self.store.tree(of), key, value),
        };
    }

    /// Removes a key if it is present.
    pub fn remove(&mut self, of: Of, key: &[u8]) {
        self.keep(of, key);
        match of {
            Of::Small => self.batch.remove(&self.store.small, word(key)),
            of => self.batch.remove(self.store.tree(of), key),
        };
    }

    /// Writes when a field expires; [`NO_TIME`]: it does not.
    pub fn set_time(&mut self, key: &[u8], time: u64) {
        self.keep(Of::Times, key);
        match self.store.expiries() {
            Some(tree) if time != NO_TIME => {
                _ = self.batch.insert(tree.entries(), key, expiries::entry(time))
            }
            Some(tree) => _ = self.batch.remove(tree.entries(), key),
            None => {}
        }
    }

    /// Writes what a key has into the journal.
    fn keep(&mut self, of: Of, key: &[u8]) {
        if self.number.is_some() {
            match self.store.get_in(of, key) {
                Ok(old) => self.keep_value(of, key, old),
                Err(error) => self.refused = Some(error),
            }
        }
    }

    fn keep_value(&mut self, of: Of, key: &[u8], old: Option<Vec<u8>>) {
        let Some(number) = self.number else { return };
        for (row, value) in rows_of(number, self.rows.len() as u32, of, key, old) {
            self.batch.insert(&self.store.meta, &row, &value);
            self.rows.push(row);
        }
    }
}

/// Returns the key of a small map as the word that it is.
fn word(key: &[u8]) -> u64 {
    key.try_into().map(u64::from_be_bytes).expect("keys of small maps have eight bytes")
}

/// Returns the rows of a change: the value from before, if there was one, and what was changed.
fn rows_of(
    Number(number, has_file): Number,
    at: u32,
    of: Of,
    key: &[u8],
    old: Option<Vec<u8>>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let old_bytes = old.as_ref().map_or(ABSENT, |old| old.len() as u32);
    let change = Change { has_file, of: of as u8, key: key.to_vec(), old_bytes };
    let old = old.map(|old| (row(number, at, true), old));
    let mut rows: Vec<_> = old.into_iter().chain([(row(number, at, false), change.to_bytes())]).collect();
    for (_, value) in &mut rows {
        if let Some(len) = ROW_BYTES.into_iter().find(|len| *len >= value.len()) {
            value.resize(len, 0);
        }
    }
    rows
}

/// What a row of the journal says of a change.
struct Change {
    /// The server had an append-only file.
    has_file: bool,
    of: u8,
    key: Vec<u8>,
    /// Length of the value from before, which the next row has, or [`ABSENT`].
    old_bytes: u32,
}

impl Change {
    fn to_bytes(&self) -> Vec<u8> {
        let lengths = [self.old_bytes.to_be_bytes(), (self.key.len() as u32).to_be_bytes()].concat();
        [&[u8::from(self.has_file), self.of], lengths.as_slice(), &self.key].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[has_file, of], rest) = bytes.split_first_chunk()?;
        let (old_bytes, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        Some(Self {
            has_file: has_file == 1,
            of,
            key: rest.get(..u32::from_be_bytes(*len) as usize)?.to_vec(),
            old_bytes: u32::from_be_bytes(*old_bytes),
        })
    }
}

/// Returns the key of a row: of what was changed, or of the value from before.
fn row(number: u64, at: u32, is_value: bool) -> Vec<u8> {
    [PREFIX, &number.to_be_bytes(), &at.to_be_bytes(), &[u8::from(is_value)]].concat()
}

impl Store {
    fn tree(&self, of: Of) -> &Bytes {
        match of {
            Of::Items => &self.items,
            Of::Directory => &self.directory,
            Of::Meta => &self.meta,
            Of::Small | Of::Times => unreachable!("its keys or its values are numbers"),
        }
    }

    fn get_in(&self, of: Of, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match of {
            Of::Small => self.small.get(word(key)),
            Of::Times => self.time_at(key).map(|time| time.map(|time| time.to_be_bytes().to_vec())),
            of => self.tree(of).get(key),
        }
    }

    pub(super) fn set_in(&self, of: Of, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match (of, value) {
            (Of::Small, Some(value)) => self.small.upsert(word(key), value),
            (Of::Small, None) => self.small.remove(word(key)).map(drop),
            (Of::Times, value) => self.set_time_at(key, value.map_or(Ok(NO_TIME), number)?),
            (of, Some(value)) => self.tree(of).upsert(key, value),
            (of, None) => self.tree(of).remove(key).map(drop),
        }
    }

    /// Returns whether changes are undone if the server does not write its file. `asked`: they belong to something else that the
    /// file will have.
    pub(super) fn has_journal(&self, asked: bool) -> bool {
        self.next_number(asked).is_some()
    }

    fn next_number(&self, asked: bool) -> Option<Number> {
        let turn = server::turn();
        let mut journal = lock(&self.journal);
        let is_mixed = turn.has_append_only_file && asked;
        let wanted = turn.is_unit || is_mixed || !journal.rows.is_empty();
        if !wanted || turn.is_loading || journal.is_off || journal.undecided {
            return None;
        }
        if journal.ends && journal.rows.is_empty() && server::may_reply_first() {
            return None;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        journal.last = (journal.last + 1).max(now.as_micros() as u64);
        Some(Number(journal.last, turn.has_append_only_file))
    }

    /// Commits what `fill` puts into a step, in one step.
    pub(super) fn in_one_step(&self, asked: bool, fill: impl Fn(&mut Step<'_>)) -> Result<()> {
        let number = self.next_number(asked);
        let done = self.try_step(number, &fill);
        if let (Ok(()), Some(Number(number, true))) = (&done, number) {
            server::append_unit(number);
        }
        match done {
            Err(error) if error.is_no_room() && number.is_some() => {
                self.empty_journal()?;
                lock(&self.journal).is_off = true;
                self.try_step(None, &fill)
            }
            done => done,
        }
    }

    /// Writes an item, or removes it, whose old value is known. Cheaper than a step: the rows are written first, and a row without
    /// its change is harmless.
    pub(super) fn replace(&self, of: Of, key: &[u8], old: Option<Vec<u8>>, new: Option<&[u8]>) -> Result<()> {
        let write = || self.set_in(of, key, new);
        let Some(number) = self.next_number(false) else { return write() };
        match self.keep_alone(number, of, key, old).and_then(|()| write()) {
            Ok(()) if number.1 => server::append_unit(number.0),
            Err(error) if error.is_no_room() => {
                self.empty_journal()?;
                lock(&self.journal).is_off = true;
                return write();
            }
            done => return done,
        }
        Ok(())
    }

    fn keep_alone(&self, number: Number, of: Of, key: &[u8], old: Option<Vec<u8>>) -> Result<()> {
        for (row, value) in rows_of(number, 0, of, key, old) {
            self.meta.upsert(&row, &value)?;
            lock(&self.journal).rows.push(row);
        }
        Ok(())
    }

    fn try_step(&self, number: Option<Number>, fill: &impl Fn(&mut Step<'_>)) -> Result<()> {
        let mut step =
            Step { store: self, batch: self.pool.batch(), number, rows: Vec::new(), refused: None };
        fill(&mut step);
        let Step { batch, rows, refused, .. } = step;
        refused.map_or(Ok(()), Err)?;
        batch.commit()?;
        lock(&self.journal).rows.extend(rows);
        Ok(())
    }

    /// Has something removed in the background, once that cannot be undone any more.
    pub(super) fn discard(&self, garbage: impl IntoIterator<Item = Garbage>) {
        let mut journal = lock(&self.journal);
        let of = if journal.rows.is_empty() { &mut *lock(&self.garbage) } else { &mut journal.held };
        of.extend(garbage);
    }

    /// Notes that a name has lost its value in this turn: if that is undone, so is the map that takes the name next. `None`: all
    /// names of a database have.
    pub fn note_freed(&self, name: Option<&[u8]>) {
        let mut journal = lock(&self.journal);
        match name {
            Some(name) => _ = journal.freed.insert(name.to_vec()),
            None => journal.freed_all = true,
        }
    }

    /// Returns whether a name has lost its value in this turn.
    pub(super) fn was_freed(&self, name: &[u8]) -> bool {
        let journal = lock(&self.journal);
        journal.freed_all || journal.freed.contains(name)
    }

    /// Empties the journal if the server may send its replies before it writes the file.
    pub fn end_turn(&self) -> Result<()> {
        let is_empty = {
            let mut journal = lock(&self.journal);
            journal.ends = true;
            journal.rows.is_empty()
        };
        if !is_empty && server::may_reply_first() { self.empty_journal() } else { Ok(()) }
    }

    /// Empties the journal: the server has written the file.
    pub fn begin_turn(&self) -> Result<()> {
        {
            let mut journal = lock(&self.journal);
            (journal.ends, journal.freed_all, journal.is_off) = (false, false, false);
            journal.freed.clear();
        }
        self.empty_journal()
    }

    /// Empties the journal: nothing of it will be undone.
    pub fn empty_journal(&self) -> Result<()> {
        let mut journal = lock(&self.journal);
        if journal.rows.is_empty() {
            return Ok(());
        }
        let mut batch = self.pool.batch();
        for row in &journal.rows {
            batch.remove(&self.meta, row);
        }
        match batch.commit() {
            // The first ones first, so that a start after a crash undoes the last ones.
            Err(error) if error.is_no_room() => {
                journal.rows.iter().try_for_each(|row| self.meta.remove(row).map(drop))?;
            }
            done => done?,
        }
        journal.rows.clear();
        lock(&self.garbage).append(&mut journal.held);
        Ok(())
    }

    /// Notes that a crash has left a journal, unless the pool does not count. Returns whether it has.
    pub(super) fn find_journal(&self) -> Result<bool> {
        let mut journal = lock(&self.journal);
        let bounds = (Bound::Included(PREFIX.to_vec()), Bound::Unbounded);
        for found in self.meta.range(borrowed(&bounds)) {
            let (key, _) = found?;
            if !key.starts_with(PREFIX) {
                break;
            }
            journal.rows.push(key);
        }
        journal.undecided = !journal.rows.is_empty();
        Ok(journal.undecided)
    }

    /// Undoes what a crash has left half done. `last`: the last number that the append-only file has, if it was read.
    pub fn decide(&self, last: Option<u64>) -> Result<()> {
        let rows = {
            let mut journal = lock(&self.journal);
            journal.last = journal.last.max(last.unwrap_or(0));
            if !journal.undecided {
                return Ok(());
            }
            journal.rows.clone()
        };
        for row in rows.iter().rev().filter(|row| row.last() == Some(&0)) {
            self.undo(row, last)?;
        }
        // The last ones first: a crash in between leaves what can be undone again.
        rows.iter().rev().try_for_each(|row| self.meta.remove(row).map(drop))?;
        {
            let mut journal = lock(&self.journal);
            journal.rows.clear();
            journal.undecided = false;
        }
        self.recover()
    }

    fn undo(&self, row: &[u8], last: Option<u64>) -> Result<()> {
        let short = || damaged("a row of the journal");
        let mut row = row.to_vec();
        let number = number(row.get(PREFIX.len()..PREFIX.len() + 8).ok_or_else(short)?)?;
        let change = self.meta.get(&row)?.as_deref().and_then(Change::from_bytes).ok_or_else(short)?;
        // A file that was not read says nothing.
        if change.has_file && last.is_none_or(|last| number <= last) {
            return Ok(());
        }
        let of = match change.of {
            0 => Of::Items,
            1 => Of::Directory,
            2 => Of::Meta,
            3 if change.key.len() == 8 => Of::Small,
            4 => Of::Times,
            _ => return Err(short()),
        };
        if change.old_bytes == ABSENT {
            return self.set_in(of, &change.key, None);
        }
        *row.last_mut().ok_or_else(short)? = 1;
        // It is written before its change, and the first to go when the journal is emptied.
        let Some(old) = self.meta.get(&row)? else { return Ok(()) };
        let old = old.get(..change.old_bytes as usize).ok_or_else(short)?;
        self.with_reserve(|| self.set_in(of, &change.key, Some(old)))
    }

    /// Returns whether a start still has to decide what is undone.
    pub(super) fn is_undecided(&self) -> bool {
        lock(&self.journal).undecided
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use crate::map::{Large, Map, Owned};

    fn open(path: &str) -> Store {
        let max_bytes = Some(96 << 20);
        Store::open(&Options { pool: path.to_owned(), max_bytes, ..Options::default() }).unwrap()
    }

    /// Returns the values of fields of a map after steps 1 to 4 of a server that has a file, or has none, and a start that reads
    /// what `last` says. Step 4 is a single one; of step 5 there is the old value alone. Beside it a small map has a field that counts
    /// the steps.
    fn after_steps(name: &str, has_file: bool, last: Option<u64>) -> Vec<Option<Vec<u8>>> {
        let path = format!("/dev/shm/bristlecone-redis-journal-{}-{name}.pool", std::process::id());
        let store = open(&path);
        store.set_ready(true).unwrap();
        let id = store.begin().unwrap();
        store.fill(id, &[(b"a", b"0"), (b"b", b"0")]).unwrap();
        let large = Large::new(id, None);
        store.attach(Map::Large(&large), 0, super::super::FOREVER, b"map").unwrap();
        let Owned::Small(small) = store.create(0, b"small", &[(b"n", Some(b"0"))], &[]).unwrap() else {
            panic!()
        };
        let key = |field: &str| super::super::item_key(id, field.as_bytes());
        let small_value =
            |n: u64| store.small_value(b"small", &[(b"n", Some(n.to_string().as_bytes()))]).unwrap();
        for number in 1..=3u64 {
            let step = store.try_step(Some(Number(number, has_file)), &|step: &mut Step<'_>| {
                step.insert(Of::Items, &key("a"), number.to_string().as_bytes());
                step.insert(Of::Small, &small.word().to_be_bytes(), &small_value(number));
                match number {
                    2 => step.remove(Of::Items, &key("b")),
                    3 => step.insert(Of::Items, &key("c"), b"3"),
                    _ => {}
                }
            });
            step.unwrap();
        }
        for number in 4..=5 {
            let old = store.items.get(&key("a")).unwrap();
            store.keep_alone(Number(number, has_file), Of::Items, &key("a"), old).unwrap();
            store.items.upsert(&key("a"), b"4").unwrap();
        }
        drop(store);
        let store = open(&path);
        assert!(store.is_undecided());
        store.decide(last).unwrap();
        assert!(!store.find_journal().unwrap());
        std::fs::remove_file(&path).unwrap();
        let of_large =
            ["a", "b", "c"].map(|field| store.value(Map::Large(&large), field.as_bytes(), NO_TIME).unwrap());
        [of_large.as_slice(), &[store.value(Map::Small(small), b"n", NO_TIME).unwrap()]].concat()
    }

    #[test]
    fn a_start_undoes_the_steps_that_the_file_has_not() {
        let value = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(after_steps("first", true, Some(1)), [value("1"), value("0"), None, value("1")]);
        assert_eq!(after_steps("third", true, Some(3)), [value("3"), None, value("3"), value("3")]);
        assert_eq!(after_steps("last", true, Some(4)), [value("4"), None, value("3"), value("3")]);
        assert_eq!(after_steps("unread", true, None), [value("4"), None, value("3"), value("3")]);
        assert_eq!(after_steps("none", false, Some(9)), [value("0"), value("0"), None, value("0")]);
        assert_eq!(after_steps("alone", false, None), [value("0"), value("0"), None, value("0")]);
    }
}
