//! The server's side of changes that a thread makes: see `store::long`.
//!
//! 1. A command begins a job, and blocks its client.
//! 2. A thread does its part, writes the reply, and wakes the server up.
//! 3. Before the server sleeps next, it ends the job: it tells replicas and listeners, unblocks the client, and carries out the
//!    commands that have waited for the map, in the order in which they came.
//!
//! A command of `MULTI` or of a script cannot wait: it ends the job itself, once the thread has done its part. So does what the
//! server does with a map in other commands: `DUMP`, `COPY`, `RENAME`, `SWAPDB` and so on.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bristlecone::Error;

use super::aside::{self, Blocked};
use super::found::Wanted;
use super::{COMMANDS, Call, Refusal, Target, bytes, reply_refusal};
use crate::map::{Large, Map};
use crate::server::{Holds, Key, OwnString, RawString, Reply, call, own_context, raw, warn};
use crate::store::{ID_BYTES, Item, Job, Task};
use crate::{events, kind, latency, state};

/// What is left of a removal for the main thread.
struct Removal {
    job: Arc<Job>,
    db: c_int,
    name: Vec<u8>,
    event: &'static CStr,
    began: Instant,
    client: Option<Blocked>,
    /// What the thread has found.
    outcome: Option<Outcome>,
}

/// What a thread found.
enum Outcome {
    /// All fields are to be removed: the key is.
    All,
    /// Fields from the first to the last are removed.
    Between(Vec<u8>, Vec<u8>),
    /// None is.
    Nothing,
}

/// A command that waits for a map.
struct Parked {
    job: Arc<Job>,
    client: Blocked,
    gone: Arc<AtomicBool>,
    command: usize,
    arguments: Vec<Vec<u8>>,
}

static REMOVALS: Mutex<Vec<Removal>> = Mutex::new(Vec::new());
static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a removal replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// How many fields were removed.
    Count,
    /// The fields with their values.
    Items,
}

/// Removes fields that follow each other, more than a command can do itself. Returns whether it does: otherwise nothing has happened.
pub fn remove(
    call: &Call<'_>,
    target: &Target<'_>,
    large: &Large,
    wanted: Wanted,
    replies: Replies,
    event: &'static CStr,
) -> bool {
    // A replica cannot let its master wait, and need not reply.
    let client = if aside::can_block(call) {
        match aside::block(call.ctx) {
            Some(client) => Some(client),
            None => return false,
        }
    } else if aside::is_from_master(call) {
        None
    } else {
        return false;
    };
    let job = call.store.begin_removal(large.id());
    // The next command that asks counts them.
    large.forget_len();
    lock(&REMOVALS).push(Removal {
        job: Arc::clone(&job),
        db: target.db,
        name: target.name.to_vec(),
        event,
        began: Instant::now(),
        client,
        outcome: None,
    });
    let work = {
        let job = Arc::clone(&job);
        move || carry_out(&job, wanted, replies, client)
    };
    if std::thread::Builder::new().name("bristlecone-long".to_owned()).spawn(work.clone()).is_err() {
        work();
    }
    true
}

/// The thread's part of a removal.
fn carry_out(job: &Arc<Job>, wanted: Wanted, replies: Replies, client: Option<Blocked>) {
    let ctx = client.map(|client| call!(RedisModule_GetThreadSafeContext(client.0.as_ptr())));
    let reply = ctx.map(Reply);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        find_and_remove(job, wanted, replies, reply)
    }));
    let outcome = match done {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            if let Some(reply) = reply {
                reply_refusal(reply, Refusal::from(error));
            }
            Outcome::Nothing
        }
        Err(_) => {
            warn("a long removal failed unexpectedly");
            Outcome::Nothing
        }
    };
    if let Some(ctx) = ctx {
        call!(RedisModule_FreeThreadSafeContext(ctx));
    }
    if let Some(removal) = lock(&REMOVALS).iter_mut().find(|removal| Arc::ptr_eq(&removal.job, job)) {
        removal.outcome = Some(outcome);
    }
    job.set_done();
    wake_up();
}

fn find_and_remove(
    job: &Arc<Job>,
    mut wanted: Wanted,
    replies: Replies,
    reply: Option<Reply>,
) -> Result<Outcome, Error> {
    let Task::Remove(id) = job.task() else { return Ok(Outcome::Nothing) };
    let store = state::store();
    let items = store.large_range(&wanted.bounds, wanted.now);
    let items = wanted.in_range(items, replies == Replies::Items)?;
    let ends = items
        .first
        .zip(items.last)
        .map(|(one, other)| if one <= other { (one, other) } else { (other, one) });
    let Some((first, last)) = ends else {
        say(reply, replies, &items.items, 0);
        return Ok(Outcome::Nothing);
    };
    let mut all = store.items_of(id);
    let is_first = matches!(all.next().transpose()?, Some((key, _)) if key == first);
    let is_last =
        first == last || matches!(store.items_of(id).next_back().transpose()?, Some((key, _)) if key == last);
    let outcome = if is_first && is_last {
        Outcome::All
    } else {
        store.remove_between(job, first.clone(), last.clone())?;
        Outcome::Between(first, last)
    };
    say(reply, replies, &items.items, items.count);
    Ok(outcome)
}

fn say(reply: Option<Reply>, replies: Replies, items: &[Item], count: usize) {
    let Some(reply) = reply else { return };
    if replies == Replies::Count {
        return reply.number(count as i64);
    }
    reply.array(2 * items.len());
    for (key, value) in items {
        reply.bytes(&key[ID_BYTES..]);
        reply.bytes(value);
    }
}

/// Wakes the server up, so that it ends what is done.
fn wake_up() {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    call!(RedisModule_EventLoopAddOneShot(Some(nothing), std::ptr::null_mut()));
}

/// Copies a map to one that no key has yet, in a thread.
pub fn copy(from: u64, to: u64) -> Result<(), Error> {
    go_on_with(state::store().begin_copy(from, to)?);
    Ok(())
}

/// Continues copies that a crash has interrupted.
pub fn go_on() {
    state::store().open_jobs().into_iter().for_each(go_on_with);
}

fn go_on_with(job: Arc<Job>) {
    let work = move || {
        match state::store().copy_rest(&job) {
            Ok(()) => job.set_done(),
            Err(error) => {
                warn(&format!(
                    "a map that is copied is damaged, and its copy is not served: {error}; run OM.CHECK"
                ));
                job.fail(&error);
            }
        }
        wake_up();
    };
    if std::thread::Builder::new().name("bristlecone-long".to_owned()).spawn(work.clone()).is_err() {
        work();
    }
}

/// Ends all jobs whose threads have done their part, and carries out what has waited for one that has ended. What waits for room
/// is refused, rather than let wait.
pub fn end_done() {
    for job in state::store().done_jobs() {
        end(&job, false);
    }
    let ready: Vec<Parked> = {
        let mut parked = lock(&PARKED);
        parked.extract_if(.., |parked| parked.job.is_done() || parked.job.is_stuck()).collect()
    };
    for parked in ready {
        if !parked.gone.load(Ordering::Relaxed) {
            again(&parked);
        }
        aside::unblock(parked.client);
    }
}

/// Waits for the job of a map, if it has one, and ends it.
///
/// # Errors
///
/// [`Error::PoolFull`] if it waits for room.
pub fn wait_for(id: u64) -> Result<(), Error> {
    while let Some(job) = state::store().job_of(id) {
        wait(&job)?;
    }
    Ok(())
}

/// Waits for a job and ends it.
pub fn wait(job: &Arc<Job>) -> Result<(), Error> {
    job.wait(state::store())?;
    end(job, false);
    Ok(())
}

/// Waits for all jobs and ends them: databases are exchanged.
pub fn wait_for_all() {
    for job in state::store().open_jobs() {
        _ = wait(&job);
    }
}

/// Waits for the removal from a key that gets another name or database, and ends it under the old one.
pub fn wait_for_name(db: c_int, name: &[u8]) {
    let named = |removal: &Removal| removal.db == db && removal.name == name;
    let job = lock(&REMOVALS).iter().find(|removal| named(removal)).map(|removal| Arc::clone(&removal.job));
    if let Some(job) = job
        && job.wait(state::store()).is_ok()
    {
        end(&job, true);
    }
}

/// Ends a job: its maps may be used again. `is_renamed`: its key is called otherwise since, and replicas do not know that yet.
fn end(job: &Arc<Job>, is_renamed: bool) {
    if let Err(error) = state::store().end_job(job) {
        warn(&format!("a note of a long command stays in the pool until the next start: {error}"));
    }
    let removal = {
        let mut removals = lock(&REMOVALS);
        let at = removals.iter().position(|removal| Arc::ptr_eq(&removal.job, job));
        at.map(|at| removals.remove(at))
    };
    let Some(removal) = removal else { return };
    tell(&removal, is_renamed);
    latency::watch(own_context(), removal.event, removal.began.elapsed());
    if let Some(client) = removal.client {
        aside::unblock(client);
    }
}

/// Tells replicas, the append-only file and listeners of a removal, and removes a key without fields.
fn tell(removal: &Removal, is_renamed: bool) {
    let Task::Remove(id) = removal.job.task() else { return };
    let (ctx, name) = (own_context(), OwnString::new(&removal.name));
    if call!(RedisModule_SelectDb(ctx, removal.db)) != raw::REDISMODULE_OK as c_int {
        return;
    }
    let key = Key::write(ctx, name.raw());
    let has_map = key.as_ref().is_some_and(|key| match key.holds(kind::of_maps()) {
        // SAFETY: the key holds it, and nothing frees it while this thread is here.
        Holds::Map(value) => unsafe { Map::borrow(value) }.id() == id,
        _ => false,
    });
    if !has_map && !is_renamed {
        return;
    }
    let raw = [name.raw(), name.raw()];
    let call = Call { ctx, raw: &raw, reply: Reply(ctx), store: state::store(), is_again: true };
    match &removal.outcome {
        None | Some(Outcome::Nothing) => {}
        Some(Outcome::All) => {
            call.tell(raw::REDISMODULE_NOTIFY_MODULE, removal.event);
            if let Some(key) = key.filter(|_| has_map) {
                key.delete();
                call!(RedisModule_Replicate(ctx, c"DEL".as_ptr(), c"s".as_ptr(), name.raw()));
                events::by_module(|| call.tell(raw::REDISMODULE_NOTIFY_GENERIC, c"del"));
            }
        }
        Some(Outcome::Between(first, last)) => {
            let [first, last] = [first, last].map(|key| [b"[", &key[ID_BYTES..]].concat());
            call.changed(c"OM.DELRANGE", &[&first, &last], removal.event);
        }
    }
}

/// Lets a command wait for a job. Returns whether it does.
pub fn park(call: &Call<'_>, command: usize, job: Arc<Job>) -> bool {
    if !aside::can_block(call) || job.is_stuck() {
        return false;
    }
    let Some(client) = aside::block(call.ctx) else { return false };
    let arguments = call.raw.iter().map(|raw| bytes(*raw).to_vec()).collect();
    lock(&PARKED).push(Parked { job, client, gone: aside::watch(client), command, arguments });
    true
}

/// Carries out a command that has waited.
fn again(parked: &Parked) {
    let command = &COMMANDS[parked.command];
    let ctx = call!(RedisModule_GetThreadSafeContext(parked.client.0.as_ptr()));
    let reply = Reply(ctx);
    let is_replica = call!(RedisModule_GetContextFlags(ctx)) as u32 & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0;
    if is_replica && command.flags.to_bytes().starts_with(b"write") {
        reply.error("READONLY You can't write against a read only replica.");
    } else {
        let strings: Vec<OwnString> =
            parked.arguments.iter().map(|argument| OwnString::new(argument)).collect();
        let raw: Vec<RawString> = strings.iter().map(OwnString::raw).collect();
        super::carry_out(
            parked.command,
            &Call { ctx, raw: &raw, reply, store: state::store(), is_again: true },
        );
    }
    call!(RedisModule_FreeThreadSafeContext(ctx));
}
