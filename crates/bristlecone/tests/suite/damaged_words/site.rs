//! A pool whose words are replaced one at a time, and the following checks.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::places::{Harm, Pages, Place};
use crate::common::{Cell, Items, Noise, Plant, Scratch};
use bristlecone::{Error, KeepIndex, Key, Pool, Tree, Value};
use bristlecone_pm::Geometry;

/// Number of items of a tree, if there is space.
const ITEMS: u64 = 180;
/// Number of chunks that stay free for later inserts.
const SPARE_CHUNKS: u64 = 5;
/// More than any tree holds here.
const MANY: usize = 4000;
/// Limit of processor time for one check of a pool.
const PATIENCE: Duration = Duration::from_secs(2);

type Item<I> = (<<I as Items>::K as Key>::Owned, <<I as Items>::V as Value>::Owned);

/// The outcome of a wrong word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// An error when the pool or the tree was opened.
    Refused,
    /// Readable items of a tree that recovery refuses, in a read-only pool.
    Served,
    /// Issues of `check`.
    Found,
    /// The correct items.
    Right,
    /// Other items, without a report, where format.md has no checksum.
    Wrong,
    /// The same by chance, where 63 of 64 are noticed.
    Chance,
}

/// Additional tests after the check of a damaged pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deep {
    Salvage,
    /// Writes, and another opening.
    Live,
}

/// A pool with a tree.
pub struct Site<I: Items> {
    cell: Cell,
    scratch: Scratch,
    file: File,
    pub pages: Pages,
    truth: Vec<Item<I>>,
}

/// Observations on an opened tree.
struct Looked<I: Items> {
    items: Vec<Item<I>>,
    issues: usize,
    /// Whether recovery refused the tree.
    is_salvaged: bool,
}

type Said<T> = std::result::Result<T, String>;

impl<I: Items> Site<I> {
    pub fn new(cell: Cell) -> Self {
        let scratch = Scratch::new();
        let geometry = Geometry {
            chunk_bytes: cell.pool_size.chunk_bytes,
            chunks_max: cell.pool_size.chunks_max,
            trees_max: cell.pool_size.beside + 2,
        };
        scratch.format(geometry);
        let options = Pool::options().keep_index(KeepIndex::Never).domain(cell.domain).recovery_threads(1);
        let pool = options.open(&scratch.0).unwrap();
        for number in 0..cell.pool_size.beside {
            let beside = pool.tree_options(&format!("beside {number}")).create::<&str, u64>().unwrap();
            (0..5).for_each(|at| assert_eq!(beside.insert(&format!("key {at}"), at).unwrap(), None));
        }
        let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
        let mut last = 0;
        for at in 0..ITEMS {
            tree.upsert(I::key_ref(&I::key(at)), I::value_ref(&value::<I>(at))).unwrap();
            last = at;
            if at % 8 == 0 && free_chunks(&pool) < SPARE_CHUNKS {
                break;
            }
        }
        (0..last).step_by(5).for_each(|at| drop(tree.remove(I::key_ref(&I::key(at))).unwrap()));
        // The last change of many leaves is an insert, and of some an update.
        for at in (0..last).step_by(10).chain((1..last).step_by(7)) {
            tree.upsert(I::key_ref(&I::key(at)), I::value_ref(&value::<I>(at + 1))).unwrap();
        }
        assert_eq!(tree.check(), []);
        drop(tree);
        pool.close().unwrap();
        let pages = Pages::new(std::fs::read(&scratch.0).unwrap(), cell.configuration);
        let file = File::options().write(true).open(&scratch.0).unwrap();
        let mut site = Self { cell, scratch, file, pages, truth: Vec::new() };
        site.truth = site.look().unwrap().unwrap().items;
        site
    }

    /// Lists the words, and starts from a state in which as many as possible are valid.
    pub fn places(&mut self) -> Vec<Place> {
        let places = self.pages.places();
        self.restore();
        let looked = self.look().unwrap().unwrap();
        assert!(looked.issues == 0 && looked.items == self.truth, "{}: what a crash leaves", self.cell);
        places
    }

    fn restore(&self) {
        self.file.write_all_at(&self.pages.bytes, 0).unwrap();
        self.file.set_len(self.pages.bytes.len() as u64).unwrap();
    }

    /// Returns replacements of a word: values that it could be mistaken for, and impossible ones.
    pub fn values(&self, place: Place, others: &[Place], noise: &mut Noise) -> BTreeSet<u64> {
        let (own, len) = (self.pages.word(place.at), self.pages.bytes.len() as u64);
        let mut another = || self.pages.word(others[noise.below(others.len() as u64) as usize].at);
        let mut values = BTreeSet::from([0, 1, 2, u64::MAX, own.wrapping_add(4), len, 1 << 45, 1 << 63]);
        // Its neighbours, and two others of its kind, complete and combined with the low half of its
        // own.
        let others = [another(), another()];
        values.extend([self.pages.word(place.at + 8), self.pages.word(place.at - place.at.min(8))]);
        values.extend([others[0], others[1], others[0] & !0xffff | own & 0xffff, others[1] ^ 1]);
        // Offsets: of itself, of its line, of another one.
        let aligned = others[0] & !0xff;
        values.extend([
            place.at as u64,
            place.at as u64 & !63,
            place.at as u64 | 1,
            aligned << 16 | own & 0xffff,
        ]);
        // Changes of single bytes and bits: staged slot, stamp, presence bits.
        values.extend([own.wrapping_add(8), own.wrapping_sub(8), own.wrapping_add(16), own ^ 2, own ^ 0b101]);
        values.extend([own ^ 1 << 56, own ^ 5 << 56, own | 0xff << 56, own & !(0xff << 56)]);
        values.extend([1 << 48 | 2, (1 << 62) - 3, ((1 << 62) - 3) << 2 | 2, u64::MAX - 1]);
        values.extend([own ^ 1 << noise.below(64), own ^ 1 << noise.below(16), own ^ 1 << 63, noise.next()]);
        values.remove(&own);
        values
    }

    /// Tries a value in a place, with the additional tests.
    pub fn attempt(&self, place: Place, value: u64, deep: Option<Deep>) -> Said<Outcome> {
        let begun = processor_time();
        self.file.write_all_at(&value.to_le_bytes(), place.at as u64).unwrap();
        let tried = catch_unwind(AssertUnwindSafe(|| {
            let outcome = self.verify(place, value)?;
            match deep {
                Some(Deep::Salvage) => self.salvage(place, value)?,
                Some(Deep::Live) => self.live(outcome)?,
                None => {}
            }
            Ok(outcome)
        }));
        if deep == Some(Deep::Live) {
            self.restore();
        } else {
            self.file.write_all_at(&self.pages.bytes[place.at..place.at + 8], place.at as u64).unwrap();
        }
        let outcome = tried.unwrap_or_else(|_| Err("a panic".to_owned()))?;
        let took = processor_time() - begun;
        if took > PATIENCE { Err(format!("it took {took:?}")) } else { Ok(outcome) }
    }

    fn harm(&self, place: Place, value: u64) -> Harm {
        (place.harm)(&self.pages, self.pages.word(place.at), value)
    }

    fn verify(&self, place: Place, value: u64) -> Said<Outcome> {
        let looked = match self.look()? {
            Err(_) => return Ok(Outcome::Refused),
            Ok(looked) => looked,
        };
        let differ = self.differing(&looked.items);
        if looked.is_salvaged {
            return Ok(Outcome::Served);
        }
        if looked.issues > 0 {
            return Ok(Outcome::Found);
        }
        match self.harm(place, value) {
            _ if differ == 0 => Ok(Outcome::Right),
            // A wrong key is one missing item and one additional one.
            Harm::Items(items) if differ <= 2 * items => Ok(Outcome::Wrong),
            Harm::Any => Ok(Outcome::Wrong),
            Harm::Chance => Ok(Outcome::Chance),
            harm => Err(format!("{differ} items differ, and nothing is said ({harm:?})")),
        }
    }

    /// Returns the number of items that are missing, wrong or invented.
    fn differing(&self, items: &[Item<I>]) -> usize {
        let (mut differ, mut rest) = (0, items.iter().peekable());
        for (key, value) in &self.truth {
            while rest.next_if(|(found, _)| found < key).is_some() {
                differ += 1;
            }
            let found = rest.next_if(|(found, _)| found == key);
            differ += usize::from(found.is_none_or(|(_, found)| found != value));
        }
        differ + rest.count()
    }

    /// Opens the pool without changing its file, checks it and reads it in every way.
    fn look(&self) -> Said<std::result::Result<Looked<I>, Error>> {
        let pool = Pool::options().read_only(true).recovery_threads(1).open(&self.scratch.0);
        self.look_at(pool)
    }

    fn look_at(&self, pool: bristlecone::Result<Pool>) -> Said<std::result::Result<Looked<I>, Error>> {
        let opened = pool.and_then(|pool| {
            let tree: Tree<I::K, I::V> = pool.tree_options("t").open()?;
            Ok((pool, tree))
        });
        let (pool, tree) = match opened {
            Ok(opened) => opened,
            Err(error) => return known(error).map(Err),
        };
        let is_salvaged = tree.is_salvaged();
        if is_salvaged {
            self.look_at_salvaged(&tree)?;
        }
        let issues = tree.check().len() + pool.check().len();
        let items: Vec<_> = tree.readable(..).filter_map(Result::ok).take(MANY).collect();
        let mut back: Vec<_> = tree.readable(..).filter_map(Result::ok).rev().take(MANY).collect();
        back.reverse();
        if items.len() == MANY {
            return Err("items without end".to_owned());
        }
        let gets =
            |(key, value): &Item<I>| matches!(tree.get(I::key_ref(key)), Ok(Some(found)) if found == *value);
        let (agree, absent) = (items.iter().all(gets), self.truth.iter().filter(|item| !gets(item)).count());
        if issues == 0 {
            let ordered = items.is_sorted_by(|a, b| a.0 < b.0);
            let missing = self.truth.iter().filter(|item| !items.contains(item)).count();
            let same =
                items == back && tree.len().is_ok_and(|len| len == items.len() as u64) && absent == missing;
            if !agree || !ordered || !same {
                let [n, back, len] = [items.len(), back.len(), tree.len().unwrap_or(0) as usize];
                return Err(format!(
                    "a check that lies: {agree} {ordered}, {n} items, {back} back, {len} counted"
                ));
            }
        }
        Ok(Ok(Looked { items, issues, is_salvaged }))
    }

    /// Reads a tree that recovery refused. A checked read returns an error, or the truth.
    fn look_at_salvaged(&self, tree: &Tree<I::K, I::V>) -> Said<()> {
        if tree.check().is_empty() || tree.damage().is_empty() || tree.len().is_ok() {
            return Err("recovery refuses the tree, and nothing is said".to_owned());
        }
        let said = |what: &str, error: &Error| match error {
            Error::Corrupted { .. } => Ok(()),
            error => Err(format!("{what} of a salvaged tree: {error}")),
        };
        // The keys of the tree, and keys that are absent.
        let absent = (ITEMS..ITEMS + 20).chain((0..ITEMS).step_by(5)).map(I::key);
        let present = self.truth.iter().map(|(key, _)| key.clone());
        for key in present.chain(absent) {
            let truth = self.truth.iter().find(|(held, _)| *held == key).map(|(_, value)| value);
            {
                match tree.get(I::key_ref(&key)) {
                    Ok(found) if found.as_ref() == truth => {}
                    Ok(found) => {
                        let lie = format!("a checked lookup finds {found:?}, not {truth:?}");
                        return Err(format!("{lie}: {:?}", tree.damage()));
                    }
                    Err(error) => said("a lookup", &error)?,
                }
            }
        }
        for down in [false, true] {
            let (mut range, mut truth) = (tree.range(..), self.truth.iter());
            loop {
                let found = if down { range.next_back() } else { range.next() };
                match (found, if down { truth.next_back() } else { truth.next() }) {
                    (Some(Ok(item)), Some(wanted)) if item == *wanted => {}
                    (Some(Err(error)), _) => break said("a scan", &error)?,
                    (found, wanted) => {
                        let lie = format!("a checked scan finds {found:?}, not {wanted:?}");
                        return Err(format!("{lie}: {:?}", tree.damage()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes to the pool despite any damage; if there was none, the writes must be found again.
    fn live(&self, outcome: Outcome) -> Said<()> {
        let open = || Pool::options().recovery_threads(1).open(&self.scratch.0);
        let opened = open().and_then(|pool| Ok((pool.tree_options("t").open::<I::K, I::V>()?, pool)));
        let (tree, pool) = match opened {
            Ok(opened) if outcome != Outcome::Served => opened,
            Err(Error::Corrupted { .. }) if outcome == Outcome::Served => return Ok(()),
            Err(_) if outcome == Outcome::Refused => return Ok(()),
            Ok(_) => return Err("recovery refuses the tree in read-only pools only".to_owned()),
            Err(error) => return Err(format!("open for reading only, and then: {error}")),
        };
        let clean = !matches!(outcome, Outcome::Refused | Outcome::Found);
        let mut model: Vec<Item<I>> = tree.readable(..).filter_map(Result::ok).take(MANY).collect();
        let (mut done, mut refused) = (true, None);
        for at in 0..60 {
            let key = I::key(at * 3 + 1);
            let key_ref = I::key_ref(&key);
            let place = model.binary_search_by(|(held, _)| held.cmp(&key));
            let wrote = if at % 3 == 0 {
                let removed = tree.remove(key_ref);
                if removed.is_ok()
                    && let Ok(place) = place
                {
                    model.remove(place);
                }
                removed.map(drop)
            } else {
                let value = value::<I>(at);
                let wrote = tree.upsert(key_ref, I::value_ref(&value));
                match (wrote.is_ok(), place) {
                    (true, Ok(place)) => model[place].1 = value,
                    (true, Err(place)) => model.insert(place, (key.clone(), value)),
                    _ => {}
                }
                wrote
            };
            if let Err(error) = wrote {
                done = false;
                refused = Some(error);
            }
        }
        if clean {
            let issues = tree.check();
            if !issues.is_empty() {
                return Err(format!("life brings issues: {issues:?}"));
            }
            match refused {
                Some(error) if !error.is_no_room() => return Err(format!("life does not go on: {error}")),
                _ => {}
            }
            if done && !tree.readable(..).filter_map(Result::ok).eq(model.iter().cloned()) {
                return Err("what was written is not there".to_owned());
            }
        }
        drop((tree, pool));
        let reopened = self.look_at(open())?;
        match reopened {
            _ if !clean => Ok(()),
            Ok(looked) if looked.issues == 0 && looked.items == model => Ok(()),
            Ok(looked) => Err(format!("opened again, {} issues", looked.issues)),
            Err(error) => Err(format!("opened again: {error}")),
        }
    }

    /// Salvages the pool: the result must be a sound tree, and lost items must be reported.
    fn salvage(&self, place: Place, value: u64) -> Said<()> {
        let to = Scratch::new();
        let salvage = match Pool::options().max_bytes(64 << 20).salvage(&self.scratch.0, &to.0) {
            Ok(salvage) => salvage,
            Err(error) => return known(error).map(drop).map_err(|what| format!("salvage: {what}")),
        };
        let pool = Pool::options().recovery_threads(1).open(&to.0);
        match self.look_at(pool)? {
            Ok(looked) if looked.issues > 0 => Err("what was salvaged has issues".to_owned()),
            Ok(looked) if salvage.is_whole() => {
                match (self.harm(place, value), self.differing(&looked.items)) {
                    (_, 0) | (Harm::Any | Harm::Chance, _) => Ok(()),
                    (Harm::Items(items), differ) if differ <= 2 * items => Ok(()),
                    (harm, differ) => Err(format!("salvage lies: {differ} items differ ({harm:?})")),
                }
            }
            Err(_) if matches!(self.harm(place, value), Harm::Any) => Ok(()),
            Err(error) if salvage.is_whole() => Err(format!("salvage lies: {error}")),
            _ => Ok(()),
        }
    }
}

/// Returns an error that describes the damage of a pool.
fn known(error: Error) -> Said<Error> {
    match error {
        Error::Corrupted { .. }
        | Error::Newer { .. }
        | Error::NotAPool { .. }
        | Error::NoSuchTree { .. }
        | Error::Mismatch { .. } => Ok(error),
        error => Err(error.to_string()),
    }
}

/// Returns a value of few bytes.
fn value<I: Items>(number: u64) -> <I::V as Value>::Owned {
    I::value(number / 6 * 8 + number % 6)
}

/// Returns the processor time of this thread so far.
fn processor_time() -> Duration {
    let ran = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(ran.split(' ').next().unwrap().parse().unwrap())
}

fn free_chunks(pool: &Pool) -> u64 {
    let info = pool.info();
    info.max_bytes / info.chunk_bytes - info.chunks + info.chunks_free
}
