//! The commands `OM.*`: what is the same for all, and the table of them.

mod aside;
mod blocking;
mod change;
mod docs;
pub mod expired;
mod expiry;
mod expiry_values;
mod found;
mod glob;
pub mod long;
mod range;
mod read;
mod report;
mod several;
mod span;
mod syntax;
mod target;

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bristlecone::{Error, KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::map::{Large, Map, Owned};
use crate::server::{Ctx, Holds, Key, RawString, Reply, bytes, call, raw, warn};
use crate::store::{Change, ID_BYTES, Job, NO_TIME, Store, Time, is_damage};
use crate::{events, kind, latency, state};

pub use self::target::Target;
pub use self::target::each_expiry;
use self::target::hold;

/// Fields of a command that replicas get in place of one that a client sent.
const FIELDS: usize = 128;
/// Longest field in bytes.
pub const FIELD_BYTES_MAX: usize = KEY_BYTES_MAX - ID_BYTES;

/// Why a command is refused. Nothing has changed then.
#[derive(Debug)]
pub enum Refusal {
    /// The number of arguments is wrong.
    Arity,
    /// The key holds something else.
    WrongType,
    /// A thread changes the map. The command is carried out later.
    Busy(Arc<Job>),
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
    /// Its client has waited, and no context of a command is there.
    is_again: bool,
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

    /// Returns how many arguments there are, the command's name included.
    pub fn len_of_arguments(&self) -> usize {
        self.raw.len()
    }

    /// Returns whether a master or a file gives the command, which was carried out before.
    pub fn is_given(&self) -> bool {
        let given = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        call!(RedisModule_GetContextFlags(self.ctx)) as u32 & given != 0
    }

    /// Returns the time that decides which fields of a map have expired; [`NO_TIME`]: none has for this command.
    pub fn now_of(&self, map: Map<'_>) -> Result<u64, Refusal> {
        match map {
            Map::Large(large) if self.store.has_times(large)? && !self.is_given() => Ok(self.store.now()),
            _ => Ok(NO_TIME),
        }
    }

    /// Opens the key for reading. `None`: it is not there.
    pub fn read(&self) -> Result<Option<Map<'a>>, Refusal> {
        self.read_at(1)
    }

    /// Opens the key that an argument is for reading.
    pub fn read_at(&self, at: usize) -> Result<Option<Map<'a>>, Refusal> {
        match Key::read(self.ctx, self.raw[at]) {
            None => Ok(None),
            Some(key) => self.free_map_of(&key),
        }
    }

    /// Makes the key hold a map of these fields in place of whatever it held, in one durable step; without fields it is removed.
    /// Replicas get the command as it was sent, or the fields if `depends_on_time`.
    pub fn replace(
        &self,
        fields: &[Change<'_>],
        times: &[Time<'_>],
        depends_on_time: bool,
        event: &CStr,
    ) -> Done {
        let Some(key) = Key::write(self.ctx, self.raw[1]) else { return refuse("the key cannot be opened") };
        let (holds, name) = (key.holds(kind::of_maps()), bytes(self.raw[1]));
        if !fields.is_empty() {
            let old = match holds {
                // SAFETY: as in `map_of`.
                Holds::Map(value) => Some(unsafe { Map::borrow(value) }),
                _ => None,
            };
            let new = self.store.create_over(key.db(), name, fields, times, old)?;
            match holds {
                Holds::Map(_) => {
                    key.replace(kind::of_maps(), new);
                    key.expire_at(raw::REDISMODULE_NO_EXPIRE.into());
                }
                _ => hold(&key, self.store, new)?,
            }
            // A replay of the file skips this, and must not keep a value of another type.
            if holds == Holds::Another || holds != Holds::Nothing && depends_on_time {
                self.replicate_del();
            }
            if depends_on_time {
                self.changed_to(fields, times, event);
                return Ok(());
            }
            let name = self.raw[0];
            let command = bytes(name).to_ascii_uppercase();
            let command = std::ffi::CString::new(command).unwrap_or_default();
            self.changed_as_sent(&command, self.raw.len() - 1, event);
        } else if holds != Holds::Nothing {
            key.delete();
            self.replicate_del();
            events::by_module(|| self.tell(raw::REDISMODULE_NOTIFY_GENERIC, c"del"));
        }
        Ok(())
    }

    /// Makes the key hold a map of what could be read of its own, which expires when that did. Without fields it is removed.
    /// Replicas get the fields.
    pub fn rebuild(&self, fields: &[Change<'_>], times: &[Time<'_>]) -> Done {
        let Some(key) = Key::write(self.ctx, self.raw[1]) else { return refuse("the key cannot be opened") };
        let (expires, old, name) = (key.expires(), map_of(&key)?, bytes(self.raw[1]));
        if fields.is_empty() {
            key.delete();
            self.replicate_del();
            events::by_module(|| self.tell(raw::REDISMODULE_NOTIFY_GENERIC, c"del"));
            return Ok(());
        }
        key.replace(kind::of_maps(), self.store.create_over(key.db(), name, fields, times, old)?);
        drop(key);
        self.replicate_del();
        if expires != i64::from(raw::REDISMODULE_NO_EXPIRE) {
            events::keep_expiry(self.ctx, self.raw[1]);
        }
        self.changed_to(fields, times, c"om.repair");
        if expires != i64::from(raw::REDISMODULE_NO_EXPIRE) {
            let time = crate::server::OwnString::new(expires.to_string().as_bytes());
            call!(RedisModule_Replicate(
                self.ctx,
                c"PEXPIREAT".as_ptr(),
                c"ss".as_ptr(),
                self.raw[1],
                time.raw()
            ));
        }
        Ok(())
    }

    /// Opens the key for writing.
    pub fn write(&self) -> Result<Target<'a>, Refusal> {
        let Some(key) = Key::write(self.ctx, self.raw[1]) else { return refuse("the key cannot be opened") };
        let map = self.free_map_of(&key)?;
        let now = map.map_or(Ok(NO_TIME), |map| self.now_of(map))?;
        Ok(Target { db: key.db(), key, map, name: bytes(self.raw[1]), now })
    }

    /// Returns the map of a key, unless a thread changes it.
    fn free_map_of(&self, key: &Key) -> Result<Option<Map<'a>>, Refusal> {
        let map = map_of(key)?;
        if let Some(Map::Large(large)) = map
            && let Some(job) = self.store.job_of(large.id())
        {
            return Err(Refusal::Busy(job));
        }
        Ok(map)
    }

    /// Tells replicas, the append-only file and listeners that the command was carried out, as these arguments after the key.
    /// They write what the command came to, so that to apply it twice in order is to apply it once.
    pub fn changed(&self, command: &CStr, arguments: &[&[u8]], event: &CStr) {
        self.replicate(command, arguments);
        self.tell(raw::REDISMODULE_NOTIFY_MODULE, event);
    }

    /// Tells the same of fields that were written, and of their times.
    pub fn changed_to(&self, fields: &[Change<'_>], times: &[Time<'_>], event: &CStr) {
        for fields in fields.chunks(FIELDS) {
            let words: Vec<&[u8]> =
                fields.iter().flat_map(|(field, value)| [*field, value.unwrap_or_default()]).collect();
            self.replicate(c"OM.SET", &words);
        }
        each_expiry(times, |words| self.replicate(c"OM.PEXPIREAT", words));
        self.tell(raw::REDISMODULE_NOTIFY_MODULE, event);
    }

    fn replicate_del(&self) {
        call!(RedisModule_Replicate(self.ctx, c"DEL".as_ptr(), c"s".as_ptr(), self.raw[1]));
    }

    fn replicate(&self, command: &CStr, arguments: &[&[u8]]) {
        let strings: Vec<_> =
            arguments.iter().map(|argument| crate::server::OwnString::new(argument)).collect();
        let mut raw: Vec<RawString> = strings.iter().map(crate::server::OwnString::raw).collect();
        let (start, len) = (raw.as_mut_ptr(), raw.len());
        call!(RedisModule_Replicate(self.ctx, command.as_ptr(), c"sv".as_ptr(), self.raw[1], start, len));
    }

    /// Tells the same of a command that is given on as it was sent.
    pub fn changed_verbatim(&self, event: &CStr) {
        if self.is_again {
            let name = std::ffi::CString::new(bytes(self.raw[0])).unwrap_or_default();
            return self.changed_as_sent(&name, self.raw.len() - 1, event);
        }
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
        let is_empty = match target.map {
            None | Some(Map::Placeholder) => return,
            Some(Map::Small(small)) => self.store.with_small(small, |entry| entry.len() == 0),
            Some(Map::Large(large)) => match large.len() {
                Some(len) => Ok(len == 0),
                None => self.store.has_fields(large.id()).map(|has| !has),
            },
        };
        // What cannot be read is not removed.
        if is_empty.is_ok_and(|is_empty| is_empty) {
            target.key.delete();
            self.replicate_del();
            events::by_module(|| self.tell(raw::REDISMODULE_NOTIFY_GENERIC, c"del"));
        }
    }

    /// Returns how many fields a large map has, if they were counted.
    pub fn known_len(&self, large: &Large) -> Option<u64> {
        if large.len().is_none() {
            large.take_count();
        }
        large.len()
    }

    /// Returns how many fields a map has. Those of a large one are counted the first time.
    pub fn len(&self, map: Map<'_>) -> Result<u64, Refusal> {
        let large = match map {
            Map::Placeholder => return Ok(0),
            Map::Small(small) => return Ok(self.store.with_small(small, |entry| entry.len() as u64)?),
            Map::Large(large) => large,
        };
        let len = match self.known_len(large) {
            Some(len) => len,
            None => self.store.count(large.id())?,
        };
        large.set_len(len);
        Ok(len.saturating_sub(self.store.over_in(large, self.now_of(map)?)?))
    }

    /// Tells listeners, `WATCH`, the caches of clients, and clients that wait for a pop: a map whose fields have all expired was no
    /// new key. Commands that change nothing do not come here.
    fn tell(&self, kind: c_int, event: &CStr) {
        call!(RedisModule_SignalKeyAsReady(self.ctx, self.raw[1]));
        call!(RedisModule_SignalModifiedKey(self.ctx, self.raw[1]));
        call!(RedisModule_NotifyKeyspaceEvent(self.ctx, kind, event.as_ptr(), self.raw[1]));
    }
}

/// Replies why a command is refused.
fn reply_refusal(reply: Reply, refusal: Refusal) {
    match refusal {
        Refusal::Arity => reply.wrong_arity(),
        Refusal::WrongType => reply.wrong_type(),
        Refusal::Because(why) => reply.error(&why),
        Refusal::Busy(_) => reply.error("TRYAGAIN a long command changes the map"),
    }
}

fn map_of<'a>(key: &Key) -> Result<Option<Map<'a>>, Refusal> {
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
    // As the server's own commands: one way to write each number.
    let is_usual = match argument {
        [b'0'] => true,
        [b'-', digits @ ..] | digits => matches!(digits, [b'1'..=b'9', ..]),
    };
    let text = std::str::from_utf8(argument).ok().filter(|_| is_usual);
    let number = text.and_then(|text| text.parse::<i64>().ok());
    number.map_or_else(|| refuse("value is not an integer or out of range"), Ok)
}

/// Returns whether an argument is a word, in whatever case.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Where the keys of a command are: the first and the last argument, from the end if negative.
type Keys = (i32, i32);
/// The command has no key.
const NONE: Keys = (0, 0);
/// The first argument is the only key.
const ONE: Keys = (1, 1);

/// A command.
struct Command {
    name: &'static CStr,
    flags: &'static CStr,
    /// Minimum number of arguments, the name included; the exact number if `rest` is false.
    arguments: usize,
    rest: bool,
    keys: Keys,
    run: fn(&Call<'_>) -> Done,
    /// Its arguments: see [`syntax`].
    syntax: &'static str,
    summary: &'static CStr,
    complexity: &'static CStr,
}

macro_rules! commands {
    ($($name:literal $flags:literal $arguments:literal $rest:literal $keys:expr, $run:path, $syntax:literal, $summary:literal, $complexity:literal;)*) => {
        const COMMANDS: &[Command] = &[$(Command {
            name: $name, flags: $flags, arguments: $arguments, rest: $rest, keys: $keys, run: $run, syntax: $syntax, summary: $summary,
            complexity: $complexity,
        }),*];
    };
}

commands! {
    c"om.set" c"write deny-oom fast" 4 true ONE, change::set, "key (field value)... [NX|XX]", c"Writes fields of an ordered map, all in one step.", c"O(k log n) for k fields";
    c"om.unit" c"readonly admin" 2 false NONE, report::unit, "number", c"Stands in append-only files, and is not for clients.", c"O(1)";
    c"om.rangestore" c"write deny-oom" 5 true (1, 2), several::rangestore, "destination source (min max|PREFIX prefix) [BYLEX] [REV] [LIMIT [offset] count] [MATCH pattern]", c"Stores the fields of a range of one map as another.", c"O(log n + m log m) for m fields stored";
    c"om.merge" c"write deny-oom" 3 true (1, -1), several::merge, "destination source...", c"Writes all fields of maps into a map, in one step.", c"O(m log n) for m fields of the sources";
    c"om.expire" c"write deny-oom fast" 6 true ONE, expiry::expire, "key seconds [NX|XX|GT|LT] (FIELDS numfields field...)", c"Sets how many seconds fields live from now on.", c"O(k log n) for k fields";
    c"om.pexpire" c"write deny-oom fast" 6 true ONE, expiry::pexpire, "key milliseconds [NX|XX|GT|LT] (FIELDS numfields field...)", c"Sets how many milliseconds fields live from now on.", c"O(k log n) for k fields";
    c"om.expireat" c"write deny-oom fast" 6 true ONE, expiry::expireat, "key unix-time-seconds [NX|XX|GT|LT] (FIELDS numfields field...)", c"Sets the second at which fields expire.", c"O(k log n) for k fields";
    c"om.pexpireat" c"write deny-oom fast" 6 true ONE, expiry::pexpireat, "key unix-time-milliseconds [NX|XX|GT|LT] (FIELDS numfields field...)", c"Sets the millisecond at which fields expire.", c"O(k log n) for k fields";
    c"om.ttl" c"readonly fast" 5 true ONE, expiry::ttl, "key (FIELDS numfields field...)", c"Returns how many seconds fields still live.", c"O(k log n) for k fields";
    c"om.pttl" c"readonly fast" 5 true ONE, expiry::pttl, "key (FIELDS numfields field...)", c"Returns how many milliseconds fields still live.", c"O(k log n) for k fields";
    c"om.expiretime" c"readonly fast" 5 true ONE, expiry::expiretime, "key (FIELDS numfields field...)", c"Returns the seconds at which fields expire.", c"O(k log n) for k fields";
    c"om.pexpiretime" c"readonly fast" 5 true ONE, expiry::pexpiretime, "key (FIELDS numfields field...)", c"Returns the milliseconds at which fields expire.", c"O(k log n) for k fields";
    c"om.persist" c"write fast" 5 true ONE, expiry::persist, "key (FIELDS numfields field...)", c"Makes fields live without end.", c"O(k log n) for k fields";
    c"om.get" c"readonly fast" 3 false ONE, read::get, "key field", c"Returns the value of a field.", c"O(log n)";
    c"om.mget" c"readonly fast" 3 true ONE, read::mget, "key field...", c"Returns the values of fields.", c"O(k log n) for k fields";
    c"om.getdel" c"write fast" 3 false ONE, change::getdel, "key field", c"Returns the value of a field and removes the field.", c"O(log n)";
    c"om.del" c"write fast" 3 true ONE, change::del, "key field...", c"Removes fields, all in one step.", c"O(k log n) for k fields";
    c"om.exists" c"readonly fast" 3 false ONE, read::exists, "key field", c"Returns whether a field is there.", c"O(log n)";
    c"om.len" c"readonly" 2 false ONE, read::len, "key", c"Returns how many fields there are.", c"O(1); O(n) the first time after a start";
    c"om.incrby" c"write deny-oom fast" 4 false ONE, change::incrby, "key field increment", c"Adds to the integer that a field has.", c"O(log n)";
    c"om.incrbyfloat" c"write deny-oom fast" 4 false ONE, change::incrbyfloat, "key field increment", c"Adds to the number that a field has.", c"O(log n)";
    c"om.cas" c"write deny-oom fast" 5 true ONE, change::cas, "key field (expected new|(IF value|IFABSENT) (SET value|DEL))", c"Writes or removes a field if it has an expected value, or none.", c"O(log n)";
    c"om.range" c"readonly" 4 true ONE, range::range, "key (min max|PREFIX prefix) [BYLEX] [REV] [LIMIT [offset] count] [MATCH pattern] [WITHVALUES]", c"Returns fields between two bounds, in order.", c"O(log n + m) for m fields returned or left out";
    c"om.count" c"readonly" 4 true ONE, range::count, "key (min max|PREFIX prefix) [BYLEX] [MATCH pattern]", c"Returns how many fields are between two bounds.", c"O(log n + m) for m fields between them";
    c"om.rank" c"readonly" 3 true ONE, range::rank, "key field [REV]", c"Returns how many fields are before a field.", c"O(log n + m) for m fields before it";
    c"om.delrange" c"write" 4 true ONE, range::delrange, "key (min max|PREFIX prefix) [BYLEX] [LIMIT [offset] count] [MATCH pattern]", c"Removes fields between two bounds, in one step.", c"O(m log n) for m fields removed";
    c"om.popmin" c"write fast" 2 true ONE, range::popmin, "key [count]", c"Removes and returns the first fields.", c"O(m log n) for m fields removed";
    c"om.popmax" c"write fast" 2 true ONE, range::popmax, "key [count]", c"Removes and returns the last fields.", c"O(m log n) for m fields removed";
    c"om.bpopmin" c"write fast blocking" 3 true (1, -2), blocking::bpopmin, "key... timeout", c"Removes and returns the first field of the first map that is there, and waits for one.", c"O(log n)";
    c"om.bpopmax" c"write fast blocking" 3 true (1, -2), blocking::bpopmax, "key... timeout", c"Removes and returns the last field of the first map that is there, and waits for one.", c"O(log n)";
    c"om.scan" c"readonly" 3 true ONE, range::scan, "key cursor [MATCH pattern] [COUNT count]", c"Returns fields from a cursor on.", c"O(log n + m) for m fields looked at";
    c"om.info" c"readonly" 2 false ONE, report::info, "key", c"Returns what is known of a map.", c"O(log n)";
    c"om.check" c"readonly admin" 1 false NONE, report::check, "", c"Verifies the trees of the pool.", c"O(n) for all fields of all maps";
    c"om.repair" c"write admin deny-oom" 2 false ONE, report::repair, "key", c"Replaces a damaged map by what can be read of it.", c"O(n log n)";
    c"om.getex" c"write fast" 5 true ONE, expiry_values::getex, "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST] (FIELDS numfields field...)", c"Returns the values of fields, and sets when they expire.", c"O(k log n) for k fields";
    c"om.setex" c"write deny-oom fast" 6 true ONE, expiry_values::setex, "key [FNX|FXX] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL] (FIELDS numfields (field value)...)", c"Writes fields and sets when they expire, all in one step.", c"O(k log n) for k fields";
}

/// The positions of commands that matter while a file is read.
const SET: usize = 0;
const UNIT: usize = 1;
const RANGESTORE: usize = 2;
const MERGE: usize = 3;

/// Registers the commands, and what `INFO` says. Returns whether the server took all.
pub fn register(ctx: Ctx) -> bool {
    macro_rules! entries {
        ($($at:literal)*) => { [$(entry::<$at> as unsafe extern "C" fn(Ctx, *mut RawString, c_int) -> c_int),*] };
    }
    let entries = entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35);
    const { assert!(COMMANDS.len() == 36) };
    COMMANDS.iter().zip(entries).all(|(command, entry)| {
        let (first, last) = command.keys;
        let step = c_int::from(first != 0);
        let create = |flags: &CStr| {
            let (name, flags) = (command.name.as_ptr(), flags.as_ptr());
            call!(RedisModule_CreateCommand(ctx, name, Some(entry), flags, first, last, step)) == 0
        };
        // Redis 7.0 and Valkey do not know that a module's command may block.
        let known = command.flags.to_string_lossy().replace(" blocking", "");
        let is_created = create(command.flags) || create(&std::ffi::CString::new(known).unwrap_or_default());
        is_created && docs::describe(ctx, command)
    }) && report::register(ctx)
}

/// Puts a placeholder under a name that is free.
fn hold_place(ctx: Ctx, name: RawString) {
    let Some(key) = Key::write(ctx, name) else { return };
    if key.holds(kind::of_maps()) == Holds::Nothing {
        let value = Owned::Placeholder.into_raw();
        if !key.set(kind::of_maps(), value) {
            // SAFETY: the server refused it, so that nothing else has it.
            drop(unsafe { Owned::take(value) });
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
            SET | RANGESTORE | MERGE => hold_place(ctx, raw[1]),
            UNIT => events::reads_unit(bytes(raw[1])),
            _ => {}
        }
        reply.ok();
        return 0;
    }
    events::restore(ctx);
    let began = latency::Began::now();
    carry_out(AT, &Call { ctx, raw, reply, store: state::store(), is_again: false });
    latency::watch(ctx, command.name, began.elapsed());
    0
}

/// Carries out a command, or lets it wait for a map that a thread changes.
fn carry_out(command: usize, call: &Call<'_>) {
    loop {
        let refusal = match catch_unwind(AssertUnwindSafe(|| (COMMANDS[command].run)(call))) {
            Ok(Ok(())) => return,
            Ok(Err(refusal)) => refusal,
            Err(_) => {
                warn(&format!("{:?} failed unexpectedly", COMMANDS[command].name));
                return call.reply.error("ERR the command failed unexpectedly: see the server's log");
            }
        };
        let Refusal::Busy(job) = refusal else { return reply_refusal(call.reply, refusal) };
        if long::park(call, command, Arc::clone(&job)) {
            return;
        }
        if let Err(error) = long::wait(&job) {
            return reply_refusal(call.reply, error.into());
        }
    }
}
