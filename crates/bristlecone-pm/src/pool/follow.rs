//! Opening a pool that another process writes to, for reading: see [`crate::segment`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{DIRECTORY_OFFSET, Descriptor};
use super::open::{detect, open_regular, reservation};
use super::superblock::Contents;
use super::{Access, Found, Nameless, PoolFile, PoolInfo, header};
use crate::segment::{Follower, Identity, ManifestReader};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crate::{At, Domain, Error, Medium, Region, Result, TreeId};

/// State of a follower about its writer.
#[derive(Debug)]
pub(super) struct Followed {
    follower: Follower,
    /// Identifies the superblock that the writer wrote: a different one may be another writer's.
    turn: AtomicU64,
}

impl<M: Medium> PoolFile<M> {
    /// Opens a pool that another process has open for writing, without changing any byte of it. `layout` is a
    /// hash of what the state of trees depends on, which must equal the writer's.
    ///
    /// # Errors
    ///
    /// [`NoWriter`](Error::NoWriter) if it cannot be followed; [`NotFound`](Error::NotFound),
    /// [`NotAPool`](Error::NotAPool), [`Newer`](Error::Newer), [`Corrupted`](Error::Corrupted), and errors of the
    /// system.
    pub fn follow<'p>(
        at: impl Into<At<'p>>,
        layout: u64,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let at = at.into();
        Self::follow_in(
            open_regular(at.path, Access::Follow)?,
            (at, Some(at.path)),
            None,
            layout,
            make_medium,
        )
    }

    /// Does the same for a pool without a name, and its index. `handled` is the one of [`At`].
    ///
    /// # Errors
    ///
    /// As [`follow`](Self::follow).
    pub fn follow_nameless(
        (pool, index): (Nameless, Nameless),
        handled: bool,
        layout: u64,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let (file, label) = pool.into_parts();
        let at = At { path: &label, handled };
        Self::follow_in(file, (at, None), Some(index.into_parts()), layout, make_medium)
    }

    fn follow_in(
        file: File,
        (at, named): (At<'_>, Option<&Path>),
        index: Option<(File, PathBuf)>,
        layout: u64,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let len = file.metadata().map_err(|error| Error::at_path(at.path, error))?.len();
        if len < DIRECTORY_OFFSET {
            return Err(Error::NotAPool { path: at.path.to_owned() });
        }
        let (contents, damage) = header::superblock(&file, at.path, Access::Follow)?;
        let identity =
            Identity { uuid: contents.uuid, seal: 0, was_clean: true, opening: 0, layout, pool: named };
        let follower = Follower::attach(at.path, &identity, index)?;
        let reserved = reservation(len, contents.geometry.max_bytes());
        let region = Region::follow(file, at, len, reserved, follower.over())?;
        let detected = detect(&region);
        let medium = make_medium(contents.domain);
        let found = Found { contents, was_clean: false, seal: 0, damage };
        let pool = Self::assemble(region, medium, found, detected, named, Access::Follow);
        let turn = AtomicU64::new(Contents::turn(&pool.region, &pool.medium));
        // A writer that started since the superblock was read has written another one, and is in another life.
        if !follower.has_writer() {
            return Err(Error::NoWriter { path: at.path.to_owned(), why: "its writer has exited".into() });
        }
        let _ = pool.followed.set(Followed { follower, turn });
        Ok(pool)
    }

    /// Returns whether another process writes to the pool and this one follows it.
    pub fn is_followed(&self) -> bool {
        self.access == Access::Follow
    }

    #[inline(always)]
    fn followed(&self) -> &Followed {
        self.followed.get().expect("a pool that is followed")
    }

    /// Returns the follower, of a pool that is followed.
    #[inline(always)]
    pub fn follower(&self) -> &Follower {
        &self.followed().follower
    }

    /// Calls `look`; meanwhile, nothing that the writer shares of a tree with this number is reused. Returns `None` if
    /// the tree is no longer shared, or if the result is invalid. `thread` is the calling thread's
    /// [`own_thread_index`](crate::own_thread_index).
    #[inline(always)]
    pub fn look<R>(
        &self,
        thread: Option<usize>,
        (tree, number): (TreeId, u64),
        look: impl FnOnce() -> R,
    ) -> Option<R> {
        let Followed { follower, turn } = self.followed();
        follower
            .look(thread, (tree.0, number), look, || self.turn() == turn.load(Relaxed) || self.has_writer())
    }

    #[inline(always)]
    fn turn(&self) -> u64 {
        Contents::turn(&self.region, &self.medium)
    }

    /// Returns whether the writer is still the one to which this process attached. Costs some system calls.
    #[cold]
    pub fn has_writer(&self) -> bool {
        let (turn, followed) = (self.turn(), self.followed());
        let is_there = followed.follower.has_writer();
        if is_there {
            followed.turn.store(turn, Relaxed);
        }
        is_there
    }

    /// Calls `follow` with the shared state of a tree: see [`Follower::follow_tree`].
    pub fn follow_tree<T>(
        &self,
        tree: TreeId,
        follow: impl FnOnce(&mut ManifestReader<'_>) -> Option<T>,
    ) -> Option<(u64, T)> {
        self.follower().follow_tree(tree.0, follow)
    }

    /// Completes the information about a pool that is followed.
    pub(super) fn info_followed(&self, info: PoolInfo) -> PoolInfo {
        let chunks = self.geometry.chunks_within(self.region.len_now());
        let is_free = |id: &u64| {
            let word = self.descriptor(*id as u32).load(self.medium());
            matches!(Descriptor::decode(word), Some(Descriptor::Fresh | Descriptor::Free))
        };
        let chunks_free = (0..chunks).filter(is_free).count() as u64;
        PoolInfo { file_bytes: self.region.len(), chunks, chunks_free, following: true, ..info }
    }
}
