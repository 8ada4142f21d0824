//! Long reads, in separate threads: the server continues to serve other clients.
//!
//! 1. The command reads the first items itself. Most end there.
//! 2. If there are more, it takes a snapshot, blocks its client and leaves the rest to a thread.
//! 3. The thread reads the snapshot and writes the reply, which the server keeps in pieces of 16 KiB.
//! 4. The server's own thread sends them, and unblocks the client.
//!
//! In `MULTI`, in scripts and wherever else a client cannot be blocked, the command reads all of it itself.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bristlecone::{Result, Snapshot};

use super::Call;
use super::found::{Found, Wanted};
use crate::latency;
use crate::server::{Ctx, Reply, call, raw, warn};
use crate::state;
use crate::store::{Bounds, ID_BYTES, Item, Live, NO_TIME, TimeEntry, borrowed};

/// Threads that read.
const THREADS: usize = 2;
/// Maximum number of tasks that wait for a thread. Beyond it, a command reads all of it itself.
const WAITING_MAX: usize = 64;

/// A client that waits for its reply.
#[derive(Clone, Copy)]
pub struct Blocked(pub NonNull<raw::RedisModuleBlockedClient>);

// SAFETY: the server's functions for blocked clients may be called in any thread.
unsafe impl Send for Blocked {}

/// What a task reads.
pub enum Source {
    /// The pool as it was when the command was carried out.
    Then(Snapshot),
    /// The pool as it is.
    Now,
}

impl Source {
    /// Returns items of large maps within bounds that have not expired.
    pub fn range(&self, bounds: &Bounds, now: u64) -> Box<dyn DoubleEndedIterator<Item = Result<Item>> + '_> {
        let store = state::store();
        let Self::Then(snapshot) = self else { return Box::new(store.large_range(bounds, now)) };
        let items = snapshot.tree(store.items()).range(borrowed(bounds));
        if now == NO_TIME {
            return Box::new(items);
        }
        Box::new(Live::new(items, self.times(bounds), now))
    }

    /// Returns when fields of large maps within bounds expire.
    pub fn times(&self, bounds: &Bounds) -> Box<dyn DoubleEndedIterator<Item = Result<TimeEntry>> + '_> {
        let store = state::store();
        match (self, store.expiries()) {
            (Self::Then(snapshot), Some(tree)) => {
                Box::new(snapshot.tree(tree.entries()).range(borrowed(bounds)))
            }
            _ => Box::new(store.times_within(bounds)),
        }
    }
}

/// What is left of a command: it reads and replies, and may end early once the client is gone.
pub type Task = Box<dyn FnOnce(Reply, &Source, &AtomicBool) + Send>;

/// A task that a thread carries out.
struct Work {
    client: Blocked,
    gone: Arc<AtomicBool>,
    source: Source,
    task: Task,
    timing: Box<Timing>,
}

/// What is told to the latency monitor once the reply is there.
struct Timing {
    began: Instant,
    threshold: i64,
}

/// Clients that wait, and whether they are gone meanwhile.
static WAITING: Mutex<Vec<(usize, Arc<AtomicBool>)>> = Mutex::new(Vec::new());

static THREAD: OnceLock<Option<SyncSender<Work>>> = OnceLock::new();

/// Carries out a task: in a thread, or here if that is not possible.
pub fn run(call: &Call<'_>, task: Task) {
    if let Err(task) = in_thread(call, task) {
        task(call.reply, &Source::Now, &AtomicBool::new(false));
    }
}

/// Returns whether the client of a command can wait for its reply.
pub fn can_block(call: &Call<'_>) -> bool {
    let flags = call!(RedisModule_GetContextFlags(call.ctx)) as u32;
    let bound = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_REPLICATED
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    !call.is_again && flags & bound == 0
}

fn in_thread(call: &Call<'_>, task: Task) -> std::result::Result<(), Task> {
    let Some(threads) = THREAD.get_or_init(start) else { return Err(task) };
    if !can_block(call) {
        return Err(task);
    }
    let Ok(snapshot) = call.store.pool().snapshot() else { return Err(task) };
    let timing = Box::new(Timing { began: Instant::now(), threshold: latency::threshold(call.ctx) });
    let blocked = call!(RedisModule_BlockClient(call.ctx, None, None, Some(note), 0));
    let Some(client) = NonNull::new(blocked) else { return Err(task) };
    call!(RedisModule_SetDisconnectCallback(blocked, Some(disconnected)));
    let gone = Arc::new(AtomicBool::new(false));
    waiting().push((blocked.addr(), Arc::clone(&gone)));
    let work = Work { client: Blocked(client), gone, source: Source::Then(snapshot), task, timing };
    match threads.try_send(work) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) => {
            forget(work.client.0);
            call!(RedisModule_AbortBlock(work.client.0.as_ptr()));
            Err(work.task)
        }
    }
}

/// Returns whether a command came from this server's master, alone.
pub fn is_from_master(call: &Call<'_>) -> bool {
    let flags = call!(RedisModule_GetContextFlags(call.ctx)) as u32;
    let bound = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_LOADING;
    !call.is_again && flags & raw::REDISMODULE_CTX_FLAGS_REPLICATED != 0 && flags & bound == 0
}

/// Blocks the client of a command, whose reply comes later.
pub fn block(ctx: Ctx) -> Option<Blocked> {
    let blocked = call!(RedisModule_BlockClient(ctx, None, None, None, 0));
    let client = NonNull::new(blocked)?;
    call!(RedisModule_SetDisconnectCallback(blocked, Some(disconnected)));
    Some(Blocked(client))
}

/// Returns whether a blocked client is gone, from now on.
pub fn watch(client: Blocked) -> Arc<AtomicBool> {
    let gone = Arc::new(AtomicBool::new(false));
    waiting().push((client.0.addr().get(), Arc::clone(&gone)));
    gone
}

/// Sends a blocked client what was replied, and lets it go on.
pub fn unblock(client: Blocked) {
    forget(client.0);
    call!(RedisModule_UnblockClient(client.0.as_ptr(), std::ptr::null_mut()));
}

fn waiting() -> std::sync::MutexGuard<'static, Vec<(usize, Arc<AtomicBool>)>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(client: NonNull<raw::RedisModuleBlockedClient>) {
    waiting().retain(|(address, _)| *address != client.addr().get());
}

/// Starts the threads. Returns the end that takes work.
fn start() -> Option<SyncSender<Work>> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    let started = (0..THREADS).filter(|_| {
        let receiver = Arc::clone(&receiver);
        let thread = std::thread::Builder::new().name("bristlecone-read".to_owned());
        thread.spawn(move || serve(&receiver)).is_ok()
    });
    (started.count() > 0).then_some(sender)
}

fn serve(receiver: &Mutex<Receiver<Work>>) {
    loop {
        let work = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Work { client, gone, source, task, timing }) = work else { return };
        let ctx = call!(RedisModule_GetThreadSafeContext(client.0.as_ptr()));
        let replied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            task(Reply(ctx), &source, &gone);
        }));
        if replied.is_err() {
            warn("a long read failed unexpectedly");
        }
        drop(source);
        call!(RedisModule_FreeThreadSafeContext(ctx));
        forget(client.0);
        call!(RedisModule_UnblockClient(client.0.as_ptr(), Box::into_raw(timing).cast()));
    }
}

/// Returns the rest of a range as a task: it replies what was found, and what is left of what is wanted. What is damaged is an
/// error at the end of the array.
pub fn rest_of(mut wanted: Wanted, found: Found) -> Task {
    Box::new(move |reply, source, gone| {
        let mut array = reply.open_array();
        array.add(found.reply(&wanted, reply));
        let mut rest = source.range(&wanted.bounds, wanted.now);
        while wanted.limit > 0 && !gone.load(Ordering::Relaxed) {
            match if wanted.backward { rest.next_back() } else { rest.next() } {
                None => break,
                Some(Ok((key, value))) => {
                    if wanted.takes(&key) {
                        wanted.reply(reply, &key[ID_BYTES..], &value);
                        array.add(wanted.elements());
                    }
                }
                Some(Err(error)) => {
                    reply.error(&format!("ERR the rest of the range cannot be read: {error}"));
                    array.add(1);
                    break;
                }
            }
        }
    })
}

unsafe extern "C" fn disconnected(_ctx: Ctx, client: *mut raw::RedisModuleBlockedClient) {
    for (address, gone) in waiting().iter() {
        if *address == client.addr() {
            gone.store(true, Ordering::Relaxed);
        }
    }
}

/// Tells the latency monitor how long it took. The server's own thread calls it, with what the thread left.
unsafe extern "C" fn note(_ctx: Ctx, timing: *mut c_void) {
    // SAFETY: `serve` gave it away for this call, which is the only one.
    let timing = unsafe { Box::from_raw(timing.cast::<Timing>()) };
    latency::note(timing.threshold, c"om.range-thread", timing.began.elapsed());
}
