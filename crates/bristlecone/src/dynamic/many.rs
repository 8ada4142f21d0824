//! Calls for many keys, of kinds that are known at run time.

use bristlecone_pm::{Error, Result};

use super::encode::{Records, Role, Stored, Words};
use super::tree::{On, each};
use super::{Datum, Tree};
use crate::ManyError;
use crate::api::value::undecodable;

type Done = std::result::Result<(), ManyError>;

/// Says that nothing was done.
fn none_done(error: Error) -> ManyError {
    ManyError { done: 0, error }
}

/// Many keys, and many items.
impl Tree {
    /// Looks keys up and puts their values into `found`, in the order of the keys, and nothing else: see
    /// [`crate::Tree::get_many`].
    ///
    /// # Errors
    ///
    /// Those of every operation: see [`Tree`].
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-dynamic-many-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// use bristlecone::dynamic::Datum;
    ///
    /// pool.tree::<&str, u64>("ages")?.upsert_many(&[("Methuselah", 4857), ("Prometheus", 4900)])?;
    /// let ages = pool.dynamic_tree("ages")?;
    /// let mut found = Vec::new();
    /// ages.get_many(&["Prometheus".into(), "Pando".into()], &mut found)?;
    /// assert_eq!(found, [Some(Datum::U64(4900)), None]);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many(&self, keys: &[Datum<'_>], found: &mut Vec<Option<Datum<'static>>>) -> Result<()> {
        let kind = self.value_kind();
        found.clear();
        each!(&self.on, tree => {
            let own = self.own_keys::<K>(keys)?;
            let keys: Vec<_> = own.iter().map(K::lend_bound).collect();
            found.resize(keys.len(), None);
            let mut damaged = false;
            tree.look_up_words(&keys, &mut |at, value| {
                found[at] = V::view(kind, Role::Value, value).map(Datum::into_owned);
                damaged |= found[at].is_none();
            })?;
            if damaged { Err(undecodable("value", kind)) } else { Ok(()) }
        })
    }

    /// Puts into `found` whether each key is there, in the order of the keys, and nothing else.
    ///
    /// # Errors
    ///
    /// Those of every operation: see [`Tree`].
    pub fn contains_many(&self, keys: &[Datum<'_>], found: &mut Vec<bool>) -> Result<()> {
        found.clear();
        each!(&self.on, tree => {
            let own = self.own_keys::<K>(keys)?;
            let keys: Vec<_> = own.iter().map(K::lend_bound).collect();
            found.resize(keys.len(), false);
            tree.look_up_words(&keys, &mut |at, _| found[at] = true)
        })
    }

    /// Writes items, one after the other, and puts the values that they had into `old`: see
    /// [`crate::Tree::insert_many`].
    ///
    /// # Errors
    ///
    /// Those of every operation, see [`Tree`], with the number of items that are done. A key or value that is not of the
    /// tree's kind leaves all of them undone.
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

    /// Writes items as [`insert_many`](Self::insert_many) does, without telling what was there.
    ///
    /// # Errors
    ///
    /// As [`insert_many`](Self::insert_many).
    pub fn upsert_many(&self, items: &[(Datum<'_>, Datum<'_>)]) -> Done {
        each!(&self.on, tree => {
            let own = self.items::<K, V>(items).map_err(none_done)?;
            let items: Vec<_> = own.iter().map(|(key, value)| (K::lend_bound(key), V::lend_bound(value))).collect();
            tree.upsert_many(&items)
        })
    }

    /// Removes keys, one after the other, and puts the values that they had into `old`: see
    /// [`crate::Tree::remove_many`].
    ///
    /// # Errors
    ///
    /// As [`insert_many`](Self::insert_many).
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

    /// Returns what keys are in the tree.
    fn own_keys<K: Stored>(&self, keys: &[Datum<'_>]) -> Result<Vec<K::Bound>> {
        keys.iter().map(|key| self.key::<K, _>(key, K::bound)).collect()
    }

    /// Returns what items are in the tree.
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
