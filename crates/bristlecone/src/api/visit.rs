//! Visiting items in order without copying them.

use std::ops::{ControlFlow, RangeBounds};

use bristlecone_pm::Result;

use super::iter::borrow;
use super::metrics::Operation;
use super::value::undecodable;
use crate::index::is_empty;
use crate::{Key, Tree, Value};

impl<K: Key, V: Value> Tree<K, V> {
    /// Calls `f` with the items whose keys lie within bounds, in order, until it breaks. Unlike [`range`](Self::range)
    /// it copies neither keys nor values: words, strings and bytes are passed as stored in the tree; options, tuples
    /// and serde values are decoded first. No lock is held during the call, so `f` may use the tree. While other
    /// threads write, it has the guarantees of [`range`](Self::range).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get); `f` was called with the items before the error.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// use std::ops::ControlFlow;
    ///
    /// let lines = pool.tree::<u64, &str>("lines")?;
    /// lines.upsert_many(&[(1, "one"), (2, "and two"), (3, ""), (4, "four")])?;
    /// let mut bytes = 0;
    /// lines.for_each_in(2.., |_, line| {
    ///     bytes += line.len();
    ///     if line.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    /// })?;
    /// assert_eq!(bytes, 7);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn for_each_in<'a>(
        &self,
        bounds: impl RangeBounds<K::Ref<'a>>,
        mut f: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let tree = self.here()?;
        self.count_one(Operation::Scan);
        let (from, to) = self.limits(&bounds)?;
        if is_empty(&from, &to) {
            return Ok(());
        }
        let mut is_decoded = true;
        tree.visit((borrow::<K::Codec>(&from), borrow::<K::Codec>(&to)), &mut |key, value| {
            let shown = K::show(&self.keys, key, |key| V::view(&self.values, value, |value| f(key, value)));
            shown.flatten().unwrap_or_else(|| {
                is_decoded = false;
                ControlFlow::Break(())
            })
        })?;
        if is_decoded {
            Ok(())
        } else {
            let kinds = format!("{} or {}", K::name(&self.keys), V::name(&self.values));
            Err(undecodable("key or value", kinds))
        }
    }
}
