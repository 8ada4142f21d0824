//! The interface of stores for the presets `bank` and `batch`. Keys and values are words.

use bristlecone::{Error, Pool, Tree};

use crate::bench::rivals::together::{Together, bytes, moved};
use crate::bench::rivals::{ByteStore, Refused, When};

/// A store with atomic changes of several keys.
pub trait Ledger: Send + Sync {
    /// Writes many entries, in any number of transactions.
    fn load(&self, entries: &mut dyn Iterator<Item = (u64, u64)>) -> Refused<()>;
    /// Writes one entry.
    fn write(&self, key: u64, value: u64) -> Refused<()>;
    /// Writes entries atomically.
    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()>;
    /// Returns whether it has [`write_many`](Self::write_many).
    fn has_many(&self) -> bool {
        false
    }
    /// Writes entries, each by itself, that are durable together.
    fn write_many(&self, entries: &[(u64, u64)]) -> Refused<()> {
        entries.iter().try_for_each(|(key, value)| self.write(*key, *value))
    }
    /// Moves at most an amount from one key's value to another's atomically; returns `false` after
    /// too many conflicts.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool>;
    /// Returns the number of keys and the sum of their values, at one instant.
    fn sum(&self) -> Refused<(u64, u64)>;
    /// Returns the number of commits that failed because of other threads' changes.
    fn conflicts(&self) -> u64 {
        0
    }
}

/// A store in files.
pub struct StoreLedger(pub Box<dyn ByteStore>);

impl StoreLedger {
    fn together(&self) -> Refused<&dyn Together> {
        self.0.together().ok_or_else(|| "it has no part in the presets bank and batch".into())
    }
}

impl Ledger for StoreLedger {
    fn load(&self, entries: &mut dyn Iterator<Item = (u64, u64)>) -> Refused<()> {
        self.0.load(&mut entries.map(bytes))
    }
    fn write(&self, key: u64, value: u64) -> Refused<()> {
        self.0.write(&key.to_be_bytes(), &value.to_be_bytes(), When::Always).map(drop)
    }
    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()> {
        self.together()?.write_together(entries)
    }
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool> {
        self.together()?.transfer(from, to, amount)
    }
    fn sum(&self) -> Refused<(u64, u64)> {
        self.together()?.sum()
    }
}

/// A tree of this library.
pub struct PoolLedger {
    tree: Tree<u64, u64>,
    pool: Pool,
}

impl PoolLedger {
    /// Wraps a tree and its pool.
    pub fn new(pool: Pool, tree: Tree<u64, u64>) -> Self {
        Self { tree, pool }
    }
}

impl Ledger for PoolLedger {
    fn load(&self, entries: &mut dyn Iterator<Item = (u64, u64)>) -> Refused<()> {
        let mut entries = entries;
        Ok(self.pool.deferred(|| (&mut entries).try_for_each(|(key, value)| self.tree.upsert(key, value)))?)
    }

    fn has_many(&self) -> bool {
        true
    }

    fn write_many(&self, entries: &[(u64, u64)]) -> Refused<()> {
        Ok(self.tree.upsert_many(entries).map_err(Error::from)?)
    }

    fn write(&self, key: u64, value: u64) -> Refused<()> {
        Ok(self.tree.upsert(key, value)?)
    }

    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()> {
        let mut batch = self.pool.batch();
        for (key, value) in entries {
            batch.insert(&self.tree, *key, *value);
        }
        Ok(batch.commit()?)
    }

    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool> {
        let moved = self.pool.transaction(|tx| {
            let held = [tx.get(&self.tree, from)?.unwrap_or(0), tx.get(&self.tree, to)?.unwrap_or(0)];
            let [from_after, to_after] = moved(held, amount);
            tx.insert(&self.tree, from, from_after)?;
            tx.insert(&self.tree, to, to_after)
        });
        match moved {
            Ok(()) => Ok(true),
            Err(Error::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sum(&self) -> Refused<(u64, u64)> {
        let view = self.pool.snapshot()?;
        let mut items = view.tree(&self.tree).iter();
        Ok(items.try_fold((0, 0), |(count, sum), item| Ok::<_, Error>((count + 1, sum + item?.1)))?)
    }

    fn conflicts(&self) -> u64 {
        self.pool.metrics().map_or(0, |metrics| metrics.conflicts)
    }
}
