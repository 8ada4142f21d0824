//! A tree whose entries expire and whose kinds are known at run time.

use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use bristlecone_pm::{Error, Result};

use super::encode::{Records, Stored, Words, view_value};
use super::tree::On;
use super::{Bounds, Datum, Item, Kind, Range, Tree};
use crate::api::kinds::expiring::EXPIRY_BYTES;
use crate::api::value::undecodable;
use crate::{CasError, ExpiredRemoval, Expiring, Expiry, TryInsertError};

/// The tree, by the codec of its keys. Values are the bytes behind the time of an entry.
#[derive(Clone, Debug)]
enum OnKeys {
    Word(crate::ExpiringTree<u64, Vec<u8>>),
    Record(crate::ExpiringTree<Vec<u8>, Vec<u8>>),
}

/// Runs the same code for each codec of keys: `K` is their stored form.
macro_rules! each {
    ($on:expr, $tree:ident => $do:expr) => {
        match $on {
            OnKeys::Word($tree) => {
                #[allow(dead_code, reason = "not every operation needs it")]
                type K = Words;
                $do
            }
            OnKeys::Record($tree) => {
                #[allow(dead_code, reason = "not every operation needs it")]
                type K = Records;
                $do
            }
        }
    };
}

/// A tree with values of a kind `Expiring<…>`: for its operations, an entry whose time has come is absent.
///
/// [`Tree::expiring`] returns it. Operations have the guarantees and the errors of those of [`crate::ExpiringTree`] with
/// the same name, and the common errors of [`Tree`].
///
/// ```
/// use bristlecone::dynamic::{Datum, Kind};
/// use bristlecone::{Expiry, Pool};
/// use std::time::Duration;
///
/// # let pool = Pool::temporary()?;
/// let options = pool.tree_options("sessions").expire_after(Duration::from_secs(3600));
/// let sessions = options.create_dynamic(&Kind::Str, &"Expiring<u64>".parse()?)?.expiring()?;
/// sessions.insert("ada", 7u64, None)?;
/// sessions.insert("grace", 8u64, Expiry::from_millis(1))?;
/// assert_eq!((sessions.get("ada")?, sessions.get("grace")?), (Some(Datum::U64(7)), None));
/// assert_eq!(sessions.remove_expired(1000)?.removed, 1);
/// # Ok::<(), bristlecone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExpiringTree {
    entries: Tree,
    on: OnKeys,
}

impl Tree {
    /// Returns the tree with operations for which expired entries are absent.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if its values are of another kind than `Expiring<…>`.
    pub fn expiring(self) -> Result<ExpiringTree> {
        let on = match (&self.on, self.value_kind()) {
            (On::WordRecord(tree), Kind::Expiring(_)) => {
                OnKeys::Word(tree.clone().retyped::<u64, Expiring<Vec<u8>>>().expiring())
            }
            (On::RecordRecord(tree), Kind::Expiring(_)) => {
                OnKeys::Record(tree.clone().retyped::<Vec<u8>, Expiring<Vec<u8>>>().expiring())
            }
            (_, found) => {
                let (name, found) = (self.name().to_owned(), found.to_string());
                let (what, asked) = ("values of type", "Expiring<…>".to_owned());
                return Err(Error::Mismatch { name, what, found, asked });
            }
        };
        Ok(ExpiringTree { entries: self, on })
    }
}

impl ExpiringTree {
    /// Replaces the clock of this handle and of its later clones: see [`crate::ExpiringTree::with_clock`].
    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        let on = match self.on {
            OnKeys::Word(tree) => OnKeys::Word(tree.with_clock(clock)),
            OnKeys::Record(tree) => OnKeys::Record(tree.with_clock(clock)),
        };
        Self { on, ..self }
    }

    /// Returns the tree of all entries, expired or not, with their times.
    pub fn entries(&self) -> &Tree {
        &self.entries
    }

    /// Returns the kind of the tree's values, without their times.
    pub fn value_kind(&self) -> &Kind {
        match self.entries.value_kind() {
            Kind::Expiring(kind) => kind,
            other => other,
        }
    }

    /// Returns the time of the tree's clock.
    pub fn now(&self) -> SystemTime {
        each!(&self.on, tree => tree.now())
    }

    /// Returns the expiry after a duration from now on.
    pub fn after(&self, time: Duration) -> Expiry {
        each!(&self.on, tree => tree.after(time))
    }

    /// Returns the time after which a value expires whose write names no expiry.
    pub fn expire_after(&self) -> Option<Duration> {
        each!(&self.on, tree => tree.expire_after())
    }

    /// Returns the expiry of a value that is written now without one.
    pub fn default_expiry(&self) -> Expiry {
        each!(&self.on, tree => tree.default_expiry())
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn get<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Datum<'static>>> {
        self.get_with(key, |value, _| value.into_owned())
    }

    /// Calls `show` with the value of a key and its expiry, without copying strings and bytes.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn get_with<'a, R>(
        &self,
        key: impl Into<Datum<'a>>,
        show: impl FnOnce(Datum<'_>, Expiry) -> R,
    ) -> Result<Option<R>> {
        let now = self.now();
        let shown =
            self.entries.get_with(key, |entry| live(entry, now).map(|(value, at)| show(value, at)))?;
        Ok(shown.flatten())
    }

    /// Returns when a key expires; `None` if it is absent.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn expiry<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Expiry>> {
        self.get_with(key, |_, expiry| expiry)
    }

    /// Returns whether the tree contains a key.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn contains_key<'a>(&self, key: impl Into<Datum<'a>>) -> Result<bool> {
        Ok(self.expiry(key)?.is_some())
    }

    /// Returns the items whose keys lie within bounds, in order, from both ends. An item that expires after this call is
    /// still returned.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::range`].
    pub fn range<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<ExpiringRange<'_>> {
        Ok(self.of(self.entries.range(bounds)?))
    }

    /// Returns the items within bounds of the tree of entries, as [`range`](Self::range) does: see
    /// [`Tree::prefix_bounds`].
    ///
    /// # Errors
    ///
    /// Same as [`Tree::range_within`].
    pub fn range_within(&self, bounds: &Bounds) -> Result<ExpiringRange<'_>> {
        Ok(self.of(self.entries.range_within(bounds)?))
    }

    fn of<'t>(&self, entries: Range<'t>) -> ExpiringRange<'t> {
        ExpiringRange { entries, now: self.now() }
    }

    /// Inserts or overwrites the value of a key and its expiry; returns the previous value.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn insert<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<Option<Datum<'static>>> {
        let (key, value) = (key.into(), value.into());
        let held = each!(&self.on, tree => {
            self.item::<K, _>(&key, &value, |key, value| tree.insert(key, value, expiry))
        })?;
        Ok(held.and_then(|held| self.datum(&held)))
    }

    /// Inserts or overwrites the value of a key and its expiry without returning the previous value.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn upsert<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        each!(&self.on, tree => self.item::<K, _>(&key, &value, |key, value| tree.upsert(key, value, expiry)))
    }

    /// Inserts a key if it is absent.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Present`] with the current value if the key is present; nothing has changed then.
    /// Otherwise the common errors: see [`Tree`].
    pub fn try_insert<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
        expiry: impl Into<Option<Expiry>>,
    ) -> std::result::Result<(), TryInsertError<Datum<'static>>> {
        let (key, value) = (key.into(), value.into());
        let held = each!(&self.on, tree => self.item::<K, _>(&key, &value, |key, value| {
            match tree.try_insert(key, value, expiry) {
                Ok(()) => Ok(None),
                Err(present) => present.into_present().map(Some),
            }
        }))?;
        held.map_or(Ok(()), |held| Err(TryInsertError::Present(self.found(&held)?)))
    }

    /// Replaces the value of an existing key and its expiry; returns the previous value, or `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn update<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<Option<Datum<'static>>> {
        let (key, value) = (key.into(), value.into());
        let held = each!(&self.on, tree => {
            self.item::<K, _>(&key, &value, |key, value| tree.update(key, value, expiry))
        })?;
        held.map(|held| self.found(&held)).transpose()
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn remove<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Datum<'static>>> {
        let key = key.into();
        let held = each!(&self.on, tree => self.entries.key::<K, _>(&key, |key| tree.remove(key)))??;
        Ok(held.and_then(|held| self.datum(&held)))
    }

    /// Changes a key from an expected value to a new one with its expiry; `None` means an absent key. The expiry that the
    /// key had does not count.
    ///
    /// # Errors
    ///
    /// [`CasError::Found`] with the current value if the key is not as expected; nothing has changed then.
    /// Otherwise the common errors: see [`Tree`].
    pub fn compare_and_swap<'k>(
        &self,
        key: impl Into<Datum<'k>>,
        expected: Option<Datum<'_>>,
        new: Option<(Datum<'_>, Expiry)>,
    ) -> std::result::Result<(), CasError<Datum<'static>>> {
        let key = key.into();
        let expected = expected.map(|value| self.stored(&value, <[u8]>::to_vec)).transpose()?;
        let own =
            |(value, expiry): (Datum<'_>, _)| Ok::<_, Error>((self.stored(&value, <[u8]>::to_vec)?, expiry));
        let new = new.map(own).transpose()?;
        let new = new.as_ref().map(|(value, expiry)| (&value[..], *expiry));
        let found = each!(&self.on, tree => self.entries.key::<K, _>(&key, |key| {
            match tree.compare_and_swap(key, expected.as_deref(), new) {
                Ok(()) => Ok(None),
                Err(found) => found.into_found().map(Some),
            }
        }))??;
        let Some(found) = found else { return Ok(()) };
        Err(CasError::Found(found.map(|held| self.found(&held)).transpose()?))
    }

    /// Sets when a key expires, and keeps its value. Returns the previous expiry, or `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn set_expiry<'a>(
        &self,
        key: impl Into<Datum<'a>>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<Option<Expiry>> {
        let key = key.into();
        each!(&self.on, tree => self.entries.key::<K, _>(&key, |key| tree.set_expiry(key, expiry)))?
    }

    /// Reads up to `budget` entries and removes the expired ones among them: see
    /// [`crate::ExpiringTree::remove_expired`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn remove_expired(&self, budget: u64) -> Result<ExpiredRemoval> {
        each!(&self.on, tree => tree.remove_expired(budget))
    }

    /// Calls `use_it` with the bytes behind the time of an entry with this value.
    fn stored<R>(&self, value: &Datum<'_>, use_it: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let entry = Datum::Expiring(Box::new(value.borrowed()), Expiry::NEVER);
        self.entries.value::<Records, _>(&entry, |entry| use_it(&entry[EXPIRY_BYTES..]))
    }

    /// Calls `use_it` with the stored form of a key and a value.
    fn item<K: Stored, R>(
        &self,
        key: &Datum<'_>,
        value: &Datum<'_>,
        use_it: impl FnOnce(K::Ref<'_>, &[u8]) -> Result<R>,
    ) -> Result<R> {
        self.entries.key::<K, _>(key, |key| self.stored(value, |value| use_it(key, value)))??
    }

    /// Decodes a value; `None` if it does not decode as its kind.
    fn datum(&self, stored: &[u8]) -> Option<Datum<'static>> {
        view_value(self.value_kind(), stored).map(Datum::into_owned)
    }

    fn found(&self, stored: &[u8]) -> Result<Datum<'static>> {
        self.datum(stored).ok_or_else(|| undecodable("value", self.entries.value_kind()))
    }
}

/// Returns the value of an entry and its expiry, unless it has expired.
fn live(entry: Datum<'_>, now: SystemTime) -> Option<(Datum<'_>, Expiry)> {
    match entry {
        Datum::Expiring(value, expiry) if !expiry.is_over(now) => Some((*value, expiry)),
        _ => None,
    }
}

/// An iterator over the items of a tree that have not expired. See [`ExpiringTree::range`].
#[derive(Debug)]
pub struct ExpiringRange<'t> {
    entries: Range<'t>,
    now: SystemTime,
}

impl ExpiringRange<'_> {
    fn live(&self, entry: Result<Item>) -> Option<Result<Item>> {
        let now = self.now;
        entry.map(|(key, entry)| live(entry, now).map(|(value, _)| (key, value))).transpose()
    }
}

impl Iterator for ExpiringRange<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        loop {
            let entry = self.entries.next()?;
            if let Some(item) = self.live(entry) {
                return Some(item);
            }
        }
    }
}

impl DoubleEndedIterator for ExpiringRange<'_> {
    fn next_back(&mut self) -> Option<Result<Item>> {
        loop {
            let entry = self.entries.next_back()?;
            if let Some(item) = self.live(entry) {
                return Some(item);
            }
        }
    }
}

impl std::iter::FusedIterator for ExpiringRange<'_> {}
