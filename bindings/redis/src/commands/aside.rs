//! Long ranges, in separate threads: the server continues to serve other clients.
//!
//! 1. The command reads the first items itself. Most ranges end there.
//! 2. If there are more, it takes a snapshot, blocks its client and leaves the rest to a thread.
//! 3. The thread reads the snapshot and writes the reply, which the server keeps in pieces of 16 KiB.
//! 4. The server's own thread sends them, and unblocks the client.
//!
//! In `MULTI`, in scripts and wherever else a client cannot be blocked, the command reads the range itself.

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
use crate::store::borrowed;

/// Threads that read ranges.
const THREADS: usize = 2;
/// Maximum number of ranges that wait for a thread. Beyond it, a command reads its range itself.
const WAITING_MAX: usize = 64;

/// A client that waits for its reply.
struct Blocked(NonNull<raw::RedisModuleBlockedClient>);

// SAFETY: the server's functions for blocked clients may be called in any thread.
unsafe impl Send for Blocked {}

/// A range, of which a part was read.
pub struct Part {
    /// What is wanted.
    pub wanted: Wanted,
    /// What was read.
    pub found: Found,
}

/// A range that a thread replies.
struct Work {
    client: Blocked,
    gone: Arc<AtomicBool>,
    snapshot: Snapshot,
    part: Box<Part>,
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

/// Replies a range in a thread, or returns it if that is not possible here.
pub fn reply(call: &Call<'_>, part: Box<Part>) -> std::result::Result<(), Box<Part>> {
    let flags = call!(RedisModule_GetContextFlags(call.ctx)) as u32;
    let bound = raw::REDISMODULE_CTX_FLAGS_MULTI
        | raw::REDISMODULE_CTX_FLAGS_LUA
        | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
    let Some(threads) = THREAD.get_or_init(start) else { return Err(part) };
    if flags & bound != 0 {
        return Err(part);
    }
    let Ok(snapshot) = call.store.pool().snapshot() else { return Err(part) };
    let timing = Box::new(Timing { began: Instant::now(), threshold: latency::threshold(call.ctx) });
    let blocked = call!(RedisModule_BlockClient(call.ctx, None, None, Some(note), 0));
    let Some(client) = NonNull::new(blocked) else { return Err(part) };
    call!(RedisModule_SetDisconnectCallback(blocked, Some(disconnected)));
    let gone = Arc::new(AtomicBool::new(false));
    waiting().push((blocked.addr(), Arc::clone(&gone)));
    let work = Work { client: Blocked(client), gone, snapshot, part, timing };
    match threads.try_send(work) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) => {
            forget(work.client.0);
            call!(RedisModule_AbortBlock(work.client.0.as_ptr()));
            Err(work.part)
        }
    }
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
        let Ok(Work { client, gone, snapshot, part, timing }) = work else { return };
        let ctx = call!(RedisModule_GetThreadSafeContext(client.0.as_ptr()));
        let replied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let rest = snapshot.tree(state::store().items()).range(borrowed(&part.wanted.after(&part.found)));
            send(Reply(ctx), &part, rest, &gone);
        }));
        if replied.is_err() {
            warn("a long range failed unexpectedly");
        }
        drop(snapshot);
        call!(RedisModule_FreeThreadSafeContext(ctx));
        forget(client.0);
        call!(RedisModule_UnblockClient(client.0.as_ptr(), Box::into_raw(timing).cast()));
    }
}

/// Replies what was found, and the rest of what is wanted. What is damaged is an error at the end of the array.
pub fn send<I>(reply: Reply, part: &Part, rest: I, gone: &AtomicBool)
where
    I: DoubleEndedIterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
{
    let Part { wanted, found } = part;
    let mut array = reply.open_array();
    array.add(found.reply(wanted, reply));
    let left = wanted.limit - found.len();
    let send = |item: Result<(Vec<u8>, Vec<u8>)>| match item {
        Ok((key, value)) => {
            array.add(wanted.reply(reply, &key, &value));
            !gone.load(Ordering::Relaxed)
        }
        Err(error) => {
            reply.error(&format!("ERR the rest of the range cannot be read: {error}"));
            array.add(1);
            false
        }
    };
    if wanted.backward {
        _ = rest.rev().take(left).all(send);
    } else {
        _ = rest.take(left).all(send);
    }
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
    latency::note(timing.threshold, c"om.range-thread", timing.began);
}
