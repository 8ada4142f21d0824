//! What a dynamic tree has beside the operations of every tree.

use bristlecone_pm::{Error, Result};

use super::schema::Values;
use super::{Dynamic, ExpiringTree, Kind, Tree};
use crate::{Design, Expiring, Value};

impl<V: Value> crate::Tree<Dynamic, V> {
    /// Returns the tree's name at the time it was opened.
    pub fn name(&self) -> &str {
        &self.keys.name
    }

    /// Returns the kind of the tree's keys.
    pub fn key_kind(&self) -> &Kind {
        &self.keys.kind
    }

    /// Returns the tree's design.
    pub fn design(&self) -> Design {
        self.keys.design
    }

    /// Returns the options of the tree's design by name.
    pub fn options(&self) -> &[(&'static str, u64)] {
        &self.keys.options
    }

    /// Returns the typed tree if keys and values are `u64`, for calls whose data are arrays of these.
    pub fn as_u64(&self) -> Option<&crate::Tree<u64, u64>> {
        self.keys.words.as_ref()
    }
}

impl Tree {
    /// Returns the kind of the tree's values.
    pub fn value_kind(&self) -> &Kind {
        &self.values.kind
    }

    /// Returns the tree with operations for which expired entries are absent.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if its values are of another kind than `Expiring<…>`.
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// use bristlecone::{Expiry, Pool};
    /// use std::time::Duration;
    ///
    /// # let pool = Pool::temporary()?;
    /// let options = pool.tree_options("sessions").expire_after(Duration::from_secs(3600));
    /// let sessions = options.create_dynamic(&Kind::Str, &"Expiring<u64>".parse()?)?.try_expiring()?;
    /// let (ada, grace) = (Datum::from("ada"), Datum::from("grace"));
    /// sessions.insert(&ada, &Datum::U64(7), None)?;
    /// sessions.insert(&grace, &Datum::U64(8), Expiry::from_millis(1))?;
    /// assert_eq!((sessions.get(&ada)?, sessions.get(&grace)?), (Some(Datum::U64(7)), None));
    /// assert_eq!(sessions.remove_expired(1000)?.removed, 1);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn try_expiring(self) -> Result<ExpiringTree> {
        match Values::in_entries(&self.values) {
            Some(values) => {
                let keys = self.keys.clone();
                Ok(self.with_types::<Dynamic, Expiring<Dynamic>>(keys, values.into()).expiring())
            }
            None => Err(Error::Mismatch {
                name: self.name().to_owned(),
                what: "values of type",
                found: self.value_kind().to_string(),
                asked: "Expiring<…>".to_owned(),
            }),
        }
    }
}

impl ExpiringTree {
    /// Returns the kind of the tree's values, without their times.
    pub fn value_kind(&self) -> &Kind {
        &self.entries().values.kind
    }
}
