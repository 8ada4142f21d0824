//! Bounds in the stored form of keys: encoded once, for scans that continue later.

use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Error, Result};

use super::encode::{Records, Role, Stored, Words, prefix};
use super::tree::{On, each};
use super::{Datum, Range, Tree};
use crate::api::prefix::limits_of_prefix;

const OTHER_KEYS: &str = "these bounds are of a tree with keys of another type";

/// A key in stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Word(u64),
    Record(Box<[u8]>),
}

/// Bounds of the keys of one tree, returned by [`Tree::bounds`] and [`Tree::prefix_bounds`].
/// [`Tree::range_within`] reads them any number of times, and they can be narrowed when part of a scan is
/// done.
///
/// ```
/// use bristlecone::Pool;
/// # let pool = bristlecone::Pool::temporary()?;
///
/// let kinds = ("(str, u32)".parse()?, "u64".parse()?);
/// let visits = pool.tree_options("visits").create_dynamic(&kinds.0, &kinds.1)?;
/// for (page, year) in [("/", 2025u32), ("/about", 2025), ("/about", 2026), ("/api", 2026)] {
///     visits.insert((page, year), 1u64)?;
/// }
/// let mut about = visits.prefix_bounds(("/about",))?;
/// let (first, _) = visits.range_within(&about)?.next().unwrap()?;
/// assert_eq!(first, ("/about", 2025u32).into());
/// // The scan continues behind it, at any later time.
/// visits.narrow(&mut about, &first, false)?;
/// assert_eq!(visits.range_within(&about)?.count(), 1);
/// # drop((visits, pool));
/// # Ok::<(), bristlecone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bounds {
    from: Bound<Place>,
    to: Bound<Place>,
}

/// The stored form of keys, and its conversion to bounds.
trait Placed: Stored {
    fn place(key: Self::Bound) -> Place;

    /// Returns the bound for a tree of such keys, or `None` if it belongs to a tree of other keys.
    fn of(place: &Place) -> Option<Self::Bound>;
}

impl Placed for Words {
    fn place(key: u64) -> Place {
        Place::Word(key)
    }

    fn of(place: &Place) -> Option<u64> {
        if let Place::Word(word) = place { Some(*word) } else { None }
    }
}

impl Placed for Records {
    fn place(key: Box<[u8]>) -> Place {
        Place::Record(key)
    }

    fn of(place: &Place) -> Option<Box<[u8]>> {
        if let Place::Record(record) = place { Some(record.clone()) } else { None }
    }
}

/// Returns a bound of a tree's keys, or `None` for a bound of other keys.
fn placed<K: Placed>(bound: &Bound<Place>) -> Option<Bound<K::Bound>> {
    Some(match bound.as_ref().map(K::of) {
        Bound::Included(key) => Bound::Included(key?),
        Bound::Excluded(key) => Bound::Excluded(key?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

impl Tree {
    /// Returns bounds of keys, for [`range_within`](Self::range_within).
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a bound of another kind.
    pub fn bounds<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<Bounds> {
        each!(&self.on, _tree => {
            let place = |bound| Ok::<_, Error>(self.bound::<K>(bound)?.map(K::place));
            Ok(Bounds { from: place(bounds.start_bound())?, to: place(bounds.end_bound())? })
        })
    }

    /// Returns the bounds of the keys that begin with a prefix: see [`prefix`](Self::prefix).
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a datum that cannot be a prefix of the tree's keys.
    pub fn prefix_bounds<'a>(&self, of: impl Into<Datum<'a>>) -> Result<Bounds> {
        let of = of.into();
        let bytes = prefix(self.key_kind(), &of).map_err(|why| self.unfit(Role::Key, &of, why))?;
        let (from, to) = limits_of_prefix(&bytes);
        Ok(Bounds { from: from.map(Place::Record), to: to.map(Place::Record) })
    }

    /// Excludes the scanned part from `bounds`: everything up to `key`, or from `key` on if the scan goes
    /// `backward`.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a key of another kind.
    pub fn narrow<'a>(&self, bounds: &mut Bounds, key: impl Into<Datum<'a>>, backward: bool) -> Result<()> {
        let key = key.into();
        let place = each!(&self.on, _tree => self.key::<K, _>(&key, |key| K::place(K::bound(key))))?;
        *(if backward { &mut bounds.to } else { &mut bounds.from }) = Bound::Excluded(place);
        Ok(())
    }

    /// Returns the items within bounds of this tree, as [`range`](Self::range) does.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for bounds of a tree with other keys; [`Error::Forked`].
    pub fn range_within(&self, bounds: &Bounds) -> Result<Range<'_>> {
        self.opened_here()?;
        let kinds = (self.key_kind(), self.value_kind());
        each!(&self.on, tree => match (placed::<K>(&bounds.from), placed::<K>(&bounds.to)) {
            (Some(from), Some(to)) => Ok(Range::new::<K, V>(crate::Range::new(tree, from, to), kinds)),
            _ => Err(Error::invalid(OTHER_KEYS)),
        })
    }

    /// Returns the items within bounds of a tree of `u64` keys and values, as the typed tree's
    /// [`range`](crate::Tree::range) does. This takes less time than [`range_within`](Self::range_within).
    /// Returns `None` for a tree of other kinds.
    ///
    /// # Errors
    ///
    /// Same as [`range_within`](Self::range_within).
    pub fn words_within(&self, bounds: &Bounds) -> Result<Option<crate::Range<'_, u64, u64>>> {
        self.opened_here()?;
        let Some(tree) = self.as_u64() else { return Ok(None) };
        match (placed::<Words>(&bounds.from), placed::<Words>(&bounds.to)) {
            (Some(from), Some(to)) => Ok(Some(tree.range((from, to)))),
            _ => Err(Error::invalid(OTHER_KEYS)),
        }
    }

    /// Atomically removes the items within bounds of this tree; returns the number removed: see
    /// [`remove_range`](Self::remove_range).
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]; [`Error::Invalid`] for bounds of a tree with other keys. Nothing has changed after
    /// any of them.
    pub fn remove_within(&self, bounds: &Bounds) -> Result<u64> {
        self.opened_here()?;
        each!(&self.on, tree => match (placed::<K>(&bounds.from), placed::<K>(&bounds.to)) {
            (Some(from), Some(to)) => tree.remove_within((from, to)),
            _ => Err(Error::invalid(OTHER_KEYS)),
        })
    }

    /// Returns the number of items within bounds of this tree: see [`count`](Self::count).
    ///
    /// # Errors
    ///
    /// Same as [`range_within`](Self::range_within).
    pub fn count_within(&self, bounds: &Bounds) -> Result<u64> {
        self.opened_here()?;
        each!(&self.on, tree => match (placed::<K>(&bounds.from), placed::<K>(&bounds.to)) {
            (Some(from), Some(to)) => tree.walk((from, to)).count(),
            _ => Err(Error::invalid(OTHER_KEYS)),
        })
    }
}
