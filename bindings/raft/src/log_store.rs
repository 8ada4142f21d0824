//! openraft's log store.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use bristlecone::{Error, Result as Done};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, LogId, LogState, OptionalSend, RaftLogId, RaftLogReader, RaftTypeConfig, StorageError,
    StorageIOError, TokioRuntime, Vote,
};

use crate::Options;
use crate::codec::{blocking, encode};
use crate::log::{Log, names};

/// What openraft expects of a store.
type Stored<C, T> = Result<T, StorageError<<C as RaftTypeConfig>::NodeId>>;

/// Bytes behind which [`limited_get_log_entries`](RaftLogReader::limited_get_log_entries) returns no more entries.
const READ_BYTES: usize = 4 << 20;

/// A log, vote and committed id in a pool: openraft's [`RaftLogStorage`].
///
/// Clones share the pool. [`open`](crate::open) returns one with a state machine. A program with a state machine of its
/// own uses [`LogStore::open`]; entries and ids may have any types that serde supports, except formats that need a
/// self-describing encoding.
///
/// # Guarantees
///
/// - An appended entry is on disk when openraft's callback is called, a vote when `save_vote` returns. Appends that
///   overlap share a sync. No thread of the runtime waits for the disk.
/// - After a crash the log has a first part of what was appended, without a hole, and everything acknowledged.
/// - Truncated and purged entries are not readable when the call returns. A crash within a call leaves a part of the
///   entries: the first ones of a truncate, and none of a purge. A power failure may undo a call that nothing durable
///   has followed.
/// - Damage is an error of the read: a missing or damaged entry is never skipped.
pub struct LogStore<C: RaftTypeConfig> {
    log: Arc<Log>,
    types: PhantomData<fn() -> C>,
}

impl<C: RaftTypeConfig> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        Self::over(Arc::clone(&self.log))
    }
}

impl<C: RaftTypeConfig> Debug for LogStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStore").field("path", &self.log.pool.info().path).finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig> LogStore<C> {
    fn over(log: Arc<Log>) -> Self {
        Self { log, types: PhantomData }
    }

    /// Opens the log in a folder, or creates it there. The folder must exist.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while another process or handle has it open; [`Error::Corrupted`] if entries are missing or
    /// damaged; otherwise same as [`PoolOptions::open`](bristlecone::PoolOptions::open).
    pub fn open(folder: impl AsRef<Path>, options: &Options) -> Done<Self> {
        let pool = options.log_pool().create(true).open(folder.as_ref().join("log.pool"))?;
        Ok(Self::over(Arc::new(Log::open(pool, options)?)))
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Runs work on the log in a thread that may wait for the disk.
    async fn run<R: Send + 'static>(&self, work: impl FnOnce(&Log) -> Done<R> + Send + 'static) -> Done<R> {
        let log = Arc::clone(&self.log);
        blocking(move || work(&log)).await
    }
}

fn read<C: RaftTypeConfig>(error: Error) -> StorageError<C::NodeId> {
    StorageIOError::read_logs(AnyError::new(&error)).into()
}

fn write<C: RaftTypeConfig>(error: Error) -> StorageError<C::NodeId> {
    StorageIOError::write_logs(AnyError::new(&error)).into()
}

impl<C: RaftTypeConfig<AsyncRuntime = TokioRuntime>> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Stored<C, Vec<C::Entry>> {
        let bounds = (range.start_bound().cloned(), range.end_bound().cloned());
        self.run(move |log| log.entries(bounds, usize::MAX)).await.map_err(read::<C>)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Stored<C, Vec<C::Entry>> {
        self.run(move |log| log.entries(start..end, READ_BYTES)).await.map_err(read::<C>)
    }
}

impl<C: RaftTypeConfig<AsyncRuntime = TokioRuntime>> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Stored<C, LogState<C>> {
        let state = self.run(|log| {
            let last_purged_log_id: Option<LogId<C::NodeId>> = log.purged()?;
            let last: Option<C::Entry> = log.last()?;
            let last_log_id =
                last.map(|entry| entry.get_log_id().clone()).or_else(|| last_purged_log_id.clone());
            Ok(LogState { last_purged_log_id, last_log_id })
        });
        state.await.map_err(read::<C>)
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Stored<C, ()> {
        let vote = vote.clone();
        let saved = async { self.run(move |log| log.write(names::VOTE, &vote)).await?.await };
        saved.await.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Stored<C, Option<Vote<C::NodeId>>> {
        let vote = self.run(|log| log.read(names::VOTE)).await;
        vote.map_err(|error| StorageIOError::read_vote(AnyError::new(&error)).into())
    }

    // openraft needs it to be durable only as far as the state machine is, which does not wait either.
    async fn save_committed(&mut self, committed: Option<LogId<C::NodeId>>) -> Stored<C, ()> {
        let saved = self.run(move |log| match committed {
            Some(committed) => log.write(names::COMMITTED, &committed).map(drop),
            None => log.erase(names::COMMITTED).map(drop),
        });
        saved.await.map_err(write::<C>)
    }

    async fn read_committed(&mut self) -> Stored<C, Option<LogId<C::NodeId>>> {
        self.run(|log| log.read(names::COMMITTED)).await.map_err(read::<C>)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Stored<C, ()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = entries.into_iter().map(|entry| Ok((entry.get_log_id().index, encode(&entry)?)));
        let encoded = encoded.collect::<Done<Vec<_>>>().map_err(write::<C>)?;
        if let Some((first, _)) = encoded.first() {
            self.log.wait_for_predecessor(*first).await.map_err(write::<C>)?;
        }
        let ticket = self.run(move |log| log.append(&encoded)).await.map_err(write::<C>)?;
        let report = async move { callback.log_io_completed(ticket.await.map_err(std::io::Error::other)) };
        tokio::spawn(report);
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Stored<C, ()> {
        self.run(move |log| log.truncate(log_id.index)).await.map_err(write::<C>)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Stored<C, ()> {
        let id = encode(&log_id).map_err(write::<C>)?;
        self.run(move |log| log.purge(log_id.index, id)).await.map_err(write::<C>)
    }
}
