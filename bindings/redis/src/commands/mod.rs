//! The commands `OM.*`: what is the same for all, and the table of them.

mod aside;
mod change;
mod docs;
mod found;
mod range;
mod read;
mod report;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bristlecone::{Error, KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::map::Map;
use crate::server::{Ctx, Holds, Key, RawString, Reply, bytes, call, raw, warn};
use crate::store::{ID_BYTES, Store, is_damage};
use crate::{events, kind, latency, state};

/// Longest field in bytes.
pub const FIELD_BYTES_MAX: usize = KEY_BYTES_MAX - ID_BYTES;

/// Why a command is refused. Nothing has changed then.
#[derive(Debug)]
pub enum Refusal {
    /// The number of arguments is wrong.
    Arity,
    /// The key holds something else.
    WrongType,
    /// Something else, with its code.
    Because(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::PoolFull { .. } | Error::MediumFull { .. } => Self::Because(format!("OOM {error}")),
            error => {
                if is_damage(&error) {
                    warn_of_damage(&error);
                }
                Self::Because(format!("ERR {error}"))
            }
        }
    }
}

/// Writes into the server's log that something is damaged, once a second at most.
fn warn_of_damage(error: &Error) {
    static WARNED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.is_none_or(|warned| warned.elapsed() >= Duration::from_secs(1)) {
        *warned = Some(Instant::now());
        warn(&format!("{error}; run OM.CHECK, and `bristlecone check --repair` on the pool"));
    }
}

/// What a command returns: it has replied, or is refused.
pub type Done = Result<(), Refusal>;

/// Returns a refusal with code `ERR`.
pub fn refuse<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Because(format!("ERR {}", why.into())))
}

/// A command that a client sent.
pub struct Call<'a> {
    ctx: Ctx,
    raw: &'a [RawString],
    /// Where replies go.
    pub reply: Reply,
    /// The store.
    pub store: &'static Store,
}

impl<'a> Call<'a> {
    /// Returns an argument; the command's name is the first.
    pub fn argument(&self, at: usize) -> &'a [u8] {
        bytes(self.raw[at])
    }

    /// Returns the arguments from one on.
    pub fn arguments(&self, from: usize) -> Vec<&'a [u8]> {
        self.raw.get(from..).unwrap_or_default().iter().map(|raw| bytes(*raw)).collect()
    }

    /// Opens the key for reading. `None`: it is not there.
    pub fn read(&self) -> Result<Option<&'a Map>, Refusal> {
        match Key::read(self.ctx, self.raw[1]) {
            None => Ok(None),
            Some(key) => map_of(&key),
        }
    }

    /// Opens the key for writing.
    pub fn write(&self) -> Result<Target<'a>, Refusal> {
        let Some(key) = Key::write(self.ctx, self.raw[1]) else { return refuse("the key cannot be opened") };
        let map = map_of(&key)?;
        Ok(Target { db: key.db(), key, map, name: bytes(self.raw[1]) })
    }

    /// Tells replicas, the append-only file and listeners that the command was carried out, as these arguments after the key.
    /// They write what the command came to, so that to apply it twice in order is to apply it once.
    pub fn changed(&self, command: &CStr, arguments: &[&[u8]], event: &CStr) {
        let strings: Vec<_> =
            arguments.iter().map(|argument| crate::server::OwnString::new(argument)).collect();
        let mut raw: Vec<RawString> = strings.iter().map(crate::server::OwnString::raw).collect();
        let (start, len) = (raw.as_mut_ptr(), raw.len());
        call!(RedisModule_Replicate(self.ctx, command.as_ptr(), c"sv".as_ptr(), self.raw[1], start, len));
        self.tell(raw::REDISMODULE_NOTIFY_MODULE, event);
    }

    /// Tells the same of a command that is given on as it was sent.
    pub fn changed_verbatim(&self, event: &CStr) {
        call!(RedisModule_ReplicateVerbatim(self.ctx));
        self.tell(raw::REDISMODULE_NOTIFY_MODULE, event);
    }

    /// Replicates a command by its own first `len` arguments, from the key on.
    pub fn changed_as_sent(&self, command: &CStr, len: usize, event: &CStr) {
        let start = self.raw[1..].as_ptr();
        call!(RedisModule_Replicate(self.ctx, command.as_ptr(), c"v".as_ptr(), start, len));
        self.tell(raw::REDISMODULE_NOTIFY_MODULE, event);
    }

    /// Removes the key if its map has no field left. Replicas and the append-only file are told to delete it: a replay of the
    /// file skips the commands of maps, and what an earlier part of the file has under that name must not stay in the way.
    pub fn drop_if_empty(&self, target: &Target<'_>) {
        let Some(map) = target.map else { return };
        let is_empty = match map.len() {
            Some(len) => len == 0,
            // What cannot be read is not removed.
            None => matches!(self.store.has_fields(map.id()), Ok(false)),
        };
        if is_empty {
            target.key.delete();
            call!(RedisModule_Replicate(self.ctx, c"DEL".as_ptr(), c"s".as_ptr(), self.raw[1]));
            events::by_module(|| self.tell(raw::REDISMODULE_NOTIFY_GENERIC, c"del"));
        }
    }

    /// Returns how many fields a map has, which is counted the first time.
    pub fn len(&self, map: &Map) -> Result<u64, Refusal> {
        if let Some(len) = map.len() {
            return Ok(len);
        }
        let len = self.store.count(map.id())?;
        map.set_len(len);
        Ok(len)
    }

    /// Tells listeners, `WATCH` and the caches of clients. Commands that change nothing do not come here.
    fn tell(&self, kind: c_int, event: &CStr) {
        call!(RedisModule_SignalModifiedKey(self.ctx, self.raw[1]));
        call!(RedisModule_NotifyKeyspaceEvent(self.ctx, kind, event.as_ptr(), self.raw[1]));
    }
}

/// The key that a command changes.
pub struct Target<'a> {
    key: Key,
    /// Its map, if it is there.
    pub map: Option<&'a Map>,
    db: i32,
    name: &'a [u8],
}

impl Target<'_> {
    /// Writes fields atomically, of which `new` are new, and creates the map if it does not exist.
    pub fn set(&self, store: &Store, fields: &BTreeMap<&[u8], &[u8]>, new: u64) -> Done {
        let changes: Vec<_> = fields.iter().map(|(field, value)| (*field, Some(*value))).collect();
        if let Some(map) = self.map {
            store.apply(map.id(), &changes)?;
            map.grow(new as i64);
            return Ok(());
        }
        let (space, id) = store.create(self.db, self.name, &changes)?;
        let map = Map::new(id, Some(space));
        map.set_len(changes.len() as u64);
        let value = map.into_raw();
        if !self.key.set(kind::of_maps(), value) {
            // SAFETY: the server refused it, so that nothing else has it.
            drop(unsafe { Map::take(value) });
            store.detach(id, Some(space));
            return refuse("the server refused the key");
        }
        Ok(())
    }

    /// Removes fields in one step, all of which are there.
    pub fn remove(&self, store: &Store, map: &Map, fields: &[&[u8]]) -> Done {
        let changes: Vec<_> = fields.iter().map(|field| (*field, None)).collect();
        store.apply(map.id(), &changes)?;
        map.grow(-(changes.len() as i64));
        Ok(())
    }
}

fn map_of<'a>(key: &Key) -> Result<Option<&'a Map>, Refusal> {
    match key.holds(kind::of_maps()) {
        Holds::Nothing => Ok(None),
        // SAFETY: the keyspace holds it; only this thread removes keys, at the end of a command at the earliest.
        Holds::Map(value) => Ok(Some(unsafe { Map::borrow(value) })),
        Holds::Another => Err(Refusal::WrongType),
    }
}

/// Verifies that there can be such a field.
pub fn check_field(field: &[u8]) -> Done {
    match field.len() {
        0..=FIELD_BYTES_MAX => Ok(()),
        len => refuse(format!("a field of {len} bytes is too long: at most {FIELD_BYTES_MAX} bytes")),
    }
}

/// Verifies that there can be such a value.
pub fn check_value(value: &[u8]) -> Done {
    match value.len() {
        0..=VALUE_BYTES_MAX => Ok(()),
        len => refuse(format!("a value of {len} bytes is too long: at most {VALUE_BYTES_MAX} bytes")),
    }
}

/// Returns a number that an argument is.
pub fn integer(argument: &[u8]) -> Result<i64, Refusal> {
    let number = std::str::from_utf8(argument).ok().and_then(|text| text.parse::<i64>().ok());
    // As the server's own commands: one way to write each number.
    let number = number.filter(|number| number.to_string().as_bytes() == argument);
    number.map_or_else(|| refuse("value is not an integer or out of range"), Ok)
}

/// Returns whether an argument is a word, in whatever case.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// A command.
struct Command {
    name: &'static CStr,
    flags: &'static CStr,
    /// Minimum number of arguments, the name included; the exact number if `rest` is false.
    arguments: usize,
    rest: bool,
    run: fn(&Call<'_>) -> Done,
    summary: &'static CStr,
    complexity: &'static CStr,
}

impl Command {
    /// Returns whether the first argument is a key.
    fn has_key(&self) -> bool {
        self.arguments > 1 && self.name != c"om.unit"
    }
}

macro_rules! commands {
    ($($name:literal $flags:literal $arguments:literal $rest:literal $run:path, $summary:literal, $complexity:literal;)*) => {
        const COMMANDS: &[Command] = &[$(Command {
            name: $name, flags: $flags, arguments: $arguments, rest: $rest, run: $run, summary: $summary, complexity: $complexity,
        }),*];
    };
}

commands! {
    c"om.set" c"write deny-oom fast" 4 true change::set, c"Writes fields of an ordered map, all in one step.", c"O(k log n) for k fields";
    c"om.get" c"readonly fast" 3 false read::get, c"Returns the value of a field.", c"O(log n)";
    c"om.mget" c"readonly fast" 3 true read::mget, c"Returns the values of fields.", c"O(k log n) for k fields";
    c"om.del" c"write fast" 3 true change::del, c"Removes fields, all in one step.", c"O(k log n) for k fields";
    c"om.exists" c"readonly fast" 3 false read::exists, c"Returns whether a field is there.", c"O(log n)";
    c"om.len" c"readonly" 2 false read::len, c"Returns how many fields there are.", c"O(1); O(n) the first time after a start";
    c"om.incrby" c"write deny-oom fast" 4 false change::incrby, c"Adds to the integer that a field has.", c"O(log n)";
    c"om.cas" c"write deny-oom fast" 5 true change::cas, c"Writes or removes a field if it has an expected value, or none.", c"O(log n)";
    c"om.range" c"readonly" 4 true range::range, c"Returns fields between two bounds, in order.", c"O(log n + m) for m fields returned";
    c"om.delrange" c"write" 4 true range::delrange, c"Removes fields between two bounds, in one step.", c"O(m log n) for m fields removed";
    c"om.popmin" c"write fast" 2 true range::popmin, c"Removes and returns the first fields.", c"O(m log n) for m fields removed";
    c"om.popmax" c"write fast" 2 true range::popmax, c"Removes and returns the last fields.", c"O(m log n) for m fields removed";
    c"om.scan" c"readonly" 3 true range::scan, c"Returns fields from a cursor on.", c"O(log n + m) for m fields returned";
    c"om.info" c"readonly" 2 false report::info, c"Returns what is known of a map.", c"O(log n)";
    c"om.check" c"readonly admin" 1 false report::check, c"Verifies the trees of the pool.", c"O(n) for all fields of all maps";
    c"om.unit" c"readonly admin" 2 false report::unit, c"Stands in append-only files, and is not for clients.", c"O(1)";
}

/// The positions of commands that matter while a file is read.
const SET: usize = 0;
const UNIT: usize = 15;

/// Registers the commands, and what `INFO` says. Returns whether the server took all.
pub fn register(ctx: Ctx) -> bool {
    macro_rules! entries {
        ($($at:literal)*) => { [$(entry::<$at> as unsafe extern "C" fn(Ctx, *mut RawString, c_int) -> c_int),*] };
    }
    let entries = entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    const { assert!(COMMANDS.len() == 16) };
    COMMANDS.iter().zip(entries).all(|(command, entry)| {
        let keys = c_int::from(command.has_key());
        let flags = command.flags.as_ptr();
        call!(RedisModule_CreateCommand(ctx, command.name.as_ptr(), Some(entry), flags, keys, keys, keys))
            == 0
            && docs::describe(ctx, command)
    }) && report::register(ctx)
}

/// Puts a placeholder under a name that is free.
fn hold_place(ctx: Ctx, name: RawString) {
    let Some(key) = Key::write(ctx, name) else { return };
    if key.holds(kind::of_maps()) == Holds::Nothing {
        let value = Map::placeholder().into_raw();
        if !key.set(kind::of_maps(), value) {
            // SAFETY: the server refused it, so that nothing else has it.
            drop(unsafe { Map::take(value) });
        }
    }
}

unsafe extern "C" fn entry<const AT: usize>(ctx: Ctx, argv: *mut RawString, argc: c_int) -> c_int {
    // SAFETY: the server passes `argc` arguments, which live until the command returns.
    let raw = unsafe { std::slice::from_raw_parts(argv, argc as usize) };
    let (command, reply) = (&COMMANDS[AT], Reply(ctx));
    if raw.len() < command.arguments || (!command.rest && raw.len() > command.arguments) {
        reply.wrong_arity();
        return 0;
    }
    if events::skips_files() {
        // The file that is being read tells what the pool has already. A map has its place in the keyspace, so that the server's
        // own commands do what they did when they were written.
        match AT {
            SET => hold_place(ctx, raw[1]),
            UNIT => events::reads_unit(bytes(raw[1])),
            _ => {}
        }
        reply.ok();
        return 0;
    }
    events::restore(ctx);
    let began = Instant::now();
    let call = Call { ctx, raw, reply, store: state::store() };
    match catch_unwind(AssertUnwindSafe(|| (command.run)(&call))) {
        Ok(Ok(())) => {}
        Ok(Err(Refusal::Arity)) => reply.wrong_arity(),
        Ok(Err(Refusal::WrongType)) => reply.wrong_type(),
        Ok(Err(Refusal::Because(why))) => reply.error(&why),
        Err(_) => {
            warn(&format!("{:?} failed unexpectedly", command.name));
            reply.error("ERR the command failed unexpectedly: see the server's log");
        }
    }
    latency::watch(ctx, command.name, began);
    0
}
