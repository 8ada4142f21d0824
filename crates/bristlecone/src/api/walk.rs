//! Walking over a range in stored form, from one end, independent of the key and value types.

use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Error, Result};

use super::iter::{Limit, borrow};
use super::metrics::Operation;
use super::tree_write::Stored;
use crate::index::parts::codec::Codec;
use crate::index::{Batch, is_empty};
use crate::{Key, Tree, Value};

/// A walk over the items of a range, ascending or descending.
pub(crate) struct Walk<'t, K: Key, V: Value> {
    tree: &'t Tree<K, V>,
    batch: Batch<K::Codec, V::Codec>,
    from: Limit<K>,
    to: Limit<K>,
    down: bool,
}

impl<K: Key, V: Value> Tree<K, V> {
    /// Returns bounds in stored form.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a key of a dynamic tree that is of another kind.
    pub(crate) fn limits<'a>(&self, bounds: &impl RangeBounds<K::Ref<'a>>) -> Result<(Limit<K>, Limit<K>)> {
        let own = |key: &K::Ref<'a>| K::with(&self.keys, *key, |key| Ok(<K::Codec as Codec>::owned(key)));
        let own = |bound: Bound<&K::Ref<'a>>| {
            Result::Ok(match bound {
                Bound::Included(key) => Bound::Included(own(key)?),
                Bound::Excluded(key) => Bound::Excluded(own(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok((own(bounds.start_bound())?, own(bounds.end_bound())?))
    }

    /// Walks over a range in ascending order.
    pub(crate) fn walk(&self, (from, to): (Limit<K>, Limit<K>)) -> Walk<'_, K, V> {
        self.count_one(Operation::Scan);
        Walk { tree: self, batch: Batch::default(), from, to, down: false }
    }

    /// Walks over all items in ascending order, for changes: it includes items that damage may affect.
    pub(crate) fn walk_up(&self) -> Walk<'_, K, V> {
        self.walk((Bound::Unbounded, Bound::Unbounded)).lenient()
    }

    /// Walks over all items in descending order, likewise.
    pub(crate) fn walk_down(&self) -> Walk<'_, K, V> {
        Walk { down: true, ..self.walk_up() }
    }
}

impl<K: Key, V: Value> Walk<'_, K, V> {
    /// Counts the remaining items.
    pub(crate) fn count(mut self) -> Result<u64> {
        let mut count = 0;
        while self.next_leaf() {
            count += self.batch.entries.len() as u64;
            self.forget();
        }
        self.finish().map(|()| count)
    }

    /// Also returns items that damage may affect.
    pub(crate) fn lenient(mut self) -> Self {
        self.batch.lenient = true;
        self
    }

    /// Returns the position where the walk continues, and the damage that ended it.
    pub(crate) fn into_position(self) -> (Limit<K>, Option<Error>) {
        (self.from, self.batch.damage)
    }

    /// Returns the position behind the next leaf, if there is one.
    pub(crate) fn into_next_leaf(mut self) -> Option<Limit<K>> {
        self.next_leaf().then(|| {
            self.forget();
            self.from
        })
    }

    /// Returns the damage that ended the walk early, if any did.
    pub(crate) fn finish(self) -> Result<()> {
        self.batch.damage.map_or(Ok(()), Err)
    }

    fn next_leaf(&mut self) -> bool {
        if is_empty(&self.from, &self.to) {
            return false;
        }
        let bounds = (borrow::<K::Codec>(&self.from), borrow::<K::Codec>(&self.to));
        let tree = match self.tree.here() {
            Ok(tree) => tree,
            Err(error) => return self.batch.fail(error),
        };
        if self.down {
            tree.scan_backward(bounds, &mut self.batch)
        } else {
            tree.scan_forward(bounds, &mut self.batch)
        }
    }

    /// Skips the rest of a leaf.
    fn forget(&mut self) {
        let last = self.batch.entries.drain(..).next();
        last.into_iter().for_each(|(key, _)| self.leave(key));
    }

    /// Continues behind a key.
    fn leave(&mut self, key: Stored<K::Codec>) {
        let limit = if self.down { &mut self.to } else { &mut self.from };
        *limit = Bound::Excluded(key);
    }
}

impl<K: Key, V: Value> Iterator for Walk<'_, K, V> {
    type Item = (Stored<K::Codec>, Stored<V::Codec>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.entries.is_empty() && !self.next_leaf() {
            return None;
        }
        let (key, value) = self.batch.entries.pop()?;
        if self.batch.entries.is_empty() {
            self.leave(key.clone());
        }
        Some((key, value))
    }
}
