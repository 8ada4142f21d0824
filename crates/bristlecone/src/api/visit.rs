//! Visiting items in order without copying them.

use std::ops::{ControlFlow, RangeBounds};

use bristlecone_pm::Result;

use super::iter::borrow;
use super::metrics::Operation;
use super::value::undecodable;
use crate::index::parts::codec::Codec;
use crate::index::{Visit, is_empty};
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
        let mut is_decoded = true;
        let mut see = |key: <K::Codec as Codec>::Ref<'_>, value: <V::Codec as Codec>::Ref<'_>| {
            let shown = K::show(&self.keys, key, |key| V::view(&self.values, value, |value| f(key, value)));
            shown.flatten().unwrap_or_else(|| {
                is_decoded = false;
                ControlFlow::Break(())
            })
        };
        self.visit(&bounds, &mut Visit::Items(&mut see))?;
        if is_decoded {
            Ok(())
        } else {
            let kinds = format!("{} or {}", K::name(&self.keys), V::name(&self.values));
            Err(undecodable("key or value", kinds))
        }
    }

    /// Calls `f` with the keys that lie within bounds, in order, until it breaks. Otherwise like
    /// [`for_each_in`](Self::for_each_in), but values need not be read: NBTree and SSTree skip them, and report no damage of
    /// them.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get); `f` was called with the keys before the error.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// use std::ops::ControlFlow;
    ///
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.upsert_many(&[("General Sherman", 2_200), ("Methuselah", 4_857), ("Pando", 16_000)])?;
    /// let mut letters = 0;
    /// ages.for_each_key_in("H".., |name| {
    ///     letters += name.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(letters, 15);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn for_each_key_in<'a>(
        &self,
        bounds: impl RangeBounds<K::Ref<'a>>,
        mut f: impl FnMut(K::Ref<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut is_decoded = true;
        let mut see = |key: <K::Codec as Codec>::Ref<'_>| {
            K::show(&self.keys, key, &mut f).unwrap_or_else(|| {
                is_decoded = false;
                ControlFlow::Break(())
            })
        };
        self.visit(&bounds, &mut Visit::Keys(&mut see))?;
        if is_decoded { Ok(()) } else { Err(undecodable("key", K::name(&self.keys))) }
    }

    fn visit<'a>(
        &self,
        bounds: &impl RangeBounds<K::Ref<'a>>,
        visit: &mut Visit<'_, K::Codec, V::Codec>,
    ) -> Result<()> {
        let tree = self.here()?;
        self.count_one(Operation::Scan);
        let (from, to) = self.limits(bounds)?;
        if is_empty(&from, &to) {
            return Ok(());
        }
        tree.visit((borrow::<K::Codec>(&from), borrow::<K::Codec>(&to)), visit)
    }
}
