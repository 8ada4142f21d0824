/* Bristlecone: ordered key-value indexes that survive crashes.
 *
 *     bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
 *     options.flags = BRISTLECONE_CREATE;
 *     bristlecone_pool *pool = NULL;
 *     bristlecone_tree *ages = NULL;
 *     if (bristlecone_pool_open("/dev/shm/trees.pool", &options, &pool) != BRISTLECONE_OK ||
 *         bristlecone_tree_open_or_create(pool, "ages", "str", "u64", &ages) != BRISTLECONE_OK) {
 *         fprintf(stderr, "%s
", bristlecone_errmsg());
 *     }
 *
 * Status. Every call that can fail returns an int: BRISTLECONE_OK, or the reason why it had no effect;
 * bristlecone_errmsg() describes it in one line. The numbers up to 6 are also the exit codes of the tool. Only handles
 * must be released, by closing them. No call throws or unwinds.
 *
 * Handles are looked up, not dereferenced: one that is null, closed, or of another kind returns BRISTLECONE_USAGE.
 * Closing while another thread is in a call on the handle waits briefly, and then returns BRISTLECONE_IN_USE.
 *
 * Threads. Any number of threads may use pools, trees, snapshots and tickets at the same time; only one at a time may use an
 * iterator, a batch, a transaction or a stream of changes.
 *
 * Processes. After fork() the child's calls on inherited handles return BRISTLECONE_FORKED; calls that close release
 * them, and the pool stays the parent's. A killed process loses no acknowledged data.
 *
 * Keys and values are bytes with a length; their kinds define the format of the bytes and the order of keys:
 *
 *     kind                                          bytes
 *     "u8" ... "u128", "i8" ... "i128", "f32", "f64"   the number as in memory
 *     "bool"                                        one, 0 or 1
 *     "char"                                        a uint32_t with its code point
 *     "str", "json" (values only)                   UTF-8, without a terminating zero
 *     "bytes", "[u8; N]", "postcard" (values only)  any bytes; exactly N of them
 *     "()"                                          none
 *     "Option<K>"                                   0, or 1 followed by K's
 *     "(K,)", "(K, L)", up to eight                 K's followed by L's, without gaps
 *     "Expiring<V>" (values only)                   a uint64_t, followed by V's
 *
 * Within these, strings and bytes are preceded by their length, a uint64_t. The time of "Expiring<V>" is in milliseconds
 * since 1970, and 0 for a value that does not expire. Calls show expired values, too, until they are removed;
 * bristlecone_tree_expiring opens a handle that shows "V"s which have not expired. Numbers order by value, floats in
 * total order, strings bytewise, tuples by the first element that differs. Keys have up to 16 KiB, values up to 128 KiB.
 *
 * Several keys. A write of one key is atomic; several writes are not. A batch applies changes of several keys, in any
 * trees of a pool, atomically. A transaction also fails if data that it read has changed. A snapshot reads all trees as
 * of one instant.
 *
 * Generated from bindings/c/src by `make header`; a test compares. Licence: MIT or Apache-2.0.
 */

#ifndef BRISTLECONE_H
#define BRISTLECONE_H

#include <stddef.h>
#include <stdint.h>

/* Initializers for structs. The first member identifies the version that a program was compiled with. */
#define BRISTLECONE_OPEN_OPTIONS_INIT { sizeof(bristlecone_open_options), 0, 0, 0, 0, 0, 0, 0, 0 }
#define BRISTLECONE_TREE_OPTIONS_INIT { sizeof(bristlecone_tree_options), 0, 0, 0, 0 }
#define BRISTLECONE_RANGE_INIT { sizeof(bristlecone_range), 0, 0, 0, 0, 0 }
#define BRISTLECONE_POOL_INFO_INIT { sizeof(bristlecone_pool_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0 }
#define BRISTLECONE_JOURNAL_STATUS_INIT { sizeof(bristlecone_journal_status), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define BRISTLECONE_CHANGE_INIT { sizeof(bristlecone_change), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define BRISTLECONE_TREE_INFO_INIT { sizeof(bristlecone_tree_info), { 0 }, { 0 }, { 0 }, 0, 0, 0, 0, 0, 0, 0 }

/* The size of a key or value of a kind without a fixed one. */
#define BRISTLECONE_ANY_SIZE SIZE_MAX

/**
 * The version of this interface: a program compiled with another one must not use the library. It is also the
 * number in the name of the shared library.
 */
#define BRISTLECONE_ABI_VERSION 1

/**
 * A key got a value.
 */
#define BRISTLECONE_CHANGE_PUT 1

/**
 * A key was removed.
 */
#define BRISTLECONE_CHANGE_REMOVE 2

/**
 * A tree was created. If it was created with items, they follow in the same entry.
 */
#define BRISTLECONE_CHANGE_CREATE 3

/**
 * A tree was dropped, with all items.
 */
#define BRISTLECONE_CHANGE_DROP 4

/**
 * A tree was renamed.
 */
#define BRISTLECONE_CHANGE_RENAME 5

/**
 * All items of a tree were removed.
 */
#define BRISTLECONE_CHANGE_CLEAR 6

/**
 * A change that this version of the interface does not know.
 */
#define BRISTLECONE_CHANGE_OTHER 7

/**
 * The durable end of the journal.
 */
#define BRISTLECONE_DURABLE_END UINT64_MAX

/**
 * A value that does not expire.
 */
#define BRISTLECONE_NEVER_EXPIRES 0

/**
 * The expiry of the tree: `expire_after_ms` from now on, or never.
 */
#define BRISTLECONE_DEFAULT_EXPIRY UINT64_MAX

/**
 * The default: `BRISTLECONE_DURABILITY_COMMIT`.
 */
#define BRISTLECONE_DURABILITY_DEFAULT 0

/**
 * A write returns once it is on disk. Threads that wait share a sync.
 */
#define BRISTLECONE_DURABILITY_COMMIT 1

/**
 * A write returns immediately. It survives the process, and after `interval_ms` and one sync a power failure.
 */
#define BRISTLECONE_DURABILITY_INTERVAL 2

/**
 * A write returns immediately. It survives the process, and after `bristlecone_pool_sync` or a clean close a power
 * failure.
 */
#define BRISTLECONE_DURABILITY_MEMORY 3

/**
 * The journal has no checkpoint.
 */
#define BRISTLECONE_NO_CHECKPOINT UINT64_MAX

/**
 * Creates the pool if it does not exist.
 */
#define BRISTLECONE_CREATE 1

/**
 * Creates the pool, and fails if it exists.
 */
#define BRISTLECONE_CREATE_NEW 2

/**
 * Opens the pool for reading only: its file is not changed, and other processes may read it, too.
 */
#define BRISTLECONE_READ 4

/**
 * Leaves `SIGBUS` to the program. Without this flag, opening a pool installs a handler. It reports the pool that lost
 * its bytes (its file was truncated, its medium is bad) and aborts; it passes faults elsewhere to the previous
 * handler.
 */
#define BRISTLECONE_LEAVE_SIGBUS 8

/**
 * Opens the pool for reading while another process, or another handle of this one, writes to it. The pool is not
 * created, and has its writer's maximum and domain.
 *
 * Reads return durable data, the same as the writer's own threads would read. The writer must use a library with the
 * same layout of its index, and run as the same user; only trees that it has open can be opened. Neither process waits
 * for the other. Writes return `BRISTLECONE_READ_ONLY`. After the writer has closed the pool, reads return
 * `BRISTLECONE_NO_WRITER`; open handles continue with the next writer. The data of a killed writer stays readable
 * until it is recovered. Snapshots are not supported.
 */
#define BRISTLECONE_FOLLOW 16

/**
 * The domain is detected.
 */
#define BRISTLECONE_DOMAIN_DETECTED 0

/**
 * Shared memory: writes survive the process.
 */
#define BRISTLECONE_DOMAIN_PROCESS 1

/**
 * Persistent memory behind caches that a power failure empties: lines are flushed and fenced.
 */
#define BRISTLECONE_DOMAIN_ADR 2

/**
 * Persistent memory, caches included: fences only.
 */
#define BRISTLECONE_DOMAIN_EADR 3

/**
 * Any file: pages are synced.
 */
#define BRISTLECONE_DOMAIN_MSYNC 4

/**
 * An ordinary file with a journal beside it, which is synced before a write returns.
 */
#define BRISTLECONE_DOMAIN_JOURNAL 5

/**
 * Excludes the first bound from the range.
 */
#define BRISTLECONE_FROM_EXCLUDED 1

/**
 * Includes the last bound in the range.
 */
#define BRISTLECONE_TO_INCLUDED 2

/**
 * Success.
 */
#define BRISTLECONE_OK 0

/**
 * Failed: a check found damage, or the system returned an error.
 */
#define BRISTLECONE_FAILED 1

/**
 * Wrong usage: an argument is invalid; a handle is null, closed or of another type; a tree has other kinds.
 */
#define BRISTLECONE_USAGE 2

/**
 * In use: the pool by another process or handle, the tree or pool by open handles, the handle by a call of another
 * thread.
 */
#define BRISTLECONE_IN_USE 3

/**
 * The pool, tree, key or journal does not exist; or an iterator has reached its end.
 */
#define BRISTLECONE_ABSENT 4

/**
 * Not a pool, corrupted, or written by a newer version.
 */
#define BRISTLECONE_CORRUPTED 5

/**
 * The pool or the file system is full.
 */
#define BRISTLECONE_FULL 6

/**
 * The key already exists, but must be new.
 */
#define BRISTLECONE_PRESENT 32

/**
 * The key has another value than expected, or none.
 */
#define BRISTLECONE_DIFFERS 33

/**
 * The handle was created by another process, of which this one is a child: open the pool again here.
 */
#define BRISTLECONE_FORKED 34

/**
 * The pool is open for reading only, or its file system is read-only.
 */
#define BRISTLECONE_READ_ONLY 35

/**
 * The medium failed to make data durable: reopen the pool. Earlier acknowledged writes are durable; whether the
 * operation that returned this took effect is unknown.
 */
#define BRISTLECONE_DURABILITY_LOST 36

/**
 * The buffer is too small: nothing was copied, and the length is the required one.
 */
#define BRISTLECONE_TOO_SMALL 37

/**
 * A bug in the library, which prints the location to standard error: end the process; the pool loses no acknowledged
 * data.
 */
#define BRISTLECONE_BUG 38

/**
 * A concurrent write changed data that a transaction read, or a condition of a batch does not hold: nothing has
 * changed.
 */
#define BRISTLECONE_CONFLICT 39

/**
 * A snapshot exceeded its limit of retained changes, or the tree was cleared since: take another one.
 */
#define BRISTLECONE_SNAPSHOT_TOO_OLD 40

/**
 * No process writes to the pool such that it can be followed: the writer closed it, or does not have the tree open.
 * The data of a killed writer stays readable until it is recovered. Calls continue with the next writer.
 */
#define BRISTLECONE_NO_WRITER 41

/**
 * The journal does not keep the requested changes any more, or the cursor held back too much and was dropped: read the
 * items, and continue from the `oldest_lsn` of `bristlecone_pool_get_journal_status`, or from a new cursor.
 */
#define BRISTLECONE_PRUNED 42

/**
 * Size of a kind's name in bytes, including the terminating zero.
 */
#define BRISTLECONE_KIND_BYTES 64

/**
 * Changes of any trees of one pool that are applied atomically. Until it is committed it is a list in DRAM. Only one
 * thread may use it at a time. It keeps its pool open.
 */
typedef struct bristlecone_batch bristlecone_batch;

/**
 * The durable changes of a pool, in the order of their LSNs. Only one thread may use it at a time; a second one gets
 * `BRISTLECONE_IN_USE`, except from `bristlecone_changes_stop`. It keeps its pool open.
 */
typedef struct bristlecone_changes bristlecone_changes;

/**
 * An iterator over the items of a tree, in key order, from both ends: each item is returned by one end only. It may be
 * used while threads write, holds no lock, and returns every key that exists throughout the iteration.
 *
 * Only one thread may use it at a time; a second one gets `BRISTLECONE_IN_USE`. It keeps its tree and its pool open.
 */
typedef struct bristlecone_iter bristlecone_iter;

/**
 * An open pool: a file with trees. One process at a time writes to it, which others may follow, or any number of
 * processes read it. It belongs to the process that opened it: in a forked child every call except those that close
 * returns `BRISTLECONE_FORKED`.
 */
typedef struct bristlecone_pool bristlecone_pool;

/**
 * All trees of a pool as of one instant, for any number of threads. Later changes are retained in DRAM as long as a
 * snapshot needs them. It keeps its pool open.
 */
typedef struct bristlecone_snapshot bristlecone_snapshot;

/**
 * Whether writes that did not wait are durable, for any number of threads. It keeps its pool open. Closing it changes
 * nothing: the writes become durable with the next sync.
 */
typedef struct bristlecone_ticket bristlecone_ticket;

/**
 * A transaction in progress. It reads all trees of a pool as of one instant, together with its own writes. Its changes
 * are applied atomically if nothing that it read has changed meanwhile. Only one thread may use it at a time. It keeps
 * its pool open, and retains other threads' changes in DRAM: end it soon.
 */
typedef struct bristlecone_transaction bristlecone_transaction;

/**
 * A tree in a pool: an ordered map, for any number of threads. Every write of one key is atomic, and durable when it
 * returns `BRISTLECONE_OK`; readers see only durable data.
 */
typedef struct bristlecone_tree bristlecone_tree;

/**
 * One change of a stream. Begin with `BRISTLECONE_CHANGE_INIT`. Pointers are valid until the next call on the stream.
 *
 * The changes of one commit have the same `lsn`, and were applied together; the last of them has `is_last`. An entry is a
 * write, up to 16 writes of a call with several keys, a batch or transaction, or a change of the trees.
 */
typedef struct bristlecone_change {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * LSN of the entry.
     */
    uint64_t lsn;
    /**
     * LSN from which a later stream continues behind the entry.
     */
    uint64_t next_lsn;
    /**
     * When the entry was written to the journal: milliseconds since 1970, never less than in an earlier entry.
     */
    uint64_t time_ms;
    /**
     * What happened: one of `BRISTLECONE_CHANGE_…`.
     */
    int32_t what;
    /**
     * For a put or remove, whether the key was present before: 1, 0, or -1 if the write did not look, the commit is
     * very long, or its process was killed before the commit was complete. Otherwise -1.
     */
    int32_t existed;
    /**
     * Whether it is the last change of its entry.
     */
    int32_t is_last;
    /**
     * Number of the tree, which no other tree had at the same time. Changes with `BRISTLECONE_CHANGE_CLEAR`.
     */
    uint32_t tree_id;
    /**
     * Name of the tree before the change; of a created tree, its name.
     */
    const char *tree;
    /**
     * Kind of its keys.
     */
    const char *key_kind;
    /**
     * Kind of its values.
     */
    const char *value_kind;
    /**
     * The key of a put or remove. It may be null if it has no bytes.
     */
    const void *key;
    /**
     * Its length.
     */
    size_t key_bytes;
    /**
     * The new value of a put. It may be null if it has no bytes.
     */
    const void *value;
    /**
     * Its length.
     */
    size_t value_bytes;
    /**
     * New name of a renamed tree; otherwise null.
     */
    const char *renamed_to;
    /**
     * New number of a cleared tree; otherwise `tree_id`.
     */
    uint32_t new_tree_id;
} bristlecone_change;

/**
 * A cursor of a journal, which `bristlecone_pool_cursors` passes on.
 */
typedef struct bristlecone_cursor {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * Its name.
     */
    const char *name;
    /**
     * Its LSN: entries from here on are kept.
     */
    uint64_t lsn;
    /**
     * Bytes of the files that are kept only for it.
     */
    uint64_t pinned_bytes;
    /**
     * When it was advanced last: milliseconds since 1970.
     */
    uint64_t time_ms;
    /**
     * Whether it held back too much and was dropped: it keeps nothing.
     */
    int32_t dropped;
} bristlecone_cursor;

/**
 * Callback that receives a cursor, which is valid during the call. It may use the library. It must return: neither
 * `longjmp` nor a C++ exception may leave it.
 */
typedef void (*bristlecone_show_cursor)(void *context, const struct bristlecone_cursor *cursor);

/**
 * Callback that receives a value, which is valid during the call. It may use the library, but must not close the
 * handle that the call is on. It must return: neither `longjmp` nor a C++ exception may leave it. May be null.
 */
typedef void (*bristlecone_show)(void *context, const void *value, size_t value_bytes);

/**
 * The keys of an iterator: those from `from` up to, but without, `to`. A null bound is unbounded; an empty key as a
 * bound has a pointer that is not null, and no length. Begin with `BRISTLECONE_RANGE_INIT`.
 */
typedef struct bristlecone_range {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * The first key.
     */
    const void *from;
    /**
     * Its length.
     */
    size_t from_bytes;
    /**
     * The key behind the last one.
     */
    const void *to;
    /**
     * Its length.
     */
    size_t to_bytes;
    /**
     * Any of `BRISTLECONE_FROM_EXCLUDED` and `BRISTLECONE_TO_INCLUDED`.
     */
    uint32_t flags;
} bristlecone_range;

/**
 * The state of a pool's journal. Begin with `BRISTLECONE_JOURNAL_STATUS_INIT`.
 *
 * LSNs count the bytes of all entries since the creation of the pool. The percentiles of the duration of syncs are upper
 * limits, less than twice the exact values.
 */
typedef struct bristlecone_journal_status {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * When a write returns: one of `BRISTLECONE_DURABILITY_…`, but for the default.
     */
    uint32_t durability;
    /**
     * With `BRISTLECONE_DURABILITY_INTERVAL`, the time in milliseconds, rounded up.
     */
    uint32_t interval_ms;
    /**
     * LSN behind the last entry.
     */
    uint64_t lsn;
    /**
     * LSN up to which entries are durable.
     */
    uint64_t durable_lsn;
    /**
     * LSN of the begin of the last checkpoint, or `BRISTLECONE_NO_CHECKPOINT`.
     */
    uint64_t checkpoint_lsn;
    /**
     * Bytes of entries since then, or since the creation of the pool.
     */
    uint64_t bytes_since_checkpoint;
    /**
     * Bytes of the files that hold these entries, including unused space.
     */
    uint64_t segment_bytes;
    /**
     * Number of syncs since the pool was opened.
     */
    uint64_t syncs;
    /**
     * Mean duration of a sync, in nanoseconds.
     */
    uint64_t sync_mean_ns;
    /**
     * Limit of the duration of half of the syncs.
     */
    uint64_t sync_p50_ns;
    /**
     * Limit of the duration of 99 % of the syncs.
     */
    uint64_t sync_p99_ns;
    /**
     * Longest duration.
     */
    uint64_t sync_max_ns;
    /**
     * Whether a write or sync has failed: all later writes return `BRISTLECONE_DURABILITY_LOST`.
     */
    int32_t failed;
    /**
     * LSN of the oldest entry that is kept: a stream of changes can begin there.
     */
    uint64_t oldest_lsn;
} bristlecone_journal_status;

/**
 * A key or a value in an array of them.
 */
typedef struct bristlecone_bytes {
    /**
     * Its first byte.
     */
    const void *data;
    /**
     * Its length.
     */
    size_t bytes;
} bristlecone_bytes;

/**
 * Callback that receives the value of the key at an index, under the rules of `bristlecone_show`. May be null.
 */
typedef void (*bristlecone_show_at)(void *context, size_t index, const void *value, size_t value_bytes);

/**
 * Options for opening a pool. Begin with `BRISTLECONE_OPEN_OPTIONS_INIT`; zeros are the defaults.
 */
typedef struct bristlecone_open_options {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * Any of `BRISTLECONE_CREATE`, `BRISTLECONE_CREATE_NEW`, `BRISTLECONE_READ`, `BRISTLECONE_LEAVE_SIGBUS` and
     * `BRISTLECONE_FOLLOW`.
     */
    uint32_t flags;
    /**
     * One of `BRISTLECONE_DOMAIN_…`. With a weaker one than the medium needs, the promised durability does not hold.
     */
    uint32_t domain;
    /**
     * Maximum size in bytes. Raises the maximum of an existing pool if it is larger.
     */
    uint64_t max_bytes;
    /**
     * Number of threads that recover a tree; 0: one per processor.
     */
    size_t recovery_threads;
    /**
     * When a write returns, in a pool of the domain `BRISTLECONE_DOMAIN_JOURNAL`: one of `BRISTLECONE_DURABILITY_…`. It
     * holds until the pool is closed.
     */
    uint32_t durability;
    /**
     * With `BRISTLECONE_DURABILITY_INTERVAL`, the time in milliseconds; otherwise 0.
     */
    uint32_t interval_ms;
    /**
     * Folder of the journal; null: the path of the pool, followed by `.journal`. It may be on another disk, and must be
     * given at every opening.
     */
    const char *journal;
    /**
     * Most bytes of journal files that are kept only for a cursor, before a checkpoint drops it; 0: 1 GiB.
     */
    uint64_t cursor_limit_bytes;
} bristlecone_open_options;

/**
 * Information about a pool. Begin with `BRISTLECONE_POOL_INFO_INIT`.
 */
typedef struct bristlecone_pool_info {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * The domain in force: one of `BRISTLECONE_DOMAIN_…`.
     */
    uint32_t domain;
    /**
     * The domain that the medium offers.
     */
    uint32_t detected_domain;
    /**
     * Whether the last user closed the pool cleanly.
     */
    int32_t was_clean;
    /**
     * Whether it is open for reading only.
     */
    int32_t read_only;
    /**
     * Version of the format.
     */
    uint64_t format;
    /**
     * Size of the file in bytes.
     */
    uint64_t file_bytes;
    /**
     * Maximum size in bytes.
     */
    uint64_t max_bytes;
    /**
     * Bytes of a chunk.
     */
    uint64_t chunk_bytes;
    /**
     * Number of chunks of the file.
     */
    uint64_t chunks;
    /**
     * Number of these chunks without an owner.
     */
    uint64_t chunks_free;
    /**
     * Bytes that are mapped by huge pages.
     */
    uint64_t huge_bytes;
    /**
     * Number of issues at open that do not affect data.
     */
    uint64_t issues;
    /**
     * The pool's identity.
     */
    char uuid[64];
    /**
     * Whether another process writes to it, which this one follows.
     */
    int32_t following;
} bristlecone_pool_info;

/**
 * Callback that receives an issue of a check: its location and description. Both strings are valid during the call,
 * under the rules of `bristlecone_show`. May be null.
 */
typedef void (*bristlecone_show_issue)(void *context, const char *location, const char *what);

/**
 * Callback that receives a tree of a pool: its name, the kinds of its keys and values, and its design, as strings that
 * are valid during the call, under the rules of `bristlecone_show`. May be null.
 */
typedef void (*bristlecone_show_tree)(void *context,
                                      const char *name,
                                      const char *key_kind,
                                      const char *value_kind,
                                      const char *design);

/**
 * A function that writes. Returns `BRISTLECONE_OK`, or any other number to end the call with it.
 */
typedef int (*bristlecone_run)(void *context);

/**
 * Is called once, from any thread. It must not block.
 */
typedef void (*bristlecone_notify)(void *context);

/**
 * Callback that receives an item, whose bytes are valid during the call, under the rules of `bristlecone_show`;
 * returns 0 to continue.
 */
typedef int (*bristlecone_show_item)(void *context,
                                     const void *key,
                                     size_t key_bytes,
                                     const void *value,
                                     size_t value_bytes);

/**
 * An option of a design, fixed at the creation of a tree.
 */
typedef struct bristlecone_option {
    /**
     * Its name, as listed in docs/designs/.
     */
    const char *name;
    /**
     * Its value.
     */
    uint64_t value;
} bristlecone_option;

/**
 * Options for creating a tree. Begin with `BRISTLECONE_TREE_OPTIONS_INIT`.
 */
typedef struct bristlecone_tree_options {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * The design: "nbtree" (also if null), "sstree", "cclbtree", "lodgetree" or "wotree".
     */
    const char *design;
    /**
     * Options of the design; the others have their defaults.
     */
    const struct bristlecone_option *options;
    /**
     * Number of options.
     */
    size_t option_count;
    /**
     * Milliseconds that a value of a kind "Expiring<V>" lives if its write names no expiry; 0: it does not expire.
     */
    uint64_t expire_after_ms;
} bristlecone_tree_options;

/**
 * Information about a tree. Begin with `BRISTLECONE_TREE_INFO_INIT`.
 */
typedef struct bristlecone_tree_info {
    /**
     * Size of this struct in bytes.
     */
    size_t struct_bytes;
    /**
     * The kind of the keys.
     */
    char key_kind[BRISTLECONE_KIND_BYTES];
    /**
     * The kind of the values.
     */
    char value_kind[BRISTLECONE_KIND_BYTES];
    /**
     * The design.
     */
    char design[BRISTLECONE_KIND_BYTES];
    /**
     * Size of every key in bytes, or `BRISTLECONE_ANY_SIZE`.
     */
    size_t key_bytes;
    /**
     * Size of every value in bytes, or `BRISTLECONE_ANY_SIZE`.
     */
    size_t value_bytes;
    /**
     * Number of items; exact while no thread writes.
     */
    uint64_t items;
    /**
     * Number of leaves.
     */
    uint64_t leaves;
    /**
     * Bytes of the pool, in whole chunks.
     */
    uint64_t pm_bytes;
    /**
     * Bytes of DRAM.
     */
    uint64_t dram_bytes;
    /**
     * Milliseconds that a value lives if its write names no expiry; 0: it does not expire.
     */
    uint64_t expire_after_ms;
} bristlecone_tree_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library's interface: `BRISTLECONE_ABI_VERSION` of its header.
 */
int bristlecone_abi_version(void);

/**
 * Returns the version of the library, such as "0.1.0". The string is valid as long as the process.
 */
const char *bristlecone_version(void);

/**
 * Begins a batch. After an error there is none, and `*batch` is unchanged.
 */
int bristlecone_batch_begin(const struct bristlecone_pool *pool, struct bristlecone_batch **batch);

/**
 * Adds a write of a key's value to a batch, whether or not the key exists. Of several changes of a key the last one
 * counts. After an error the batch continues without this change.
 */
int bristlecone_batch_put(const struct bristlecone_batch *batch,
                          const struct bristlecone_tree *tree,
                          const void *key,
                          size_t key_bytes,
                          const void *value,
                          size_t value_bytes);

/**
 * Adds the removal of a key, if it exists, to a batch. After an error the batch continues without this change.
 */
int bristlecone_batch_remove(const struct bristlecone_batch *batch,
                             const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes);

/**
 * Adds a condition to a batch: before it, the key has this value, or is absent if `value` is null (an empty value has
 * a pointer that is not null). If the condition does not hold, the commit returns `BRISTLECONE_CONFLICT`. After an
 * error the batch continues without this condition.
 */
int bristlecone_batch_expect(const struct bristlecone_batch *batch,
                             const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes,
                             const void *value,
                             size_t value_bytes);

/**
 * Applies all changes of a batch atomically, if all its conditions hold, and closes it.
 *
 * After `BRISTLECONE_OK` the changes are durable; after a crash either all of them are applied or none. Returns
 * `BRISTLECONE_CONFLICT` if a condition does not hold. After an error nothing has changed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. An error closes the handle, too, except
 * `BRISTLECONE_IN_USE` (another thread is in a call on it), `BRISTLECONE_FORKED`, and errors of an invalid handle.
 */
int bristlecone_batch_commit(struct bristlecone_batch *batch);

/**
 * Discards a batch, and closes it. After an error it stays open.
 */
int bristlecone_batch_discard(struct bristlecone_batch *batch);

/**
 * Opens a stream of the durable changes of a pool whose domain is `BRISTLECONE_DOMAIN_JOURNAL`, from an LSN on: 0 for the
 * first one, or the `next_lsn` of a change that was seen before.
 *
 * Returns `BRISTLECONE_PRUNED` if a checkpoint has removed the entry at that LSN, and `BRISTLECONE_USAGE` for a pool
 * without a journal, or an LSN behind the durable end. After an error there is no stream, and `*changes` is unchanged.
 */
int bristlecone_changes_open(const struct bristlecone_pool *pool,
                             uint64_t from_lsn,
                             struct bristlecone_changes **changes);

/**
 * Opens a stream at a cursor, which `bristlecone_changes_advance` moves. One stream at a time has the cursor.
 *
 * Returns `BRISTLECONE_ABSENT` if no cursor has this name, `BRISTLECONE_PRUNED` if it was dropped because it held back
 * too much, and `BRISTLECONE_IN_USE` while another stream has it. After an error there is no stream, and `*changes` is
 * unchanged.
 */
int bristlecone_changes_open_cursor(const struct bristlecone_pool *pool,
                                    const char *cursor,
                                    struct bristlecone_changes **changes);

/**
 * Writes the next change, for which it waits up to `timeout_ms`; a negative time has no end.
 *
 * Returns `BRISTLECONE_ABSENT` if no change became durable in this time, or once the stream was stopped; later calls may
 * find more. Returns `BRISTLECONE_PRUNED` if the next entry is not kept any more. After an error `*change` is unchanged.
 * If an entry could not be read to its end, all later calls return `BRISTLECONE_FAILED`: another stream can be opened at
 * its LSN.
 */
int bristlecone_changes_next(const struct bristlecone_changes *changes,
                             int64_t timeout_ms,
                             struct bristlecone_change *change);

/**
 * Ends the waiting of another thread in `bristlecone_changes_next`, and all later waiting on this stream: entries that
 * were not read yet need another stream.
 */
int bristlecone_changes_stop(const struct bristlecone_changes *changes);

/**
 * Moves the cursor of a stream to an LSN, durably: usually the `next_lsn` of the last change of an entry whose effects are
 * durable. The next stream of the cursor begins there, also after a crash.
 *
 * Returns `BRISTLECONE_USAGE` for a stream without a cursor, for an LSN before that of the cursor, and for one behind
 * the entries that the stream has returned.
 */
int bristlecone_changes_advance(const struct bristlecone_changes *changes,
                                uint64_t lsn);

/**
 * Closes a stream. Its cursor stays. After an error it stays open.
 */
int bristlecone_changes_close(struct bristlecone_changes *changes);

/**
 * Creates a cursor: entries from its LSN on are kept until it is moved or dropped, up to a limit. With
 * `BRISTLECONE_DURABLE_END` it begins behind the last durable entry. Its LSN is written to `*begun`, which may be null.
 *
 * A name has 1 to 64 letters, digits, dots, hyphens and underscores. Returns `BRISTLECONE_USAGE` for another name, or one
 * that a cursor has, and `BRISTLECONE_PRUNED` if the entry at the LSN is not kept any more.
 */
int bristlecone_pool_create_cursor(const struct bristlecone_pool *pool,
                                   const char *name,
                                   uint64_t lsn,
                                   uint64_t *begun);

/**
 * Removes a cursor, or what is left of one that was dropped. The next checkpoint removes what was kept for it. Returns
 * `BRISTLECONE_ABSENT` if no cursor has this name.
 */
int bristlecone_pool_drop_cursor(const struct bristlecone_pool *pool,
                                 const char *name);

/**
 * Passes each cursor of the pool's journal to a callback, ordered by name, and each one that was dropped for holding back
 * too much. Returns `BRISTLECONE_ABSENT` for a pool that does not write a journal.
 */
int bristlecone_pool_cursors(const struct bristlecone_pool *pool,
                             bristlecone_show_cursor show,
                             void *context);

/**
 * Opens another handle to a tree with values of a kind "Expiring<V>". It takes and shows "V"s, and for its calls an
 * entry whose time has come is absent: lookups, writes of one key and iterators. Close it like every handle to a tree.
 *
 * A write has the expiry of the tree, `expire_after_ms`; `bristlecone_expiring_put` and the like name another one.
 * `bristlecone_tree_len` counts expired entries, too, until they are removed. Calls of many keys, removals of ranges,
 * batches, transactions and snapshots need the tree itself, whose values have their times, and return
 * `BRISTLECONE_USAGE`.
 *
 * A tree of another kind returns `BRISTLECONE_USAGE`. After an error there is no handle, and `*expiring` is unchanged.
 */
int bristlecone_tree_expiring(const struct bristlecone_tree *tree,
                              struct bristlecone_tree **expiring);

/**
 * Writes a key's value, which expires at a time in milliseconds since 1970, or never, or as the tree says:
 * `BRISTLECONE_NEVER_EXPIRES`, `BRISTLECONE_DEFAULT_EXPIRY`. Otherwise like `bristlecone_put`.
 *
 * The handle must be one of `bristlecone_tree_expiring`, for this and the next calls.
 */
int bristlecone_expiring_put(const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes,
                             const void *value,
                             size_t value_bytes,
                             uint64_t expires_ms);

/**
 * Writes a key's value with its expiry, and passes the previous value to the callback, unless it has expired. Otherwise
 * like `bristlecone_exchange`.
 */
int bristlecone_expiring_exchange(const struct bristlecone_tree *tree,
                                  const void *key,
                                  size_t key_bytes,
                                  const void *value,
                                  size_t value_bytes,
                                  uint64_t expires_ms,
                                  bristlecone_show show,
                                  void *context);

/**
 * Inserts a key that is absent or has expired, with its expiry. Otherwise like `bristlecone_insert`.
 */
int bristlecone_expiring_insert(const struct bristlecone_tree *tree,
                                const void *key,
                                size_t key_bytes,
                                const void *value,
                                size_t value_bytes,
                                uint64_t expires_ms,
                                bristlecone_show show,
                                void *context);

/**
 * Replaces the value of a key that exists and has not expired, and its expiry. Otherwise like `bristlecone_update`.
 */
int bristlecone_expiring_update(const struct bristlecone_tree *tree,
                                const void *key,
                                size_t key_bytes,
                                const void *value,
                                size_t value_bytes,
                                uint64_t expires_ms,
                                bristlecone_show show,
                                void *context);

/**
 * Changes a key from `expected` to `wanted` with its expiry atomically. An expired value counts as absent, and the
 * expiry that the key had does not count. Otherwise like `bristlecone_compare_and_swap`.
 */
int bristlecone_expiring_compare_and_swap(const struct bristlecone_tree *tree,
                                          const void *key,
                                          size_t key_bytes,
                                          const void *expected,
                                          size_t expected_bytes,
                                          const void *wanted,
                                          size_t wanted_bytes,
                                          uint64_t expires_ms,
                                          bristlecone_show show,
                                          void *context);

/**
 * Writes when a key expires: milliseconds since 1970, or `BRISTLECONE_NEVER_EXPIRES`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error `*expires_ms` is unchanged.
 */
int bristlecone_expiry(const struct bristlecone_tree *tree,
                       const void *key,
                       size_t key_bytes,
                       uint64_t *expires_ms);

/**
 * Sets when a key expires, and keeps its value; `BRISTLECONE_NEVER_EXPIRES` makes it permanent, and
 * `BRISTLECONE_DEFAULT_EXPIRY` renews it. `*previous_ms`, which may be null, is the previous expiry. Durable when it
 * returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_set_expiry(const struct bristlecone_tree *tree,
                           const void *key,
                           size_t key_bytes,
                           uint64_t expires_ms,
                           uint64_t *previous_ms);

/**
 * Reads up to `budget` entries of a tree and removes the expired ones among them. The next call on this handle continues
 * behind them. `*examined` and `*removed` are their numbers, and `*complete` is 1 if the end of the tree was reached,
 * where the next call begins again, or 0. Each pointer may be null.
 *
 * A renewed entry is never removed. After an error any of the expired entries are removed.
 */
int bristlecone_remove_expired(const struct bristlecone_tree *tree,
                               uint64_t budget,
                               uint64_t *examined,
                               uint64_t *removed,
                               int *complete);

/**
 * Opens an iterator over the keys of a range; null means all keys. A reversed range is empty.
 *
 * After an error there is no iterator, and `*iter` is unchanged.
 */
int bristlecone_iter_open(const struct bristlecone_tree *tree,
                          const struct bristlecone_range *range,
                          struct bristlecone_iter **iter);

/**
 * Opens an iterator over the keys with a prefix, of a tree whose keys are "str", "bytes" or arrays; others return
 * `BRISTLECONE_USAGE`.
 *
 * After an error there is no iterator, and `*iter` is unchanged.
 */
int bristlecone_iter_open_prefix(const struct bristlecone_tree *tree,
                                 const void *prefix,
                                 size_t prefix_bytes,
                                 struct bristlecone_iter **iter);

/**
 * Closes an iterator. After an error it stays open: `BRISTLECONE_IN_USE` while another thread uses it.
 */
int bristlecone_iter_close(struct bristlecone_iter *iter);

/**
 * Advances to the next item from the front. The iterator owns its bytes, which are valid until the next call on it.
 * Any of the four pointers may be null.
 *
 * Returns `BRISTLECONE_ABSENT` at the end, and again after that; nothing is written then. Any
 * other error ends the iteration: `BRISTLECONE_CORRUPTED` at a damaged item, `BRISTLECONE_NO_WRITER` if the writer of a
 * followed pool has exited.
 */
int bristlecone_iter_next(const struct bristlecone_iter *iter,
                          const void **key,
                          size_t *key_bytes,
                          const void **value,
                          size_t *value_bytes);

/**
 * Advances to the next item from the back; otherwise like `bristlecone_iter_next`.
 */
int bristlecone_iter_next_back(const struct bristlecone_iter *iter,
                               const void **key,
                               size_t *key_bytes,
                               const void **value,
                               size_t *value_bytes);

/**
 * Advances to the next items from the front of a tree of `u64` keys and values, up to `capacity` of them. `*count` is
 * the number of `keys` and `values` written: fewer only at the end.
 *
 * Returns `BRISTLECONE_ABSENT`, and a count of 0, at the end. After any error `*count` items were written, and they
 * are valid.
 */
int bristlecone_iter_next_u64(const struct bristlecone_iter *iter,
                              uint64_t *keys,
                              uint64_t *values,
                              size_t capacity,
                              size_t *count);

/**
 * Advances to the next items from the back, in descending order; otherwise like `bristlecone_iter_next_u64`.
 */
int bristlecone_iter_next_back_u64(const struct bristlecone_iter *iter,
                                   uint64_t *keys,
                                   uint64_t *values,
                                   size_t capacity,
                                   size_t *count);

/**
 * Makes everything durable that has been acknowledged so far. Only pools of the domain `BRISTLECONE_DOMAIN_JOURNAL` need
 * this, with another durability than `BRISTLECONE_DURABILITY_COMMIT`: in other pools each write is durable when it
 * returns.
 *
 * Returns `BRISTLECONE_DURABILITY_LOST` if the journal could not be written, now or before.
 */
int bristlecone_pool_sync(const struct bristlecone_pool *pool);

/**
 * Writes all items to a new checkpoint in the journal, and frees the space of the entries before it. Readers and writers
 * go on.
 *
 * Returns `BRISTLECONE_USAGE` for a pool of another domain than `BRISTLECONE_DOMAIN_JOURNAL`, and `BRISTLECONE_FULL` if the
 * file system has too little space. After an error the journal keeps its last checkpoint and all entries behind it.
 */
int bristlecone_pool_checkpoint(const struct bristlecone_pool *pool);

/**
 * Writes a checkpoint as `bristlecone_pool_checkpoint` does, and removes all files of the journal that are not needed any
 * more, including those that are kept for later entries.
 */
int bristlecone_pool_prune_journal(const struct bristlecone_pool *pool);

/**
 * Writes the state of the pool's journal. Does not wait for the disk.
 *
 * Returns `BRISTLECONE_ABSENT` for a pool that does not write a journal: of another domain, open for reading, or followed.
 * After an error `*status` is unchanged.
 */
int bristlecone_pool_get_journal_status(const struct bristlecone_pool *pool,
                                        struct bristlecone_journal_status *status);

/**
 * Looks up `count` keys in groups, which is faster than one by one: `values[i]` is the value of `keys[i]` if
 * `found[i]` is 1, and unchanged if it is 0. Each lookup reads at its own point in time.
 *
 * After an error nothing was written, except after `BRISTLECONE_NO_WRITER`, where this is unknown.
 */
int bristlecone_get_many_u64(const struct bristlecone_tree *tree,
                             const uint64_t *keys,
                             size_t count,
                             uint64_t *values,
                             uint8_t *found);

/**
 * Writes `count` items, one after the other. Each write is atomic and durable. `*done`, which may be null, is the
 * number of items, from the first on, that were written.
 *
 * After an error `*done` items were written and those behind them were not, except after
 * `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
 */
int bristlecone_put_many_u64(const struct bristlecone_tree *tree,
                             const uint64_t *keys,
                             const uint64_t *values,
                             size_t count,
                             size_t *done);

/**
 * Removes `count` keys, one after the other. Each removal is atomic and durable: `removed[i]` says whether `keys[i]`
 * existed. `*done`, which may be null, is the number of keys, from the first on, that were processed.
 *
 * After an error `*done` keys are removed and those behind them were not processed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
 */
int bristlecone_remove_many_u64(const struct bristlecone_tree *tree,
                                const uint64_t *keys,
                                size_t count,
                                uint8_t *removed,
                                size_t *done);

/**
 * Looks up `count` keys, and passes the value of each existing one with its index to the callback, without copying it.
 * Each lookup reads at its own point in time.
 *
 * After an error the callback has received the values of the existing keys before the one that failed.
 */
int bristlecone_get_many(const struct bristlecone_tree *tree,
                         const struct bristlecone_bytes *keys,
                         size_t count,
                         bristlecone_show_at show,
                         void *context);

/**
 * Writes `count` items, one after the other. Each write is atomic and durable. `*done`, which may be null, is the
 * number of items, from the first on, that were written.
 *
 * After an error `*done` items were written and those behind them were not, except after
 * `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
 */
int bristlecone_put_many(const struct bristlecone_tree *tree,
                         const struct bristlecone_bytes *keys,
                         const struct bristlecone_bytes *values,
                         size_t count,
                         size_t *done);

/**
 * Removes `count` keys, one after the other; absent ones are skipped. Each removal is atomic and durable. `*done`,
 * which may be null, is the number of keys, from the first on, that were processed.
 *
 * After an error `*done` keys are removed and those behind them were not processed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where up to sixteen are unknown.
 */
int bristlecone_remove_many(const struct bristlecone_tree *tree,
                            const struct bristlecone_bytes *keys,
                            size_t count,
                            size_t *done);

/**
 * Opens a pool; null options open an existing one for writing.
 *
 * Returns `BRISTLECONE_ABSENT` if it does not exist and is not to be created, `BRISTLECONE_USAGE` if it exists and
 * must be new, `BRISTLECONE_IN_USE` while another process or handle has it open, `BRISTLECONE_NO_WRITER` if it is to
 * be followed and no process writes to it. After an error there is no handle, `*pool` is unchanged, and so is an
 * existing pool.
 */
int bristlecone_pool_open(const char *path,
                          const struct bristlecone_open_options *open_options,
                          struct bristlecone_pool **pool);

/**
 * Closes a pool cleanly: after `BRISTLECONE_OK` its file is closed, and any process may open it.
 *
 * Returns `BRISTLECONE_IN_USE` while any object opened in it is open: close that first. After an error it stays open.
 * A process that ends without this call loses no acknowledged data: the next process to open the pool recovers it. In
 * a forked child the call only releases what the child inherited.
 */
int bristlecone_pool_close(struct bristlecone_pool *pool);

/**
 * Writes information about a pool. After an error `*info` is unchanged.
 */
int bristlecone_pool_get_info(const struct bristlecone_pool *pool, struct bristlecone_pool_info *info);

/**
 * Verifies the pool's own structures, and reports damage; `bristlecone_tree_check` verifies a tree.
 *
 * Returns `BRISTLECONE_FAILED` if there is any. Nothing is changed.
 */
int bristlecone_pool_check(const struct bristlecone_pool *pool, bristlecone_show_issue show, void *context);

/**
 * Passes the trees of a pool to the callback, in directory order. After an error the callback was not called.
 */
int bristlecone_pool_trees(const struct bristlecone_pool *pool, bristlecone_show_tree show, void *context);

/**
 * Drops a tree with all its items, and frees its space. Returns `BRISTLECONE_IN_USE` if the tree is open.
 *
 * After an error, or a crash, it exists completely or not at all; after any error except `BRISTLECONE_DURABILITY_LOST`
 * it exists.
 */
int bristlecone_pool_drop_tree(const struct bristlecone_pool *pool,
                               const char *name);

/**
 * Renames a tree, open or not.
 *
 * After an error it has the old name. After a crash it has either name.
 */
int bristlecone_pool_rename_tree(const struct bristlecone_pool *pool, const char *from, const char *to);

/**
 * Removes every item of a tree atomically. Returns `BRISTLECONE_IN_USE` if the tree is open.
 *
 * After an error nothing has changed. After a crash the tree has all of its items or none.
 */
int bristlecone_pool_clear_tree(const struct bristlecone_pool *pool, const char *name);

/**
 * Allocates space in advance, so that later growth causes no page faults.
 *
 * Returns `BRISTLECONE_FULL` if the file system has too little space; the available space was then allocated.
 */
int bristlecone_pool_prefault(const struct bristlecone_pool *pool, uint64_t bytes);

/**
 * Looks a key up, and copies its value to a buffer of `capacity` bytes. `*value_bytes`, which may be null, is the
 * length of the value, even if it does not fit: then the result is `BRISTLECONE_TOO_SMALL`, and nothing is copied.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist, `BRISTLECONE_CORRUPTED` if its record is damaged or
 * its value is invalid for the tree's kind, or if damage may affect the key. The buffer is unchanged after any error.
 */
int bristlecone_get(const struct bristlecone_tree *tree,
                    const void *key,
                    size_t key_bytes,
                    void *value,
                    size_t capacity,
                    size_t *value_bytes);

/**
 * Looks a key up, and passes its value to the callback without copying it: strings and bytes in place in the pool.
 * Nothing is locked meanwhile.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist, `BRISTLECONE_CORRUPTED` if its record is damaged or
 * its value is invalid for the tree's kind, or if damage may affect the key. The callback is not called after any error.
 */
int bristlecone_get_with(const struct bristlecone_tree *tree,
                         const void *key,
                         size_t key_bytes,
                         bristlecone_show show,
                         void *context);

/**
 * Returns `BRISTLECONE_OK` if a key exists, or `BRISTLECONE_ABSENT`.
 */
int bristlecone_contains(const struct bristlecone_tree *tree, const void *key, size_t key_bytes);

/**
 * Takes a snapshot that retains at most about `max_bytes` of DRAM; 0 is unlimited. If more would be needed, the
 * snapshot is dropped, and reading it returns `BRISTLECONE_SNAPSHOT_TOO_OLD`. Waits for the writes in progress; no
 * writer waits for it. After an error there is none, and `*snapshot` is unchanged.
 */
int bristlecone_snapshot_open(const struct bristlecone_pool *pool,
                              size_t max_bytes,
                              struct bristlecone_snapshot **snapshot);

/**
 * Closes a snapshot; its iterators stay usable. After an error it stays open.
 */
int bristlecone_snapshot_close(struct bristlecone_snapshot *snapshot);

/**
 * Returns the approximate number of bytes of DRAM retained for a snapshot; 0 if it was dropped. After an error `*kept`
 * is unchanged.
 */
int bristlecone_snapshot_bytes(const struct bristlecone_snapshot *snapshot,
                               size_t *kept);

/**
 * Looks up the snapshot's value of a key, and copies it like `bristlecone_get`.
 */
int bristlecone_snapshot_get(const struct bristlecone_snapshot *snapshot,
                             const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes,
                             void *value,
                             size_t capacity,
                             size_t *value_bytes);

/**
 * Opens an iterator over the snapshot's items of a range of keys; null means all keys. It is used and closed like any
 * other, and keeps the snapshot open.
 *
 * After an error there is no iterator, and `*iter` is unchanged.
 */
int bristlecone_snapshot_iter_open(const struct bristlecone_snapshot *snapshot,
                                   const struct bristlecone_tree *tree,
                                   const struct bristlecone_range *range,
                                   struct bristlecone_iter **iter);

/**
 * Returns a brief description of a status. The string is valid as long as the process.
 */
const char *bristlecone_strerror(int32_t status);

/**
 * Returns one line about the last call of this thread that returned anything but `BRISTLECONE_OK`; the empty string if
 * there was none. The library owns the string, which must not be freed. It is unchanged until the thread's next such
 * call.
 */
const char *bristlecone_errmsg(void);

/**
 * Calls a function whose writes, in this thread, do not wait for the disk; opens a ticket that tells when they are
 * durable. In a pool of another domain than `BRISTLECONE_DOMAIN_JOURNAL` they are durable when they return, and so is the
 * ticket.
 *
 * A power failure before leaves the first writes, up to any of them. A kill of the process undoes none. If the function
 * returns another number than `BRISTLECONE_OK`, so does this, once its writes are acknowledged as others are; then, and
 * after `BRISTLECONE_DURABILITY_LOST`, there is no ticket, and `*ticket` is unchanged.
 */
int bristlecone_pool_with_ticket(const struct bristlecone_pool *pool,
                                 bristlecone_run run,
                                 void *context,
                                 struct bristlecone_ticket **ticket);

/**
 * Writes whether the writes of a ticket are durable, 0 or 1, without waiting.
 *
 * Returns `BRISTLECONE_DURABILITY_LOST` if they can no longer become durable: open the pool again to learn what is. After an
 * error `*durable` is unchanged.
 */
int bristlecone_ticket_is_durable(const struct bristlecone_ticket *ticket,
                                  int *durable);

/**
 * Waits until the writes of a ticket are durable.
 *
 * Returns `BRISTLECONE_DURABILITY_LOST` as `bristlecone_ticket_is_durable` does.
 */
int bristlecone_ticket_wait(const struct bristlecone_ticket *ticket);

/**
 * Has a function called once the writes of a ticket are durable, or can no longer become so: `bristlecone_ticket_is_durable`
 * then tells which. It is called before this returns, or later from a thread of the pool, also if the ticket is closed by
 * then; not at all if the process ends before, or after an error. A pool that is left without being closed may not call it.
 */
int bristlecone_ticket_notify(const struct bristlecone_ticket *ticket,
                              bristlecone_notify notify,
                              void *context);

/**
 * Closes a ticket. After an error it stays open.
 */
int bristlecone_ticket_close(struct bristlecone_ticket *ticket);

/**
 * Begins a transaction. After an error there is none, and `*transaction` is unchanged.
 */
int bristlecone_transaction_begin(const struct bristlecone_pool *pool,
                                  struct bristlecone_transaction **transaction);

/**
 * Looks up a key as seen by the transaction, and copies its value like `bristlecone_get`. After an error the
 * transaction continues.
 */
int bristlecone_transaction_get(const struct bristlecone_transaction *transaction,
                                const struct bristlecone_tree *tree,
                                const void *key,
                                size_t key_bytes,
                                void *value,
                                size_t capacity,
                                size_t *value_bytes);

/**
 * Adds a write of a key's value to a transaction. After an error it continues without this change.
 */
int bristlecone_transaction_put(const struct bristlecone_transaction *transaction,
                                const struct bristlecone_tree *tree,
                                const void *key,
                                size_t key_bytes,
                                const void *value,
                                size_t value_bytes);

/**
 * Adds the removal of a key, if it exists, to a transaction. After an error it continues without this change.
 */
int bristlecone_transaction_remove(const struct bristlecone_transaction *transaction,
                                   const struct bristlecone_tree *tree,
                                   const void *key,
                                   size_t key_bytes);

/**
 * Passes the items of a range, as seen by the transaction, to the callback in ascending order, until it returns
 * anything but 0. The callback must not use the transaction. Damage ends the scan early, and then the commit returns
 * it.
 */
int bristlecone_transaction_scan(const struct bristlecone_transaction *transaction,
                                 const struct bristlecone_tree *tree,
                                 const struct bristlecone_range *range,
                                 bristlecone_show_item show,
                                 void *context);

/**
 * Applies the changes of a transaction atomically, if nothing that it read has changed meanwhile, and closes it.
 *
 * After `BRISTLECONE_OK` the changes are durable; after a crash either all of them are applied or none. Returns
 * `BRISTLECONE_CONFLICT` if a concurrent change conflicts: repeat the whole transaction from its begin. After an error
 * nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. An error closes the
 * handle, too, except `BRISTLECONE_IN_USE` (another thread is in a call on it), `BRISTLECONE_FORKED`, and errors of an
 * invalid handle.
 */
int bristlecone_transaction_commit(struct bristlecone_transaction *transaction);

/**
 * Discards a transaction: nothing changes. After an error it stays open.
 */
int bristlecone_transaction_rollback(struct bristlecone_transaction *transaction);

/**
 * Opens the tree of this name with keys and values of these kinds, or creates it, with the default design.
 *
 * Kinds are "u64", "str", "bytes", …: the table at the head of this header lists them all. A tree of other kinds
 * returns `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is unchanged; a tree that was to be
 * created exists completely or not at all.
 */
int bristlecone_tree_open_or_create(const struct bristlecone_pool *pool,
                                    const char *name,
                                    const char *key_kind,
                                    const char *value_kind,
                                    struct bristlecone_tree **tree);

/**
 * Opens the tree of this name with its own kinds: see `bristlecone_tree_get_info`. A tree may have several handles;
 * each must be closed.
 *
 * Returns `BRISTLECONE_ABSENT` if it does not exist. After an error there is no handle, and `*tree` is unchanged.
 */
int bristlecone_tree_open(const struct bristlecone_pool *pool,
                          const char *name,
                          struct bristlecone_tree **tree);

/**
 * Creates a tree with keys and values of these kinds, of a design and with its options; null means the defaults.
 *
 * An existing tree returns `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is unchanged; the tree
 * exists completely or not at all.
 */
int bristlecone_tree_create(const struct bristlecone_pool *pool,
                            const char *name,
                            const char *key_kind,
                            const char *value_kind,
                            const struct bristlecone_tree_options *tree_options,
                            struct bristlecone_tree **tree);

/**
 * Closes a handle to a tree. All written data stays; open iterators stay usable.
 *
 * After an error the handle stays open: `BRISTLECONE_IN_USE` while a call of another thread on it does not end.
 */
int bristlecone_tree_close(struct bristlecone_tree *tree);

/**
 * Writes information about a tree. After an error `*info` is unchanged.
 */
int bristlecone_tree_get_info(const struct bristlecone_tree *tree, struct bristlecone_tree_info *info);

/**
 * Counts the items of a tree; exact while no thread writes. After an error `*items` is unchanged.
 */
int bristlecone_tree_len(const struct bristlecone_tree *tree, uint64_t *items);

/**
 * Verifies everything reachable from a tree, and reports damage. Exact only while no thread writes.
 *
 * Returns `BRISTLECONE_FAILED` if there is any. Nothing is changed.
 */
int bristlecone_tree_check(const struct bristlecone_tree *tree, bristlecone_show_issue show, void *context);

/**
 * Reports the damage that reads have found since the tree was opened, without a further check.
 *
 * Returns `BRISTLECONE_FAILED` if there is any. Nothing is changed.
 */
int bristlecone_tree_damage(const struct bristlecone_tree *tree, bristlecone_show_issue show, void *context);

/**
 * Looks a key up: `*value` is its value. Like all calls that end in `_u64`, for trees whose keys and values are `u64`;
 * other trees return `BRISTLECONE_USAGE`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist; after any error `*value` is unchanged.
 */
int bristlecone_get_u64(const struct bristlecone_tree *tree,
                        uint64_t key,
                        uint64_t *value);

/**
 * Writes a key's value, whether or not the key exists. Durable when it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_put_u64(const struct bristlecone_tree *tree,
                        uint64_t key,
                        uint64_t value);

/**
 * Inserts an absent key. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_PRESENT` if the key exists: `*found`, which may be null, is then its value. After an error
 * nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_insert_u64(const struct bristlecone_tree *tree,
                           uint64_t key,
                           uint64_t value,
                           uint64_t *found);

/**
 * Replaces the value of an existing key; `*old`, which may be null, is the previous value. Durable when it returns
 * `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_update_u64(const struct bristlecone_tree *tree,
                           uint64_t key,
                           uint64_t value,
                           uint64_t *old);

/**
 * Removes a key; `*old`, which may be null, is the previous value. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_remove_u64(const struct bristlecone_tree *tree, uint64_t key, uint64_t *old);

/**
 * Changes a key from `expected` to `wanted` atomically; null means an absent key. So it inserts (`expected` null),
 * replaces, removes (`wanted` null), or only compares (both null). Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_DIFFERS` if the key is not as expected: `*is_there` says whether it exists, and `*found` is
 * then its value; both may be null. After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`,
 * where the outcome is unknown.
 */
int bristlecone_compare_and_swap_u64(const struct bristlecone_tree *tree,
                                     uint64_t key,
                                     const uint64_t *expected,
                                     const uint64_t *wanted,
                                     int32_t *is_there,
                                     uint64_t *found);

/**
 * Writes a key's value, whether or not the key exists. Durable when it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_put(const struct bristlecone_tree *tree,
                    const void *key,
                    size_t key_bytes,
                    const void *value,
                    size_t value_bytes);

/**
 * Writes a key's value, whether or not the key exists, and passes the previous value, if any, to the callback. Durable
 * when it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. A
 * previous value that is invalid for the tree's kind is replaced, and not passed: it counts as absent.
 */
int bristlecone_exchange(const struct bristlecone_tree *tree,
                         const void *key,
                         size_t key_bytes,
                         const void *value,
                         size_t value_bytes,
                         bristlecone_show show,
                         void *context);

/**
 * Inserts an absent key. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_PRESENT` if the key exists, and passes its value to the callback. After an error nothing has
 * changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
 */
int bristlecone_insert(const struct bristlecone_tree *tree,
                       const void *key,
                       size_t key_bytes,
                       const void *value,
                       size_t value_bytes,
                       bristlecone_show show,
                       void *context);

/**
 * Replaces the value of an existing key, and passes the previous value to the callback. Durable when it returns
 * `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. A previous value that is invalid for the tree's kind is
 * replaced, and counts as absent.
 */
int bristlecone_update(const struct bristlecone_tree *tree,
                       const void *key,
                       size_t key_bytes,
                       const void *value,
                       size_t value_bytes,
                       bristlecone_show show,
                       void *context);

/**
 * Removes a key, and passes the previous value to the callback. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
 * `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. A previous value that is invalid for the tree's kind is
 * removed, and counts as absent.
 */
int bristlecone_remove(const struct bristlecone_tree *tree,
                       const void *key,
                       size_t key_bytes,
                       bristlecone_show show,
                       void *context);

/**
 * Removes all items whose keys lie within a range in one step; a null range is that of all keys. `*removed`, which may be
 * null, is their number. Durable when it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown: all items
 * are removed or none. Lookups and iterators of other threads may see a part of the removal, and writers of the tree wait
 * until it ends. Snapshots and transactions see all or nothing.
 */
int bristlecone_remove_range(const struct bristlecone_tree *tree,
                             const struct bristlecone_range *range,
                             uint64_t *removed);

/**
 * Removes all items whose keys have a prefix, of a tree whose keys are "str", "bytes" or arrays; otherwise like
 * `bristlecone_remove_range`. Other trees return `BRISTLECONE_USAGE`.
 */
int bristlecone_remove_prefix(const struct bristlecone_tree *tree,
                              const void *prefix,
                              size_t prefix_bytes,
                              uint64_t *removed);

/**
 * Changes a key from `expected` to `wanted` atomically; a null pointer without a length means an absent key, and an
 * empty value has a pointer that is not null. So it inserts (`expected` null), replaces, removes (`wanted` null), or
 * only compares (both null). Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_DIFFERS` if the key is not as expected, and passes its value, unless it is absent, to the
 * callback. After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is
 * unknown.
 */
int bristlecone_compare_and_swap(const struct bristlecone_tree *tree,
                                 const void *key,
                                 size_t key_bytes,
                                 const void *expected,
                                 size_t expected_bytes,
                                 const void *wanted,
                                 size_t wanted_bytes,
                                 bristlecone_show show,
                                 void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BRISTLECONE_H */
