//! Multi-key calls with kinds that are known at run time.

use bristlecone_pm::{Error, Result};

use super::encode::{Records, Role, Stored, Words};
use super::tree::{On, each};
use super::{Datum, Tree};
use crate::ManyError;
use crate::api::value::undecodable;

type Done = std::result::Result<(), ManyError>;

/// Returns the error for a call that completed no item.
fn none_done(error: Error) -> ManyError {
    ManyError { done: 0, error }
}

/// Multi-key operations.
impl Tree {
    /// Looks up keys and sets `found` to their values, in the order of the keys: see
    /// [`crate::Tree::get_many`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// use bristlecone::dynamic::Datum;
    ///
    /// pool.tree::<&str, u64>("ages")?.upsert_many(&[("Methuselah", 4857), ("Prometheus", 4900)])?;
    /// let ages = pool.dynamic_tree("ages")?;
    /// let mut found = Vec::new();
    /// ages.get_many(&["Prometheus".into(), "Pando".into()], &mut found)?;
    /// assert_eq!(found, [Some(Datum::U64(4900)), None]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get_many(&self, keys: &[Datum<'_>], found: &mut Vec<Option<Datum<'static>>>) -> Result<()> {
        let kind = self.value_kind();
        found.clear();
        each!(&self.on, tree => {
            let own = self.own_keys::<K>(keys)?;
            let keys: Vec<_> = own.iter().map(K::lend_bound).collect();
            found.resize(keys.len(), None);
            let mut damaged = false;
            tree.look_up_many(&keys, &mut |at, value| {
                found[at] = V::view(kind, Role::Value, value).map(Datum::into_owned);
                damaged |= found[at].is_none();
            })?;
            if damaged { Err(undecodable("value", kind)) } else { Ok(()) }
        })
    }

    /// Sets `found` to whether each key is present, in the order of the keys.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn contains_many(&self, keys: &[Datum<'_>], found: &mut Vec<bool>) -> Result<()> {
        found.clear();
        each!(&self.on, tree => {
            let own = self.own_keys::<K>(keys)?;
            let keys: Vec<_> = own.iter().map(K::lend_bound).collect();
            found.resize(keys.len(), false);
            tree.look_up_many(&keys, &mut |at, _| found[at] = true)
        })
    }

    /// Inserts or overwrites items one after the other, and sets `old` to the previous values: see
    /// [`crate::Tree::insert_many`].
    ///
    /// # Errors
    ///
    /// The common errors, see [`Tree`], with the number of completed items. If a key or value is of
    /// another kind, no item is written.
    pub fn insert_many(
        &self,
        items: &[(Datum<'_>, Datum<'_>)],
        old: &mut Vec<Option<Datum<'static>>>,
    ) -> Done {
        old.clear();
        each!(&self.on, tree => {
            let own = self.items::<K, V>(items).map_err(none_done)?;
            let items: Vec<_> = own.iter().map(|(key, value)| (K::lend_bound(key), V::lend_bound(value))).collect();
            let mut words = Vec::new();
            let done = tree.insert_many(&items, &mut words);
            old.extend(words.into_iter().map(|word| self.replaced::<V>(word)));
            done
        })
    }

    /// Inserts or overwrites items as [`insert_many`](Self::insert_many) does, without returning
    /// previous values.
    ///
    /// # Errors
    ///
    /// Same as [`insert_many`](Self::insert_many).
    pub fn upsert_many(&self, items: &[(Datum<'_>, Datum<'_>)]) -> Done {
        each!(&self.on, tree => {
            let own = self.items::<K, V>(items).map_err(none_done)?;
            let items: Vec<_> = own.iter().map(|(key, value)| (K::lend_bound(key), V::lend_bound(value))).collect();
            tree.upsert_many(&items)
        })
    }

    /// Removes keys one after the other, and sets `old` to the previous values: see
    /// [`crate::Tree::remove_many`].
    ///
    /// # Errors
    ///
    /// Same as [`insert_many`](Self::insert_many).
    pub fn remove_many(&self, keys: &[Datum<'_>], old: &mut Vec<Option<Datum<'static>>>) -> Done {
        old.clear();
        each!(&self.on, tree => {
            let own = self.own_keys::<K>(keys).map_err(none_done)?;
            let mut words = Vec::new();
            let done = tree.remove_many(&own.iter().map(K::lend_bound).collect::<Vec<_>>(), &mut words);
            old.extend(words.into_iter().map(|word| self.replaced::<V>(word)));
            done
        })
    }

    /// Returns keys in stored form.
    fn own_keys<K: Stored>(&self, keys: &[Datum<'_>]) -> Result<Vec<K::Bound>> {
        keys.iter().map(|key| self.key::<K, _>(key, K::bound)).collect()
    }

    /// Returns items in stored form.
    fn items<K: Stored, V: Stored>(
        &self,
        items: &[(Datum<'_>, Datum<'_>)],
    ) -> Result<Vec<(K::Bound, V::Bound)>> {
        let own = |(key, value): &(Datum<'_>, Datum<'_>)| {
            Ok((self.key::<K, _>(key, K::bound)?, self.value::<V, _>(value, V::bound)?))
        };
        items.iter().map(own).collect()
    }
}
