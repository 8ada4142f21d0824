//! Bounds in the stored form of keys: encoded once, for scans that continue later.

use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Error, Result};

use super::{Datum, Dynamic};
use crate::api::iter::Limit;
use crate::index::parts::encoded::Encoded;
use crate::{Key, Value};

/// Bounds of the keys of one tree, returned by [`Tree::bounds`](crate::Tree::bounds) and [`Tree::prefix_bounds`](crate::Tree::prefix_bounds).
/// [`Tree::range_within`](crate::Tree::range_within) reads them any number of times, and they can be narrowed when part of a scan is
/// done.
///
/// ```
/// use bristlecone::Pool;
/// # let pool = bristlecone::Pool::temporary()?;
///
/// let kinds = ("(str, u32)".parse()?, "u64".parse()?);
/// let visits = pool.tree_options("visits").create_dynamic(&kinds.0, &kinds.1)?;
/// for (page, year) in [("/", 2025u32), ("/about", 2025), ("/about", 2026), ("/api", 2026)] {
///     visits.insert(&(page, year).into(), &1u64.into())?;
/// }
/// let mut about = visits.prefix_bounds(&("/about",).into())?;
/// let (first, _) = visits.range_within(&about).next().unwrap()?;
/// assert_eq!(first, ("/about", 2025u32).into());
/// // The scan continues behind it, at any later time.
/// visits.narrow(&mut about, &first, false)?;
/// assert_eq!(visits.range_within(&about).count(), 1);
/// # drop((visits, pool));
/// # Ok::<(), bristlecone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bounds {
    from: Limit<Dynamic>,
    to: Limit<Dynamic>,
}

impl<V: Value> crate::Tree<Dynamic, V> {
    /// Returns bounds of keys, for [`range_within`](Self::range_within).
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a bound of another kind.
    pub fn bounds<'a>(&self, bounds: impl RangeBounds<&'a Datum<'a>>) -> Result<Bounds> {
        self.limits(&bounds).map(|(from, to)| Bounds { from, to })
    }

    /// Returns the bounds of the keys that begin with a prefix: see [`prefix`](Self::prefix).
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a datum that cannot be a prefix of the tree's keys.
    pub fn prefix_bounds(&self, of: &Datum<'_>) -> Result<Bounds> {
        self.prefix_limits(of).map(|(from, to)| Bounds { from, to })
    }

    /// Excludes the scanned part from `bounds`: everything up to `key`, or from `key` on if the scan goes
    /// `backward`.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a key of another kind.
    pub fn narrow(&self, bounds: &mut Bounds, key: &Datum<'_>, backward: bool) -> Result<()> {
        let place = <Dynamic as Key>::with(&self.keys, key, |key| Ok(key.to_owned()))?;
        *(if backward { &mut bounds.to } else { &mut bounds.from }) = Bound::Excluded(place);
        Ok(())
    }

    /// Returns the items within bounds of this tree, as [`range`](Self::range) does. For bounds of a tree with other
    /// keys, it yields [`Error::Invalid`].
    pub fn range_within(&self, bounds: &Bounds) -> crate::Range<'_, Dynamic, V> {
        match self.own(bounds) {
            Ok((from, to)) => crate::Range::new(self, from, to),
            Err(error) => crate::Range::refused(self, error),
        }
    }

    /// Returns the items within bounds of a tree of `u64` keys and values, as the typed tree's
    /// [`range`](crate::Tree::range) does. This takes less time than [`range_within`](Self::range_within).
    /// Returns `None` for a tree of other kinds.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for bounds of a tree with other keys.
    pub fn words_within(&self, bounds: &Bounds) -> Result<Option<crate::Range<'_, u64, u64>>> {
        let Some(tree) = self.as_u64() else { return Ok(None) };
        let (from, to) = self.own(bounds)?;
        Ok(Some(crate::Range::new(tree, from.map(word), to.map(word))))
    }

    /// Atomically removes the items within bounds of this tree; returns the number removed: see
    /// [`remove_range`](Self::remove_range).
    ///
    /// # Errors
    ///
    /// Same as [`remove_range`](Self::remove_range); [`Error::Invalid`] for bounds of a tree with other keys. Nothing has
    /// changed after any of them.
    pub fn remove_within(&self, bounds: &Bounds) -> Result<u64> {
        self.remove_limits(self.own(bounds)?)
    }

    /// Returns the number of items within bounds of this tree: see [`count`](Self::count).
    ///
    /// # Errors
    ///
    /// Same as [`count`](Self::count); [`Error::Invalid`] for bounds of a tree with other keys.
    pub fn count_within(&self, bounds: &Bounds) -> Result<u64> {
        self.walk(self.own(bounds)?).count()
    }

    /// Returns bounds if they are of a tree with such keys.
    fn own(&self, bounds: &Bounds) -> Result<(Limit<Dynamic>, Limit<Dynamic>)> {
        let is_own = |bound: &Limit<Dynamic>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => {
                matches!(key, Encoded::Word(_)) == self.key_kind().is_word()
            }
            Bound::Unbounded => true,
        };
        if is_own(&bounds.from) && is_own(&bounds.to) {
            return Ok((bounds.from.clone(), bounds.to.clone()));
        }
        Err(Error::invalid("these bounds are of a tree with keys of another type"))
    }
}

impl crate::ExpiringTree<Dynamic, Dynamic> {
    /// Returns the items within bounds of this tree, as [`range`](Self::range) does.
    pub fn range_within(&self, bounds: &Bounds) -> super::ExpiringRange<'_> {
        self.of(self.entries().range_within(bounds))
    }
}

fn word(key: Encoded) -> u64 {
    match key {
        Encoded::Word(word) => word,
        Encoded::Bytes(_) => unreachable!("the keys are words"),
    }
}
