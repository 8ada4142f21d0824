//! Bounds of keys as a tree has them: encoded once, for scans that go on later.

use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Error, Result};

use super::encode::{Records, Role, Stored, Unfit, Words, append};
use super::tree::{On, each};
use super::{Datum, Kind, Range, Tree};
use crate::api::kinds::Buffer;

/// A key as it is in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Word(u64),
    Record(Box<[u8]>),
}

/// Bounds of the keys of one tree: what [`Tree::bounds`] and [`Tree::prefix`] return, to be read with
/// [`Tree::range_within`], as often as it is wanted, and narrowed when a part of them is done.
///
/// ```
/// use bristlecone::Pool;
/// # fn main() -> bristlecone::Result<()> {
/// # let path = format!("/dev/shm/bristlecone-doc-bounds-{}.pool", std::process::id());
/// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
///
/// let kinds = ("(str, u32)".parse()?, "u64".parse()?);
/// let visits = pool.tree_options("visits").create_dynamic(&kinds.0, &kinds.1)?;
/// for (page, year) in [("/", 2025u32), ("/about", 2025), ("/about", 2026), ("/api", 2026)] {
///     visits.insert((page, year), 1u64)?;
/// }
/// let mut about = visits.prefix(("/about",))?;
/// let (first, _) = visits.range_within(&about)?.next().unwrap();
/// assert_eq!(first, ("/about", 2025u32).into());
/// // The scan goes on behind it, at any later time.
/// visits.narrow(&mut about, &first, false)?;
/// assert_eq!(visits.range_within(&about)?.count(), 1);
/// # drop((visits, pool));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bounds {
    from: Bound<Place>,
    to: Bound<Place>,
}

/// How keys are stored, with the places that they are.
trait Placed: Stored {
    fn place(key: Self::Ref<'_>) -> Place;

    /// `None`: the place is one of a tree of other keys.
    fn of(place: &Bound<Place>) -> Option<Bound<Self::Bound>>;
}

impl Placed for Words {
    fn place(key: u64) -> Place {
        Place::Word(key)
    }

    fn of(place: &Bound<Place>) -> Option<Bound<u64>> {
        let word = |place: &Place| if let Place::Word(word) = place { Some(*word) } else { None };
        transpose(place.as_ref().map(word))
    }
}

impl Placed for Records {
    fn place(key: &[u8]) -> Place {
        Place::Record(key.into())
    }

    fn of(place: &Bound<Place>) -> Option<Bound<Box<[u8]>>> {
        let record = |place: &Place| if let Place::Record(it) = place { Some(it.clone()) } else { None };
        transpose(place.as_ref().map(record))
    }
}

fn transpose<T>(bound: Bound<Option<T>>) -> Option<Bound<T>> {
    Some(match bound {
        Bound::Included(it) => Bound::Included(it?),
        Bound::Excluded(it) => Bound::Excluded(it?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// Returns the bounds of the byte strings that begin with `prefix`.
fn beginning_with(prefix: &[u8]) -> Bounds {
    // What follows them all: the prefix with its last byte that can be larger made so, and nothing behind it.
    let end = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Place::Record(end.into())
    });
    Bounds {
        from: Bound::Included(Place::Record(prefix.into())),
        to: end.map_or(Bound::Unbounded, Bound::Excluded),
    }
}

impl Tree {
    /// Returns bounds of keys, for [`range_within`](Self::range_within).
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a bound that is not of the keys' kind.
    pub fn bounds<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<Bounds> {
        let place = |bound: Bound<&Datum<'_>>| -> Result<Bound<Place>> {
            Ok(match bound {
                Bound::Included(key) => Bound::Included(self.place(key)?),
                Bound::Excluded(key) => Bound::Excluded(self.place(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok(Bounds { from: place(bounds.start_bound())?, to: place(bounds.end_bound())? })
    }

    /// Returns the bounds of the keys that begin with `prefix`: a text or bytes where keys are texts, bytes or
    /// arrays; the first elements, as they are, where keys are tuples.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for what no key of the tree can begin with; [`Error::Invalid`] for a tree whose keys are of
    /// another kind.
    pub fn prefix<'a>(&self, prefix: impl Into<Datum<'a>>) -> Result<Bounds> {
        let prefix = prefix.into();
        match (self.key_kind(), &prefix) {
            (Kind::Str, Datum::Str(text)) => Ok(beginning_with(text.as_bytes())),
            (Kind::Bytes, Datum::Bytes(bytes)) => Ok(beginning_with(bytes)),
            (Kind::Array(len), Datum::Bytes(bytes)) if bytes.len() <= *len => Ok(beginning_with(bytes)),
            (Kind::Tuple(kinds), Datum::Tuple(elements)) if elements.len() <= kinds.len() => {
                let mut bytes = Buffer::new();
                for (kind, element) in kinds.iter().zip(elements) {
                    append(kind, element, &mut bytes).map_err(|why| self.unfit(Role::Key, &prefix, why))?;
                }
                Ok(beginning_with(&bytes))
            }
            (Kind::Str | Kind::Bytes | Kind::Array(_) | Kind::Tuple(_), _) => {
                Err(self.unfit(Role::Key, &prefix, Unfit::Kind))
            }
            (kind, _) => Err(Error::invalid(format!(
                "keys of type {kind} begin with nothing: prefixes are for str, bytes, [u8; N] and tuples"
            ))),
        }
    }

    /// Leaves out of `bounds` what a scan has had: everything up to `key`, or from `key` on if the scan goes
    /// `backward`.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a key that is not of the keys' kind.
    pub fn narrow<'a>(&self, bounds: &mut Bounds, key: impl Into<Datum<'a>>, backward: bool) -> Result<()> {
        let place = Bound::Excluded(self.place(&key.into())?);
        *(if backward { &mut bounds.to } else { &mut bounds.from }) = place;
        Ok(())
    }

    /// Returns the items within bounds of this tree, as [`range`](Self::range) does.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for bounds that a tree of other keys gave; [`Error::Forked`].
    pub fn range_within(&self, bounds: &Bounds) -> Result<Range<'_>> {
        self.opened_here()?;
        let kinds = (self.key_kind(), self.value_kind());
        each!(&self.on, tree => match (K::of(&bounds.from), K::of(&bounds.to)) {
            (Some(from), Some(to)) => Ok(Range::new::<K, V>(crate::Range::new(tree, from, to), kinds)),
            _ => Err(Error::invalid("these bounds are of a tree with keys of another type")),
        })
    }

    fn place(&self, key: &Datum<'_>) -> Result<Place> {
        each!(&self.on, _tree => self.key::<K, _>(key, K::place))
    }
}
