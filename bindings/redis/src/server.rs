//! What the module calls of the server: the C interface with Rust's types.
//!
//! Functions of the interface are pointers that the server fills in when the module is loaded. [`call!`] calls one;
//! a server that lacks it was refused before ([`missing`]).

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_longlong};
use std::ptr::NonNull;
use std::sync::OnceLock;

pub use redis_module::raw;

/// Calls a function of the server's interface.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the server filled in the pointer when the module was loaded, before any other code of it could run,
        // and changes it no more; arguments are valid as its documentation asks, which each caller sees to.
        unsafe { ($crate::server::raw::$name.expect(stringify!($name)))($($argument),*) }
    };
}
pub(crate) use call;

/// The server's context of a call.
pub type Ctx = *mut raw::RedisModuleCtx;
/// A string of the server's.
pub type RawString = *mut raw::RedisModuleString;

/// Returns a function that the module needs and the server has not.
pub fn missing() -> Option<&'static str> {
    macro_rules! need {
        ($($name:ident)*) => {
            // SAFETY: as in `call!`.
            $(if unsafe { raw::$name }.is_none() { return Some(stringify!($name)); })*
        };
    }
    need!(RedisModule_GetAbsExpire RedisModule_SetAbsExpire RedisModule_GetDbIdFromIO RedisModule_ReplyWithMap
        RedisModule_SubscribeToServerEvent RedisModule_SetCommandInfo RedisModule_Scan
        RedisModule_GetToDbIdFromOptCtx RedisModule_GetDbIdFromModuleKey RedisModule_EventLoopAddOneShot
        RedisModule_RegisterNumericConfig RedisModule_LoadConfigs RedisModule_SignalKeyAsReady
        RedisModule_AvoidReplicaTraffic RedisModule_CreateTimer);
    None
}

/// Returns the bytes of a string of the server's, which lives as long as the call that it was given to.
pub fn bytes<'a>(string: RawString) -> &'a [u8] {
    let mut len = 0;
    let start = call!(RedisModule_StringPtrLen(string, &mut len));
    if start.is_null() {
        return b"";
    }
    // SAFETY: the server returned this length. Callers pass arguments of a command, or keys of an event, and keep
    // the slice no longer than that call.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// Writes a line into the server's log.
pub fn log(ctx: Ctx, level: &CStr, text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    call!(RedisModule_Log(ctx, level.as_ptr(), c"%s".as_ptr(), text.as_ptr()));
}

/// Writes a warning into the server's log.
pub fn warn(text: &str) {
    log(std::ptr::null_mut(), c"warning", text);
}

/// Returns a context of the module's own, which selects databases without disturbing any client. For the main thread.
pub fn own_context() -> Ctx {
    struct Context(Ctx);
    // SAFETY: only the server's main thread asks for it.
    unsafe impl Send for Context {}
    // SAFETY: as above.
    unsafe impl Sync for Context {}
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    CONTEXT.get_or_init(|| Context(call!(RedisModule_GetThreadSafeContext(std::ptr::null_mut())))).0
}

/// Returns whether the server has an append-only file.
pub fn has_append_only_file() -> bool {
    turn().has_append_only_file
}

/// What a turn of the server is for a change of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// `MULTI` or a script is carried out.
    pub is_unit: bool,
    /// A file or a stream is loaded.
    pub is_loading: bool,
    /// There is an append-only file.
    pub has_append_only_file: bool,
}

/// Returns what the server does now.
pub fn turn() -> Turn {
    // SAFETY: as in `call!`; unit tests have no server.
    let flags = unsafe { raw::RedisModule_GetContextFlags.map_or(0, |ask| ask(std::ptr::null_mut())) } as u32;
    let has = |flag: u32| flags & flag != 0;
    Turn {
        is_unit: has(raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA),
        is_loading: has(raw::REDISMODULE_CTX_FLAGS_LOADING),
        has_append_only_file: has(raw::REDISMODULE_CTX_FLAGS_AOF),
    }
}

/// Has the server append `OM.UNIT number` to its append-only file, with the command that it carries out. Replicas are not told.
pub fn append_unit(number: u64) {
    let number = number as c_longlong;
    call!(RedisModule_Replicate(own_context(), c"OM.UNIT".as_ptr(), c"lR".as_ptr(), number));
}

/// Returns whether the server has written all that its append-only file is to have.
pub fn is_file_written() -> bool {
    !has_append_only_file() || of_persistence(c"aof_buffer_length") == 0
}

/// Returns whether the server may put off writing its append-only file at the end of this turn, and reply before it: with
/// `appendfsync everysec`, while a thread is in `fsync`. Only writing the file starts an `fsync`.
pub fn may_reply_first() -> bool {
    !has_append_only_file() || of_persistence(c"aof_pending_bio_fsync") > 0
}

/// Returns a number of the section of `INFO` about persistence.
fn of_persistence(field: &CStr) -> u64 {
    let info = call!(RedisModule_GetServerInfo(std::ptr::null_mut(), c"persistence".as_ptr()));
    let number = call!(RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), std::ptr::null_mut()));
    call!(RedisModule_FreeServerInfo(std::ptr::null_mut(), info));
    number
}

/// Returns the value of an option of the server's configuration.
pub fn config(ctx: Ctx, name: &CStr) -> Option<Vec<u8>> {
    let reply =
        call!(RedisModule_Call(ctx, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), name.as_ptr()));
    if reply.is_null() {
        return None;
    }
    let value = call!(RedisModule_CallReplyArrayElement(reply, 1));
    let mut len = 0;
    let start = if value.is_null() {
        std::ptr::null()
    } else {
        call!(RedisModule_CallReplyStringPtr(value, &mut len))
    };
    // SAFETY: the server returned this length; the bytes stay valid until the reply is freed.
    let bytes =
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec());
    call!(RedisModule_FreeCallReply(reply));
    bytes
}

/// A string that the module made.
pub struct OwnString(RawString);

impl OwnString {
    /// Makes a string of the server's.
    pub fn new(bytes: &[u8]) -> Self {
        Self(call!(RedisModule_CreateString(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())))
    }

    /// Gives the string away.
    pub fn into_raw(self) -> RawString {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Returns the string.
    pub fn raw(&self) -> RawString {
        self.0
    }
}

impl Drop for OwnString {
    fn drop(&mut self) {
        call!(RedisModule_FreeString(std::ptr::null_mut(), self.0));
    }
}

/// A key that is open.
pub struct Key(NonNull<raw::RedisModuleKey>);

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing.
    Nothing,
    /// A value of this module, at this address.
    Map(*mut std::ffi::c_void),
    /// Something else.
    Another,
}

impl Key {
    /// Opens a key for reading, without changing when it was last used. `None`: it is not there.
    pub fn read(ctx: Ctx, name: RawString) -> Option<Self> {
        Self::open(ctx, name, raw::REDISMODULE_READ as c_int)
    }

    /// Opens a key for writing.
    pub fn write(ctx: Ctx, name: RawString) -> Option<Self> {
        Self::open(ctx, name, (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int)
    }

    fn open(ctx: Ctx, name: RawString, mode: c_int) -> Option<Self> {
        NonNull::new(call!(RedisModule_OpenKey(ctx, name, mode))).map(Self)
    }

    /// Returns the key's database. In `MULTI` Valkey 9.1 says of a context that it has the database in which `MULTI` began.
    pub fn db(&self) -> c_int {
        call!(RedisModule_GetDbIdFromModuleKey(self.0.as_ptr()))
    }

    /// Returns what the key holds; `of` is the module's type.
    pub fn holds(&self, of: *mut raw::RedisModuleType) -> Holds {
        match call!(RedisModule_KeyType(self.0.as_ptr())) as u32 {
            0 => Holds::Nothing,
            _ if call!(RedisModule_ModuleTypeGetType(self.0.as_ptr())) == of => {
                Holds::Map(call!(RedisModule_ModuleTypeGetValue(self.0.as_ptr())))
            }
            _ => Holds::Another,
        }
    }

    /// Makes the key hold a value of the module. Returns whether it does.
    pub fn set(&self, of: *mut raw::RedisModuleType, value: *mut std::ffi::c_void) -> bool {
        call!(RedisModule_ModuleTypeSetValue(self.0.as_ptr(), of, value)) == raw::REDISMODULE_OK as c_int
    }

    /// Makes a key that holds a map hold another value for it, without freeing what it held in the pool.
    pub fn replace(&self, of: *mut raw::RedisModuleType, value: crate::map::Owned) {
        let (new, mut old) = (value.into_raw(), std::ptr::null_mut());
        let done = call!(RedisModule_ModuleTypeReplaceValue(self.0.as_ptr(), of, new, &raw mut old));
        let unused = if done == raw::REDISMODULE_OK as c_int { old } else { new };
        // SAFETY: the key held it, or never got it; nothing else uses it.
        drop(unsafe { crate::map::Owned::take(unused) });
    }

    /// Removes the key.
    pub fn delete(&self) {
        call!(RedisModule_DeleteKey(self.0.as_ptr()));
    }

    /// Returns when the key expires, in milliseconds since 1970, or -1.
    pub fn expires(&self) -> i64 {
        call!(RedisModule_GetAbsExpire(self.0.as_ptr()))
    }

    /// Makes the key expire at a time.
    pub fn expire_at(&self, time: i64) {
        call!(RedisModule_SetAbsExpire(self.0.as_ptr(), time));
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        call!(RedisModule_CloseKey(self.0.as_ptr()));
    }
}

/// Replies to a client.
#[derive(Clone, Copy)]
pub struct Reply(pub Ctx);

impl Reply {
    /// Replies an error; its first word is its code.
    pub fn error(self, text: &str) {
        let text = CString::new(text.replace(['\0', '\r', '\n'], " ")).unwrap_or_default();
        call!(RedisModule_ReplyWithError(self.0, text.as_ptr()));
    }

    /// Replies `WRONGTYPE`.
    pub fn wrong_type(self) {
        self.error("WRONGTYPE Operation against a key holding the wrong kind of value");
    }

    /// Replies that the number of arguments is wrong.
    pub fn wrong_arity(self) {
        call!(RedisModule_WrongArity(self.0));
    }

    /// Replies `+OK`.
    pub fn ok(self) {
        call!(RedisModule_ReplyWithSimpleString(self.0, c"OK".as_ptr()));
    }

    /// Replies a number.
    pub fn number(self, number: i64) {
        call!(RedisModule_ReplyWithLongLong(self.0, number as c_longlong));
    }

    /// Replies bytes.
    pub fn bytes(self, bytes: &[u8]) {
        call!(RedisModule_ReplyWithStringBuffer(self.0, bytes.as_ptr().cast::<c_char>(), bytes.len()));
    }

    /// Replies null.
    pub fn null(self) {
        call!(RedisModule_ReplyWithNull(self.0));
    }

    /// Replies null where an array is expected.
    pub fn null_array(self) {
        call!(RedisModule_ReplyWithNullArray(self.0));
    }

    /// Replies bytes, or null.
    pub fn maybe(self, bytes: Option<&[u8]>) {
        bytes.map_or_else(|| self.null(), |bytes| self.bytes(bytes));
    }

    /// Begins an array of `len` elements.
    pub fn array(self, len: usize) {
        call!(RedisModule_ReplyWithArray(self.0, len as c_long));
    }

    /// Begins a map of `len` entries; in RESP2, an array of twice that length.
    pub fn map(self, len: usize) {
        call!(RedisModule_ReplyWithMap(self.0, len as c_long));
    }

    /// Begins an array whose length is told when it ends: when what is returned is dropped.
    pub fn open_array(self) -> OpenArray {
        call!(RedisModule_ReplyWithArray(self.0, c_long::from(raw::REDISMODULE_POSTPONED_LEN)));
        OpenArray { reply: self, len: 0 }
    }
}

/// An array that elements are replied to. It ends when this is dropped, by a panic too: the server needs its end.
pub struct OpenArray {
    reply: Reply,
    len: usize,
}

impl OpenArray {
    /// Counts elements that were replied.
    pub fn add(&mut self, elements: usize) {
        self.len += elements;
    }
}

impl Drop for OpenArray {
    fn drop(&mut self) {
        call!(RedisModule_ReplySetArrayLength(self.reply.0, self.len as c_long));
    }
}
