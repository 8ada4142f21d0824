//! The objects of handles.

use std::sync::Arc;

use bristlecone_rs::dynamic::{Datum, Kind};
use bristlecone_rs::{CasError, Expiry, Pool, Result, Tree, TryInsertError, dynamic};

use crate::batch::OpenBatch;
use crate::changes::OpenChanges;
use crate::handle::Inside;
use crate::iter::Iter;
use crate::snapshot::OpenSnapshot;
use crate::status::{Failure, Outcome};
use crate::ticket::OpenTicket;
use crate::transaction::OpenTransaction;
use crate::tree::TreeHandle;

/// A type of handles, as named in the header.
pub trait Handle {
    /// The object of these handles.
    type Open: Open;
}

/// The object of one type of handles.
pub trait Open: Sized {
    /// Its name in messages.
    const WHAT: &'static str;

    /// Returns the object as this type, unless it has another type.
    fn of(object: &Object) -> Option<&Self>;

    /// Converts the object to this type, unless it has another type.
    fn taken(object: Object) -> Option<Self>;

    /// Checks that this process opened it.
    fn opened_here(&self) -> Result<()>;

    /// Returns the object as this type, which this process must have opened.
    fn expect(object: &Object) -> Outcome<&Self> {
        let open = Self::of(object).ok_or_else(|| object.is_no(Self::WHAT))?;
        open.opened_here()?;
        Ok(open)
    }
}

/// Defines the objects, each with its name, its handle, and the path to `opened_here`.
macro_rules! objects {
    ($($variant:ident($open:ty) $handle:path, $what:literal, $here:ident;)+) => {
        /// An object behind a handle.
        pub enum Object {
            $($variant($open),)+
        }

        impl Object {
            fn what(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $what,)+
                }
            }
        }

        $(
            impl Handle for $handle {
                type Open = $open;
            }

            impl Open for $open {
                const WHAT: &'static str = $what;

                #[inline(always)]
                fn of(object: &Object) -> Option<&Self> {
                    if let Object::$variant(open) = object { Some(open) } else { None }
                }

                fn taken(object: Object) -> Option<Self> {
                    if let Object::$variant(open) = object { Some(open) } else { None }
                }

                fn opened_here(&self) -> Result<()> {
                    self.$here.opened_here()
                }
            }

            impl From<$open> for Object {
                fn from(open: $open) -> Self {
                    Self::$variant(open)
                }
            }
        )+
    };
}

objects! {
    Pool(OpenPool) crate::pool::PoolHandle, "a pool", pool;
    Tree(OpenTree) crate::tree::TreeHandle, "a tree", tree;
    Iter(Iter) crate::iter::IterHandle, "an iterator", tree;
    Batch(OpenBatch) crate::batch::BatchHandle, "a batch", pool;
    Changes(OpenChanges) crate::changes::ChangesHandle, "a stream of changes", pool;
    Snapshot(OpenSnapshot) crate::snapshot::SnapshotHandle, "a snapshot", pool;
    Ticket(OpenTicket) crate::ticket::TicketHandle, "a ticket", pool;
    Transaction(OpenTransaction) crate::transaction::TransactionHandle, "a transaction", pool;
}

/// An open pool.
pub struct OpenPool {
    pub pool: Pool,
    /// Shared with all objects opened in the pool.
    pub members: Arc<()>,
}

impl OpenPool {
    /// Wraps a tree of the pool for its handle.
    pub fn has(&self, tree: dynamic::Tree) -> OpenTree {
        OpenTree { tree, live: None, member: Arc::clone(&self.members) }
    }

    /// Wraps an object begun in the pool for its handle.
    pub fn holding<T>(&self, begun: T) -> InPool<T> {
        InPool { begun, pool: self.pool.clone(), member: Arc::clone(&self.members) }
    }
}

/// An object begun in a pool, which it keeps open.
pub struct InPool<T> {
    pub begun: T,
    pub pool: Pool,
    pub member: Arc<()>,
}

/// The value that a key had.
type Held = Option<Datum<'static>>;

/// An open tree.
pub struct OpenTree {
    pub tree: dynamic::Tree,
    /// The same tree, if the handle shows only values that have not expired.
    pub live: Option<Box<dynamic::ExpiringTree>>,
    pub member: Arc<()>,
}

impl OpenTree {
    /// Returns the tree of all entries, unless the handle shows only live values.
    #[inline(always)]
    pub fn entries(&self) -> Outcome<&dynamic::Tree> {
        if self.live.is_none() { Ok(&self.tree) } else { Err(self.needs("the tree itself")) }
    }

    /// Returns the tree of live values.
    pub fn expiring(&self) -> Outcome<&dynamic::ExpiringTree> {
        self.live.as_deref().ok_or_else(|| self.needs("one from bristlecone_tree_expiring"))
    }

    #[cold]
    fn needs(&self, handle: &str) -> Failure {
        Failure::usage(format!("this call on the tree {:?} needs another handle: {handle}", self.tree.name()))
    }

    /// Returns the kind of the values that the handle takes and shows.
    pub fn value_kind(&self) -> &Kind {
        self.live.as_deref().map_or(self.tree.value_kind(), dynamic::ExpiringTree::value_kind)
    }

    /// Calls `show` with the value of a key.
    #[inline]
    pub fn get_with<R>(&self, key: &Datum<'_>, show: impl FnOnce(&Datum<'_>) -> R) -> Result<Option<R>> {
        match &self.live {
            None => self.tree.get_with(key, show),
            Some(live) => live.get_with(key, |value, _| show(value)),
        }
    }

    pub fn contains(&self, key: &Datum<'_>) -> Result<bool> {
        match &self.live {
            None => self.tree.contains_key(key),
            Some(live) => live.contains_key(key),
        }
    }

    pub fn upsert(&self, key: &Datum<'_>, value: &Datum<'_>, expiry: Option<Expiry>) -> Result<()> {
        match &self.live {
            None => self.tree.upsert(key, value),
            Some(live) => live.upsert(key, value, expiry),
        }
    }

    pub fn insert(&self, key: &Datum<'_>, value: &Datum<'_>, expiry: Option<Expiry>) -> Result<Held> {
        match &self.live {
            None => self.tree.insert(key, value),
            Some(live) => live.insert(key, value, expiry),
        }
    }

    pub fn try_insert(
        &self,
        key: &Datum<'_>,
        value: &Datum<'_>,
        expiry: Option<Expiry>,
    ) -> std::result::Result<(), TryInsertError<Datum<'static>>> {
        match &self.live {
            None => self.tree.try_insert(key, value),
            Some(live) => live.try_insert(key, value, expiry),
        }
    }

    pub fn update(&self, key: &Datum<'_>, value: &Datum<'_>, expiry: Option<Expiry>) -> Result<Held> {
        match &self.live {
            None => self.tree.update(key, value),
            Some(live) => live.update(key, value, expiry),
        }
    }

    pub fn remove(&self, key: &Datum<'_>) -> Result<Held> {
        match &self.live {
            None => self.tree.remove(key),
            Some(live) => live.remove(key),
        }
    }

    pub fn compare_and_swap(
        &self,
        key: &Datum<'_>,
        expected: Option<&Datum<'_>>,
        wanted: Option<&Datum<'_>>,
        expiry: Option<Expiry>,
    ) -> std::result::Result<(), CasError<Datum<'static>>> {
        let Some(live) = &self.live else { return self.tree.compare_and_swap(key, expected, wanted) };
        let expiry = expiry.unwrap_or_else(|| live.default_expiry());
        live.compare_and_swap(key, expected, wanted.map(|wanted| (wanted, expiry)))
    }

    /// Returns the tree of `u64` keys and values.
    #[inline(always)]
    pub fn words(&self) -> Outcome<&Tree<u64, u64>> {
        self.tree.as_u64().ok_or_else(|| self.no_words())
    }

    #[cold]
    fn no_words(&self) -> Failure {
        let (keys, values) = (self.tree.key_kind(), self.tree.value_kind());
        Failure::usage(format!(
            "the tree {:?} has {keys} keys and {values} values, not u64",
            self.tree.name()
        ))
    }
}

impl Object {
    /// Releases what a child inherited: the pool's file.
    pub fn abandon(&self) {
        if let Self::Pool(open) = self {
            drop(open.pool.clone());
        }
    }

    /// Returns the failure of a handle of another type.
    #[cold]
    fn is_no(&self, what: &str) -> Failure {
        Failure::usage(format!("the handle is {}, not {what}", self.what()))
    }
}

impl<H: Handle> Inside<H> {
    /// Returns the object of the handle.
    #[inline]
    pub fn get(&self) -> Outcome<&H::Open> {
        H::Open::expect(self.object())
    }
}

impl Inside<TreeHandle> {
    /// Returns the tree, which must belong to the same pool as another object.
    pub fn get_of(&self, member: &Arc<()>) -> Outcome<&OpenTree> {
        let open = self.get()?;
        if !Arc::ptr_eq(&open.member, member) {
            return Err(Failure::usage(format!("the tree {:?} is of another pool", open.tree.name())));
        }
        open.entries()?;
        Ok(open)
    }

    /// Returns the tree of `u64` keys and values.
    #[inline(always)]
    pub fn words(&self) -> Outcome<&Tree<u64, u64>> {
        let object = self.object();
        OpenTree::of(object).ok_or_else(|| object.is_no(OpenTree::WHAT))?.words()
    }
}
