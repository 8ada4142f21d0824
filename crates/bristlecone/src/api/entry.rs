//! Entries: an atomic change of a key that may be present or absent.

use std::fmt;

use bristlecone_pm::Result;

use crate::api::fetch_update::Wanted;
use crate::{Key, Tree, TryInsertError, Value};

/// A key of a tree with a pending change. See [`Tree::entry`].
///
/// Because other threads may use the tree concurrently, an entry does not report whether its key is present. Only
/// the methods whose names begin with `or_` execute the change. Each is one atomic step together with all of
/// [`and_modify`](Self::and_modify), for other threads and across crashes. Closures may run more than once under
/// contention; only the last result counts.
#[must_use = "nothing happens before a method that begins with `or_`"]
pub struct Entry<'t, 'k, K: Key, V: Value, F = fn(&mut <V as Value>::Owned)> {
    tree: &'t Tree<K, V>,
    key: K::Ref<'k>,
    modify: Option<F>,
}

impl<K: Key, V: Value> Tree<K, V> {
    /// Returns the entry of a key, which changes or fills it in one atomic step.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let words = pool.tree::<&str, u64>("words")?;
    /// for word in "to be or not to be".split(' ') {
    ///     words.entry(word).and_modify(|count| *count += 1).or_insert(1)?;
    /// }
    /// assert_eq!(words.get("be")?, Some(2));
    /// assert_eq!(words.entry("not").or_insert(7)?, 1);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn entry<'t, 'k>(&'t self, key: K::Ref<'k>) -> Entry<'t, 'k, K, V> {
        Entry { tree: self, key, modify: None }
    }
}

impl<'t, 'k, K: Key, V: Value, F: FnMut(&mut V::Owned)> Entry<'t, 'k, K, V, F> {
    /// Returns the key.
    pub fn key(&self) -> K::Ref<'k> {
        self.key
    }

    /// Adds a change of the value, which applies if the key is present.
    pub fn and_modify<G: FnMut(&mut V::Owned)>(
        self,
        mut modify: G,
    ) -> Entry<'t, 'k, K, V, impl FnMut(&mut V::Owned)> {
        let Self { tree, key, modify: mut first } = self;
        let both = move |value: &mut V::Owned| {
            if let Some(first) = &mut first {
                first(value);
            }
            modify(value);
        };
        Entry { tree, key, modify: Some(both) }
    }

    /// Inserts a value if the key is absent; returns the resulting value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::fetch_update`].
    pub fn or_insert(self, value: V::Ref<'_>) -> Result<V::Owned> {
        let own = || {
            let own = V::with(&self.tree.values, value, |value| Ok(V::decode(&self.tree.values, value)));
            own?.ok_or_else(|| self.tree.undecodable_value())
        };
        if self.modify.is_some() {
            let value = own()?;
            return self.or_insert_with(|| value);
        }
        match self.tree.try_insert(self.key, value) {
            Ok(()) => own(),
            Err(TryInsertError::Present(held)) => Ok(held),
            Err(TryInsertError::Failed(error)) => Err(error),
        }
    }

    /// Inserts the result of `make` if the key is absent; returns the resulting value. `make` is called only if the
    /// key is absent, and at most once.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::fetch_update`].
    pub fn or_insert_with(self, make: impl FnOnce() -> V::Owned) -> Result<V::Owned> {
        self.or_insert_with_key(|_| make())
    }

    /// Inserts the result of `make` applied to the key if it is absent: otherwise the same as
    /// [`or_insert_with`](Self::or_insert_with).
    ///
    /// # Errors
    ///
    /// Same as [`Tree::fetch_update`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let lengths = pool.tree::<&str, u64>("lengths")?;
    /// assert_eq!(lengths.entry("oak").or_insert_with_key(|name| name.len() as u64)?, 3);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn or_insert_with_key(self, make: impl FnOnce(K::Ref<'k>) -> V::Owned) -> Result<V::Owned> {
        let (key, mut make) = (self.key, Some(make));
        let now = self.change_or_fill(|| make.take().map(|make| make(key)))?;
        Ok(now.expect("what is absent is inserted"))
    }

    /// Inserts the type's default value if the key is absent; returns the resulting value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::fetch_update`].
    pub fn or_default(self) -> Result<V::Owned>
    where
        V::Owned: Default,
    {
        self.or_insert_with(V::Owned::default)
    }

    /// Leaves an absent key absent; otherwise returns the resulting value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::fetch_update`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Pando", 14_000)?;
    /// assert_eq!(ages.entry("Pando").and_modify(|age| *age += 1).or_absent()?, Some(14_001));
    /// assert_eq!(ages.entry("Yggdrasil").and_modify(|age| *age += 1).or_absent()?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn or_absent(self) -> Result<Option<V::Owned>> {
        self.change_or_fill(|| None)
    }

    /// Changes the present value or inserts the result of `make`; returns the resulting value.
    fn change_or_fill(mut self, mut make: impl FnMut() -> Option<V::Owned>) -> Result<Option<V::Owned>> {
        let mut made = None;
        let changed = self.tree.alter(self.key, |old| {
            Ok(match (old.cloned(), &mut self.modify) {
                (Some(mut value), Some(modify)) => {
                    modify(&mut value);
                    Wanted::Be(Some(value))
                }
                (Some(_), None) => Wanted::Same,
                (None, _) => {
                    made = made.take().or_else(&mut make);
                    Wanted::Be(made.clone())
                }
            })
        });
        changed.map(|(_, now)| now)
    }
}

impl<K: Key, V: Value, F> fmt::Debug for Entry<'_, '_, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("tree", self.tree).finish_non_exhaustive()
    }
}
