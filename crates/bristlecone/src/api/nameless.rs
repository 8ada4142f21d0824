//! Opening pools without a name, by descriptors.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use bristlecone_pm::{
    CreateOptions, Domain, Error, Glance, KeepIndex, Nameless, Native, OpenOptions, PoolFile, Result,
    trace_span,
};

use super::options::LAYOUT;
use crate::index::followed::Place;
use crate::{Pool, PoolOptions};

fn no_journal() -> Error {
    Error::invalid(
        "a pool without a name has no journal, whose files are beside the pool: open it by its path",
    )
}

impl PoolOptions {
    /// Opens the pool in a file that this process has as a descriptor, such as a memfd. No name is needed: pool and index
    /// survive a kill of the process while another process, such as a service manager, keeps both descriptors.
    ///
    /// `index` is a second file in memory, empty at first, in which the index stays: see
    /// [`keep_index`](Self::keep_index). Without it the index is memory of this process, and is rebuilt by the next one.
    /// Both are borrowed, opened again through `/proc/self/fd`, and locked: the lock ends with this process, and not with
    /// the descriptors.
    ///
    /// The file grows as any pool. If it is sealed against growth (`F_SEAL_GROW`), a new pool gets the maximum that fits
    /// its size, and an existing one is full at that size. A seal against shrinking is allowed, too. With
    /// [`read_only`](Self::read_only), a descriptor that is open for reading suffices. A new pool in a file on a disk has
    /// the domain [`Msync`](Domain::Msync). There is no journal.
    ///
    /// A kill during the creation leaves a file that counts as empty, or an empty pool: use [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the file is empty and the pool is not to be created; [`Error::Exists`] for
    /// [`create_new`](Self::create_new) if it is not empty; [`Error::NotAPool`] for other contents, and for what is no
    /// regular file; [`Error::InUse`] while any process or handle has the pool or the index open; [`Error::Invalid`] for
    /// contradictory options, a pool with a journal, descriptors in the wrong order, without the necessary access, or with
    /// seals that forbid it, and for an `index` that is not in memory or is that of another pool; otherwise same as
    /// [`open`](Self::open). After any of these, an existing pool and its index are unchanged.
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use bristlecone::{KeepIndex, Pool};
    /// use rustix::fs::{MemfdFlags, memfd_create};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let pool_file = memfd_create("pool", MemfdFlags::CLOEXEC)?;
    /// let index_file = memfd_create("index", MemfdFlags::CLOEXEC)?;
    /// let options = Pool::options().create(true).keep_index(KeepIndex::Always);
    /// let pool = options.open_fd(pool_file.as_fd(), Some(index_file.as_fd()))?;
    /// pool.tree::<&str, u64>("ages")?.insert("Methuselah", 4857)?;
    /// pool.close()?;
    ///
    /// // In any process that has the descriptors.
    /// let pool = options.open_fd(pool_file.as_fd(), Some(index_file.as_fd()))?;
    /// assert!(pool.info().index_was_kept);
    /// assert_eq!(pool.tree::<&str, u64>("ages")?.get("Methuselah")?, Some(4857));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_fd(&self, pool: BorrowedFd<'_>, index: Option<BorrowedFd<'_>>) -> Result<Pool> {
        trace_span("a pool is opened", Path::new("a descriptor"), || self.open_nameless(pool, index))
    }

    /// Opens a pool without a name for reading, while another process writes to it: see [`follow`](Self::follow) and
    /// [`open_fd`](Self::open_fd). The descriptor of the index must be open for reading and writing.
    ///
    /// # Errors
    ///
    /// Same as [`follow`](Self::follow); [`Error::Invalid`] for descriptors as in [`open_fd`](Self::open_fd).
    pub fn follow_fd(&self, pool: BorrowedFd<'_>, index: BorrowedFd<'_>) -> Result<Pool> {
        let own = |descriptor: BorrowedFd<'_>| {
            descriptor.try_clone_to_owned().map_err(|error| Error::io("duplicating a descriptor", error))
        };
        let place = Place::Descriptors([own(pool)?, own(index)?]);
        trace_span("a pool is followed", Path::new("a descriptor"), || self.follow_at(place))
    }

    fn open_nameless(&self, pool: BorrowedFd<'_>, index: Option<BorrowedFd<'_>>) -> Result<Pool> {
        self.check()?;
        if self.asks_for_journal() {
            return Err(no_journal());
        }
        if index.is_some() && self.keep_index == KeepIndex::Never {
            return Err(Error::invalid("an index that is not to be kept needs no descriptor"));
        }
        let nameless = Nameless::pool(pool, self.read_only)?;
        let index = index.map(|index| nameless.index(index, self.read_only)).transpose()?;
        let file = self.nameless_file(nameless, index.as_ref())?;
        if let Some(index) = index {
            file.keep_index_in(index, self.keep_index, LAYOUT);
        }
        file.drop_unfinished_trees();
        self.pool_over(file, None)
    }

    /// Opens the pool on a device, which is created in place.
    pub(super) fn open_device(&self, device: Nameless) -> Result<Pool> {
        if self.asks_for_journal() {
            return Err(Error::invalid("a pool on a device in device-DAX mode has no journal"));
        }
        let file = self.nameless_file(device, None)?;
        file.keep_index(self.keep_index, LAYOUT);
        file.drop_unfinished_trees();
        self.pool_over(file, None)
    }

    /// Creates or opens the pool in a file that is locked.
    fn nameless_file(&self, nameless: Nameless, index: Option<&Nameless>) -> Result<Arc<PoolFile<Native>>> {
        let handled = !self.leave_sigbus;
        let may = |found: &Glance| {
            if found.domain == Domain::Journal {
                return Err(no_journal());
            }
            index.map_or(Ok(()), |index| index.expect_index_of(Some(found.uuid)))
        };
        if self.create_new || self.create && nameless.is_blank()? {
            index.map_or(Ok(()), |index| index.expect_index_of(None))?;
            let fixed = nameless.fixed_bytes(self.chunk_bytes)?;
            let create = |options: &CreateOptions| {
                let max_bytes = if self.max_bytes.is_none() { fixed } else { None };
                let options = CreateOptions { max_bytes: max_bytes.unwrap_or(options.max_bytes), ..*options };
                PoolFile::create_nameless(&nameless, handled, &options, Native::new)
            };
            return self.create_sized(create);
        }
        if !self.read_only {
            let options = OpenOptions { domain: self.domain, max_bytes: self.max_bytes };
            return PoolFile::open_nameless(nameless, handled, &options, Native::new, may);
        }
        let file = PoolFile::open_nameless_read_only(nameless, handled, Native::new)?;
        may(&file.glance()?)?;
        self.expect_max(&file)?;
        Ok(file)
    }
}
