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
 * Status. Every call that can fail returns an int: BRISTLECONE_OK, or why it did nothing; bristlecone_errmsg() says it
 * in one line. The numbers up to 6 are the exit codes of the tool, too. Nothing is to be freed but handles, which are
 * closed. No call throws or unwinds.
 *
 * Handles are looked up, not followed: one that is null, was closed, or is of another kind is BRISTLECONE_USAGE. Closing
 * while a call of another thread is on the handle waits a moment, then is BRISTLECONE_IN_USE.
 *
 * Threads. Pools, trees and snapshots are for any number of threads at the same time; an iterator, a batch and a
 * transaction are for one at a time.
 *
 * Processes. After fork() the child's calls on what it inherited return BRISTLECONE_FORKED, those that close let go of it,
 * and the pool stays the parent's. A process that is killed loses nothing that was acknowledged.
 *
 * Keys and values are bytes, as many as are given; their kinds say what these are, and how keys order:
 *
 *     kind                                          bytes
 *     "u8" ... "u128", "i8" ... "i128", "f32", "f64"   those of the number in memory
 *     "bool"                                        one, 0 or 1
 *     "char"                                        those of the uint32_t with its code point
 *     "str", "json" (values only)                   UTF-8, without a zero at the end
 *     "bytes", "[u8; N]", "postcard" (values only)  as they are; N of them
 *     "()"                                          none
 *     "Option<K>"                                   0, or 1 and then K's
 *     "(K,)", "(K, L)", up to eight                 K's, then L's, without gaps
 *
 * Within options and tuples "str" and "bytes" stand behind their length, a uint64_t. Numbers order by value, floats in
 * total order, strings bytewise, tuples by the first element that differs. Keys have up to 16 KiB, values up to 128 KiB.
 *
 * Several keys. A write of one key is atomic, two are two. A batch makes changes of several keys, in any trees of a pool,
 * together; a transaction besides fails if what it read has changed; a snapshot shows all trees as of one moment.
 *
 * Made from bindings/c/src by `make header`; a test compares. Licence: MIT or Apache-2.0.
 */

#ifndef BRISTLECONE_H
#define BRISTLECONE_H

#include <stddef.h>
#include <stdint.h>

/* Initializers for structs, whose first member says which version of them a program was compiled with. */
#define BRISTLECONE_OPEN_OPTIONS_INIT { sizeof(bristlecone_open_options), 0, 0, 0, 0 }
#define BRISTLECONE_TREE_OPTIONS_INIT { sizeof(bristlecone_tree_options), 0, 0, 0 }
#define BRISTLECONE_RANGE_INIT { sizeof(bristlecone_range), 0, 0, 0, 0, 0 }
#define BRISTLECONE_POOL_INFO_INIT { sizeof(bristlecone_pool_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0 }
#define BRISTLECONE_TREE_INFO_INIT { sizeof(bristlecone_tree_info), { 0 }, { 0 }, { 0 }, 0, 0, 0, 0, 0, 0 }

/* The size of a key or value of a kind that has no fixed one. */
#define BRISTLECONE_ANY_SIZE SIZE_MAX

/**
 * The version of this interface: a program that was compiled with another one must not use the library. It is the
 * number behind the name of the shared library, too.
 */
#define BRISTLECONE_ABI_VERSION 1

/**
 * Creates the pool if there is none.
 */
#define BRISTLECONE_CREATE 1

/**
 * Creates the pool, and fails if there is one.
 */
#define BRISTLECONE_CREATE_NEW 2

/**
 * Opens the pool for reading only: its file is not changed, and other processes may read it, too.
 */
#define BRISTLECONE_READ 4

/**
 * Leaves `SIGBUS` to the program. Without it opening a pool installs a handler, which says which pool lost its bytes
 * (its file was truncated, its medium is bad) and aborts, and hands faults elsewhere to the handler before it.
 */
#define BRISTLECONE_LEAVE_SIGBUS 8

/**
 * Opens the pool for reading while another process, or another handle of this one, is writing to it. The pool is not created,
 * and has its writer's maximum and domain.
 *
 * What is read is durable, and what the writer's own threads would read. The writer has to be of the same build of this
 * library and of the same user, and trees can be opened that it has open. It is not waited for, and does not wait. Writes
 * are `BRISTLECONE_READ_ONLY`. When the writer has closed the pool, reads are `BRISTLECONE_NO_WRITER`; when another
 * one has come, handles that are open go on with that. What a killed writer left is read until it is recovered. There are no
 * snapshots.
 */
#define BRISTLECONE_FOLLOW 16

/**
 * The domain is detected.
 */
#define BRISTLECONE_DOMAIN_DETECTED 0

/**
 * Shared memory: what is written survives the process.
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
 * The first bound of a range is not in it.
 */
#define BRISTLECONE_FROM_EXCLUDED 1

/**
 * The last bound of a range is in it.
 */
#define BRISTLECONE_TO_INCLUDED 2

/**
 * Keys and values that were damaged are reported as `BRISTLECONE_CORRUPTED`, and end the iteration. Without this flag
 * the checksums of keys and values are not looked at, and what cannot be of the tree's kinds is left out.
 */
#define BRISTLECONE_CHECKED 4

/**
 * Done.
 */
#define BRISTLECONE_OK 0

/**
 * Failed: a check found something, or the system refused.
 */
#define BRISTLECONE_FAILED 1

/**
 * Wrong usage: an argument is not possible, a handle is null, closed or of something else, a tree has other kinds.
 */
#define BRISTLECONE_USAGE 2

/**
 * In use: the pool by another process or handle, the tree or pool by handles that are open, the handle by a call of
 * another thread.
 */
#define BRISTLECONE_IN_USE 3

/**
 * There is no such pool, tree or key; or an iterator has nothing more.
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
 * The key is there already, and was to be new.
 */
#define BRISTLECONE_PRESENT 32

/**
 * The key has another value than expected, or none.
 */
#define BRISTLECONE_DIFFERS 33

/**
 * The handle was made by another process, of which this one is a child: open the pool again here.
 */
#define BRISTLECONE_FORKED 34

/**
 * The pool is open for reading only, or lies on a read-only file system.
 */
#define BRISTLECONE_READ_ONLY 35

/**
 * The medium refused to make data durable: reopen the pool. What was acknowledged before stands; whether the
 * operation that returned this happened is open.
 */
#define BRISTLECONE_DURABILITY_LOST 36

/**
 * The buffer is too small: nothing was copied, and the length says what is needed.
 */
#define BRISTLECONE_TOO_SMALL 37

/**
 * A bug in the library, which says where on standard error: end the process; the pool loses nothing that was
 * acknowledged.
 */
#define BRISTLECONE_BUG 38

/**
 * Others changed what a transaction read, or a condition of a batch does not hold: nothing has changed.
 */
#define BRISTLECONE_CONFLICT 39

/**
 * A snapshot may keep no more of what has changed since, or the tree was cleared since: take another one.
 */
#define BRISTLECONE_SNAPSHOT_TOO_OLD 40

/**
 * No process writes to a pool that is followed, or none that can be followed: the writer closed it, or does not have the
 * tree open. What a killed one left is read until it is recovered. When another one has come, calls go on with that.
 */
#define BRISTLECONE_NO_WRITER 41

/**
 * Bytes of a kind's name, with the zero at its end.
 */
#define BRISTLECONE_KIND_BYTES 64

/**
 * Changes of any trees of one pool that are made together, or not at all. Until it is committed it is a list in DRAM. One
 * thread uses it at a time. It keeps its pool open.
 */
typedef struct bristlecone_batch bristlecone_batch;

/**
 * An iterator over the items of a tree, in the order of the keys, from both ends: what one end has shown the other
 * does not show. It may be used while threads write, holds no lock, and shows every key that is there all the while.
 *
 * One thread uses it at a time; a second one gets `BRISTLECONE_IN_USE`. It keeps its tree and its pool open.
 */
typedef struct bristlecone_iter bristlecone_iter;

/**
 * An open pool: a file with trees. One process at a time writes to it, which others may follow, or any number of them
 * read it. It belongs to the process that opened it: in a child that was forked every call but those that close returns
 * `BRISTLECONE_FORKED`.
 */
typedef struct bristlecone_pool bristlecone_pool;

/**
 * All trees of a pool as they were at one moment, for any number of threads. What is changed afterwards is kept in DRAM
 * as long as a snapshot needs it. It keeps its pool open.
 */
typedef struct bristlecone_snapshot bristlecone_snapshot;

/**
 * A transaction under way: it reads all trees of a pool as they were at one moment, with what it wrote itself, and its
 * changes are made together, if nothing that it read has changed meanwhile. One thread uses it at a time. It keeps its
 * pool open, and what others change in DRAM: end it soon.
 */
typedef struct bristlecone_transaction bristlecone_transaction;

/**
 * A tree in a pool: an ordered map, for any number of threads. Every write of one key is atomic, and durable when it
 * returns `BRISTLECONE_OK`; readers see only what is durable.
 */
typedef struct bristlecone_tree bristlecone_tree;

/**
 * Which keys an iterator shows: those from `from` up to, but without, `to`. A null bound is none; an empty key as a
 * bound has a pointer that is not null, and no length. Begin with `BRISTLECONE_RANGE_INIT`.
 */
typedef struct bristlecone_range {
    /**
     * The bytes of this struct.
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
     * Any of `BRISTLECONE_FROM_EXCLUDED`, `BRISTLECONE_TO_INCLUDED` and `BRISTLECONE_CHECKED`.
     */
    uint32_t flags;
} bristlecone_range;

/**
 * A key or a value in an array of them.
 */
typedef struct bristlecone_bytes {
    /**
     * Where it begins.
     */
    const void *data;
    /**
     * Its length.
     */
    size_t bytes;
} bristlecone_bytes;

/**
 * Is shown the value of the key at an index. What holds of `bristlecone_show` holds of it. May be null.
 */
typedef void (*bristlecone_show_at)(void *context, size_t index, const void *value, size_t value_bytes);

/**
 * How a pool is opened. Begin with `BRISTLECONE_OPEN_OPTIONS_INIT`; zeros are the defaults.
 */
typedef struct bristlecone_open_options {
    /**
     * The bytes of this struct.
     */
    size_t struct_bytes;
    /**
     * Any of `BRISTLECONE_CREATE`, `BRISTLECONE_CREATE_NEW`, `BRISTLECONE_READ`, `BRISTLECONE_LEAVE_SIGBUS` and
     * `BRISTLECONE_FOLLOW`.
     */
    uint32_t flags;
    /**
     * One of `BRISTLECONE_DOMAIN_…`. With a weaker one than the medium needs, less survives than is said.
     */
    uint32_t domain;
    /**
     * Bytes that the pool may grow to. An existing pool gets this maximum if it is larger than its own.
     */
    uint64_t max_bytes;
    /**
     * Threads that recover a tree; 0: as many as the machine has.
     */
    size_t recovery_threads;
} bristlecone_open_options;

/**
 * What is known about a pool. Begin with `BRISTLECONE_POOL_INFO_INIT`.
 */
typedef struct bristlecone_pool_info {
    /**
     * The bytes of this struct.
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
     * Whether the last user closed the pool in good order.
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
     * Bytes that the file has.
     */
    uint64_t file_bytes;
    /**
     * Bytes that it may grow to.
     */
    uint64_t max_bytes;
    /**
     * Bytes of a chunk.
     */
    uint64_t chunk_bytes;
    /**
     * Chunks that the file has.
     */
    uint64_t chunks;
    /**
     * Chunks of these that no tree owns.
     */
    uint64_t chunks_free;
    /**
     * Bytes that are mapped by huge pages.
     */
    uint64_t huge_bytes;
    /**
     * What opening found damaged and could do without.
     */
    uint64_t findings;
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
 * Is shown something that a check found: where, and what. Both strings live as long as the call. What holds of
 * `bristlecone_show` holds of it. May be null.
 */
typedef void (*bristlecone_show_finding)(void *context, const char *location, const char *what);

/**
 * Is shown a tree of a pool: its name, the kinds of its keys and values, and its design, as strings that live as long as
 * the call. What holds of `bristlecone_show` holds of it. May be null.
 */
typedef void (*bristlecone_show_tree)(void *context,
                                      const char *name,
                                      const char *key_kind,
                                      const char *value_kind,
                                      const char *design);

/**
 * Is shown a value, which lives as long as the call. It may use the library, but not close the handle that the
 * call is on, and it must return: neither `longjmp` nor a C++ exception may leave it. May be null: nothing is shown.
 */
typedef void (*bristlecone_show)(void *context, const void *value, size_t value_bytes);

/**
 * Is shown an item, whose bytes live as long as the call; returns 0 to see the next one. What holds of `bristlecone_show`
 * holds of it.
 */
typedef int (*bristlecone_show_item)(void *context,
                                     const void *key,
                                     size_t key_bytes,
                                     const void *value,
                                     size_t value_bytes);

/**
 * An option of a design, which a tree is created with and keeps.
 */
typedef struct bristlecone_option {
    /**
     * Its name: docs/designs/ has them.
     */
    const char *name;
    /**
     * Its value.
     */
    uint64_t value;
} bristlecone_option;

/**
 * How a tree is created. Begin with `BRISTLECONE_TREE_OPTIONS_INIT`.
 */
typedef struct bristlecone_tree_options {
    /**
     * The bytes of this struct.
     */
    size_t struct_bytes;
    /**
     * The design: "sstree" (also if null), "nbtree", "cclbtree", "lodgetree" or "wotree".
     */
    const char *design;
    /**
     * Options of the design; those that are left out have their defaults.
     */
    const struct bristlecone_option *options;
    /**
     * How many.
     */
    size_t option_count;
} bristlecone_tree_options;

/**
 * What is known about a tree. Begin with `BRISTLECONE_TREE_INFO_INIT`.
 */
typedef struct bristlecone_tree_info {
    /**
     * The bytes of this struct.
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
     * Bytes of every key, or `BRISTLECONE_ANY_SIZE`.
     */
    size_t key_bytes;
    /**
     * Bytes of every value, or `BRISTLECONE_ANY_SIZE`.
     */
    size_t value_bytes;
    /**
     * Items; exact while no thread writes.
     */
    uint64_t items;
    /**
     * Leaves.
     */
    uint64_t leaves;
    /**
     * Bytes of the pool: whole chunks.
     */
    uint64_t pm_bytes;
    /**
     * Bytes of DRAM.
     */
    uint64_t dram_bytes;
} bristlecone_tree_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the interface that the library has: `BRISTLECONE_ABI_VERSION` of its header.
 */
int bristlecone_abi_version(void);

/**
 * Returns the version of the library, such as "0.1.0". The string lives as long as the process.
 */
const char *bristlecone_version(void);

/**
 * Begins a batch. After an error there is none, and `*batch` is as it was.
 */
int bristlecone_batch_begin(const struct bristlecone_pool *pool, struct bristlecone_batch **batch);

/**
 * Has a batch write a key's value, whether the key is there or not. Of several changes of a key the last one counts. After
 * an error the batch goes on without this change.
 */
int bristlecone_batch_put(const struct bristlecone_batch *batch,
                          const struct bristlecone_tree *tree,
                          const void *key,
                          size_t key_bytes,
                          const void *value,
                          size_t value_bytes);

/**
 * Has a batch remove a key, if it is there. After an error the batch goes on without this change.
 */
int bristlecone_batch_remove(const struct bristlecone_batch *batch,
                             const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes);

/**
 * Makes a condition of a batch: before it the key has this value, or is absent if `value` is null (an empty value has a
 * pointer that is not null). If it is not so, the commit is `BRISTLECONE_CONFLICT`. After an error the batch goes on
 * without this condition.
 */
int bristlecone_batch_expect(const struct bristlecone_batch *batch,
                             const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes,
                             const void *value,
                             size_t value_bytes);

/**
 * Has a batch write a key's value, in a tree of `u64` keys and values: see `bristlecone_batch_put`.
 */
int bristlecone_batch_put_u64(const struct bristlecone_batch *batch,
                              const struct bristlecone_tree *tree,
                              uint64_t key,
                              uint64_t value);

/**
 * Has a batch remove a key, in a tree of `u64` keys and values: see `bristlecone_batch_remove`.
 */
int bristlecone_batch_remove_u64(const struct bristlecone_batch *batch,
                                 const struct bristlecone_tree *tree,
                                 uint64_t key);

/**
 * Makes a condition of a batch, in a tree of `u64` keys and values; null stands for an absent key: see
 * `bristlecone_batch_expect`.
 */
int bristlecone_batch_expect_u64(const struct bristlecone_batch *batch,
                                 const struct bristlecone_tree *tree,
                                 uint64_t key,
                                 const uint64_t *value);

/**
 * Makes all changes of a batch in one step, if all its conditions hold, and closes it.
 *
 * After `BRISTLECONE_OK` they are durable, and after a crash all of them are made or none. After an error nothing has
 * changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open: `BRISTLECONE_CONFLICT` if a condition does not
 * hold. The handle is closed then, too, except after `BRISTLECONE_IN_USE` (another thread is in a call on it),
 * `BRISTLECONE_FORKED` and for what is no batch.
 */
int bristlecone_batch_commit(struct bristlecone_batch *batch);

/**
 * Forgets a batch, and closes it. After an error it is open as before.
 */
int bristlecone_batch_discard(struct bristlecone_batch *batch);

/**
 * Opens an iterator over the keys of a range; null is all of them. A range the wrong way round holds nothing.
 *
 * After an error there is no iterator, and `*iter` is as it was.
 */
int bristlecone_iter_open(const struct bristlecone_tree *tree,
                          const struct bristlecone_range *range,
                          struct bristlecone_iter **iter);

/**
 * Opens an iterator over the keys that begin with a prefix, of a tree whose keys are "str", "bytes" or arrays; others are
 * `BRISTLECONE_USAGE`.
 *
 * After an error there is no iterator, and `*iter` is as it was.
 */
int bristlecone_iter_open_prefix(const struct bristlecone_tree *tree,
                                 const void *prefix,
                                 size_t prefix_bytes,
                                 struct bristlecone_iter **iter);

/**
 * Closes an iterator. After an error it is open as before: `BRISTLECONE_IN_USE` while another thread uses it.
 */
int bristlecone_iter_close(struct bristlecone_iter *iter);

/**
 * Goes on to the next item from the front. Its bytes are the iterator's: they stay until the next call on it. Any of
 * the four pointers may be null.
 *
 * Returns `BRISTLECONE_ABSENT` when there is nothing more, and again after that; nothing is written then. After
 * `BRISTLECONE_CORRUPTED` (in a range with `BRISTLECONE_CHECKED`) nothing more comes. After `BRISTLECONE_NO_WRITER` the
 * iterator goes on where it was when another writer has come, but in a range with `BRISTLECONE_CHECKED`.
 */
int bristlecone_iter_next(const struct bristlecone_iter *iter,
                          const void **key,
                          size_t *key_bytes,
                          const void **value,
                          size_t *value_bytes);

/**
 * Goes on to the next item from the back; otherwise as `bristlecone_iter_next`.
 */
int bristlecone_iter_next_back(const struct bristlecone_iter *iter,
                               const void **key,
                               size_t *key_bytes,
                               const void **value,
                               size_t *value_bytes);

/**
 * Goes on to the next items from the front of a tree of `u64` keys and values, up to `capacity` of them. `*count` says
 * how many `keys` and `values` were written: fewer only at the end.
 *
 * Returns `BRISTLECONE_ABSENT`, and a count of 0, when there is nothing more. After any error `*count` items were
 * written that are as good as others.
 */
int bristlecone_iter_next_u64(const struct bristlecone_iter *iter,
                              uint64_t *keys,
                              uint64_t *values,
                              size_t capacity,
                              size_t *count);

/**
 * Goes on to the next items from the back, in descending order; otherwise as `bristlecone_iter_next_u64`.
 */
int bristlecone_iter_next_back_u64(const struct bristlecone_iter *iter,
                                   uint64_t *keys,
                                   uint64_t *values,
                                   size_t capacity,
                                   size_t *count);

/**
 * Looks up `count` keys, several at a time, which takes less time than one by one: `values[i]` is the value of `keys[i]`
 * where `found[i]` is 1, and stays as it was where that is 0. Each lookup sees what was there at its own moment.
 *
 * After an error nothing was written, but for `BRISTLECONE_NO_WRITER`, which leaves open what was.
 */
int bristlecone_get_many_u64(const struct bristlecone_tree *tree,
                             const uint64_t *keys,
                             size_t count,
                             uint64_t *values,
                             uint8_t *found);

/**
 * Writes `count` items, one after the other, each of them an atomic step and durable. `*done`, which may be null, says
 * how many of them, from the first on, were written.
 *
 * After an error `*done` items were written and those behind them were not, but for `BRISTLECONE_DURABILITY_LOST`, which
 * leaves up to sixteen open.
 */
int bristlecone_put_many_u64(const struct bristlecone_tree *tree,
                             const uint64_t *keys,
                             const uint64_t *values,
                             size_t count,
                             size_t *done);

/**
 * Removes `count` keys, one after the other, each of them an atomic step and durable: `removed[i]` says whether
 * `keys[i]` was there. `*done`, which may be null, says how many keys, from the first on, were looked for.
 *
 * After an error `*done` keys are gone and those behind them were not looked for, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves up to sixteen open.
 */
int bristlecone_remove_many_u64(const struct bristlecone_tree *tree,
                                const uint64_t *keys,
                                size_t count,
                                uint8_t *removed,
                                size_t *done);

/**
 * Looks up `count` keys, and shows the value of each that is there with its index, without copying it. Each lookup sees
 * what was there at its own moment.
 *
 * After an error the values of keys before the one that it is about were shown, if they are there.
 */
int bristlecone_get_many(const struct bristlecone_tree *tree,
                         const struct bristlecone_bytes *keys,
                         size_t count,
                         bristlecone_show_at show,
                         void *context);

/**
 * Writes `count` items, one after the other, each of them an atomic step and durable. `*done`, which may be null, says
 * how many of them, from the first on, were written.
 *
 * After an error `*done` items were written and those behind them were not, but for `BRISTLECONE_DURABILITY_LOST`, which
 * leaves up to sixteen open.
 */
int bristlecone_put_many(const struct bristlecone_tree *tree,
                         const struct bristlecone_bytes *keys,
                         const struct bristlecone_bytes *values,
                         size_t count,
                         size_t *done);

/**
 * Removes `count` keys, one after the other, each of them an atomic step and durable; absent ones are passed over.
 * `*done`, which may be null, says how many keys, from the first on, were looked for.
 *
 * After an error `*done` keys are gone and those behind them were not looked for, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves up to sixteen open.
 */
int bristlecone_remove_many(const struct bristlecone_tree *tree,
                            const struct bristlecone_bytes *keys,
                            size_t count,
                            size_t *done);

/**
 * Opens a pool; null options open an existing one for writing.
 *
 * Returns `BRISTLECONE_ABSENT` if there is none and it is not to be created, `BRISTLECONE_USAGE` if there is one that
 * was to be new, `BRISTLECONE_IN_USE` while another process or handle has it, `BRISTLECONE_NO_WRITER` if it is to be followed
 * and no process writes to it. After an error there is no handle,
 * `*pool` is as it was, and so is a pool that existed.
 */
int bristlecone_pool_open(const char *path,
                          const struct bristlecone_open_options *open_options,
                          struct bristlecone_pool **pool);

/**
 * Closes a pool in good order: after `BRISTLECONE_OK` its file is closed, and any process may open it.
 *
 * Returns `BRISTLECONE_IN_USE` while anything that was opened in it is open: close that first. After an error it is open as
 * before. A process that ends without this loses nothing that was acknowledged: the next one to open the pool recovers
 * it. In a child that was forked it only gives up what the child inherited.
 */
int bristlecone_pool_close(struct bristlecone_pool *pool);

/**
 * Writes what is known about a pool. After an error `*info` is as it was.
 */
int bristlecone_pool_get_info(const struct bristlecone_pool *pool, struct bristlecone_pool_info *info);

/**
 * Verifies the pool's own structures, and shows what is wrong; `bristlecone_tree_check` looks at a tree.
 *
 * Returns `BRISTLECONE_FAILED` if anything is. Nothing is changed.
 */
int bristlecone_pool_check(const struct bristlecone_pool *pool, bristlecone_show_finding show, void *context);

/**
 * Shows the trees of a pool, in the order of its directory. Nothing was shown after an error.
 */
int bristlecone_pool_trees(const struct bristlecone_pool *pool, bristlecone_show_tree show, void *context);

/**
 * Drops a tree and everything in it, and frees its space. It must not be open: `BRISTLECONE_IN_USE` if it is.
 *
 * After an error, or a crash, it is there wholly or not at all; after any other error than
 * `BRISTLECONE_DURABILITY_LOST` it is.
 */
int bristlecone_pool_drop_tree(const struct bristlecone_pool *pool, const char *name);

/**
 * Gives a tree another name, whether it is open or not.
 *
 * After an error it has the old one. After a crash it has either of both.
 */
int bristlecone_pool_rename_tree(const struct bristlecone_pool *pool, const char *from, const char *to);

/**
 * Removes every item of a tree in one step. It must not be open: `BRISTLECONE_IN_USE` if it is.
 *
 * After an error nothing has changed. After a crash the tree has all of its items or none.
 */
int bristlecone_pool_clear_tree(const struct bristlecone_pool *pool, const char *name);

/**
 * Makes room ahead of time, so that growth costs no page faults later.
 *
 * Returns `BRISTLECONE_FULL` if the file system has no such room, of which what there is was taken.
 */
int bristlecone_pool_prefault(const struct bristlecone_pool *pool, uint64_t bytes);

/**
 * Looks a key up, and copies its value to a buffer of `capacity` bytes. `*value_bytes`, which may be null, is the length
 * of the value, whether it fits or not: it is `BRISTLECONE_TOO_SMALL` if not, and nothing is copied then.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there, `BRISTLECONE_CORRUPTED` if its value is nothing of the
 * tree's kind. The buffer is as it was after any error.
 */
int bristlecone_get(const struct bristlecone_tree *tree,
                    const void *key,
                    size_t key_bytes,
                    void *value,
                    size_t capacity,
                    size_t *value_bytes);

/**
 * Looks a key up as `bristlecone_get` does, with its record and those of the keys beside it compared with their
 * checksums: slower, and `BRISTLECONE_CORRUPTED` for what `bristlecone_get` returns as it is.
 */
int bristlecone_get_checked(const struct bristlecone_tree *tree,
                            const void *key,
                            size_t key_bytes,
                            void *value,
                            size_t capacity,
                            size_t *value_bytes);

/**
 * Looks a key up, and shows its value without copying it: strings and bytes as they are in the pool. Nothing is
 * locked meanwhile.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there, `BRISTLECONE_CORRUPTED` if its value is nothing of the
 * tree's kind. Nothing was shown after any error.
 */
int bristlecone_get_with(const struct bristlecone_tree *tree,
                         const void *key,
                         size_t key_bytes,
                         bristlecone_show show,
                         void *context);

/**
 * Looks whether a key is there: `BRISTLECONE_OK`, or `BRISTLECONE_ABSENT`.
 */
int bristlecone_contains(const struct bristlecone_tree *tree, const void *key, size_t key_bytes);

/**
 * Takes a snapshot, for which at most about `max_bytes` of DRAM are kept; 0 is no bound. Once more would be needed it is
 * given up, and reading it is `BRISTLECONE_SNAPSHOT_TOO_OLD`. Waits for the writes that are under way, and no writer
 * waits for it. After an error there is none, and `*snapshot` is as it was.
 */
int bristlecone_snapshot_open(const struct bristlecone_pool *pool,
                              size_t max_bytes,
                              struct bristlecone_snapshot **snapshot);

/**
 * Closes a snapshot; iterators over it go on. After an error it is open as before.
 */
int bristlecone_snapshot_close(struct bristlecone_snapshot *snapshot);

/**
 * Says how many bytes of DRAM are kept for a snapshot, about; 0 if it was given up. After an error `*kept` is as it was.
 */
int bristlecone_snapshot_bytes(const struct bristlecone_snapshot *snapshot,
                               size_t *kept);

/**
 * Looks up what a key of a tree had, and copies it as `bristlecone_get` does.
 */
int bristlecone_snapshot_get(const struct bristlecone_snapshot *snapshot,
                             const struct bristlecone_tree *tree,
                             const void *key,
                             size_t key_bytes,
                             void *value,
                             size_t capacity,
                             size_t *value_bytes);

/**
 * Looks up what a key of a tree of `u64` keys and values had. After any error `*value` is as it was.
 */
int bristlecone_snapshot_get_u64(const struct bristlecone_snapshot *snapshot,
                                 const struct bristlecone_tree *tree,
                                 uint64_t key,
                                 uint64_t *value);

/**
 * Opens an iterator over what a range of keys had; null is all of them. It is used, and closed, like any other, shows
 * damage as if `BRISTLECONE_CHECKED` were set, and keeps the snapshot.
 *
 * After an error there is no iterator, and `*iter` is as it was.
 */
int bristlecone_snapshot_iter_open(const struct bristlecone_snapshot *snapshot,
                                   const struct bristlecone_tree *tree,
                                   const struct bristlecone_range *range,
                                   struct bristlecone_iter **iter);

/**
 * Returns what a status means, in a few words. The string lives as long as the process.
 */
const char *bristlecone_strerror(int32_t status);

/**
 * Returns one line on the last call of this thread that returned anything but `BRISTLECONE_OK`; the empty string if
 * there was none. The string is the library's, is never freed, and stays as it is until the thread's next such call.
 */
const char *bristlecone_errmsg(void);

/**
 * Begins a transaction. After an error there is none, and `*transaction` is as it was.
 */
int bristlecone_transaction_begin(const struct bristlecone_pool *pool,
                                  struct bristlecone_transaction **transaction);

/**
 * Looks up a key as the transaction sees it, and copies its value as `bristlecone_get` does. After an error the transaction
 * goes on.
 */
int bristlecone_transaction_get(const struct bristlecone_transaction *transaction,
                                const struct bristlecone_tree *tree,
                                const void *key,
                                size_t key_bytes,
                                void *value,
                                size_t capacity,
                                size_t *value_bytes);

/**
 * Has a transaction write a key's value. After an error it goes on without this change.
 */
int bristlecone_transaction_put(const struct bristlecone_transaction *transaction,
                                const struct bristlecone_tree *tree,
                                const void *key,
                                size_t key_bytes,
                                const void *value,
                                size_t value_bytes);

/**
 * Has a transaction remove a key, if it is there. After an error it goes on without this change.
 */
int bristlecone_transaction_remove(const struct bristlecone_transaction *transaction,
                                   const struct bristlecone_tree *tree,
                                   const void *key,
                                   size_t key_bytes);

/**
 * Looks up a key of a tree of `u64` keys and values as the transaction sees it. After any error `*value` is as it was.
 */
int bristlecone_transaction_get_u64(const struct bristlecone_transaction *transaction,
                                    const struct bristlecone_tree *tree,
                                    uint64_t key,
                                    uint64_t *value);

/**
 * Has a transaction write a key's value, in a tree of `u64` keys and values. After an error it goes on without this change.
 */
int bristlecone_transaction_put_u64(const struct bristlecone_transaction *transaction,
                                    const struct bristlecone_tree *tree,
                                    uint64_t key,
                                    uint64_t value);

/**
 * Has a transaction remove a key, if it is there, of a tree of `u64` keys and values. After an error it goes on without
 * this change.
 */
int bristlecone_transaction_remove_u64(const struct bristlecone_transaction *transaction,
                                       const struct bristlecone_tree *tree,
                                       uint64_t key);

/**
 * Shows the items of a range as the transaction sees them, ascending, until `show` returns anything but 0. The callback
 * must not use the transaction. Damage ends it early, and then the commit returns it.
 */
int bristlecone_transaction_scan(const struct bristlecone_transaction *transaction,
                                 const struct bristlecone_tree *tree,
                                 const struct bristlecone_range *range,
                                 bristlecone_show_item show,
                                 void *context);

/**
 * Makes the changes of a transaction in one step, if nothing that it read has changed meanwhile, and closes it.
 *
 * After `BRISTLECONE_OK` they are durable, and after a crash all of them are made or none. After an error nothing has
 * changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open: `BRISTLECONE_CONFLICT` if others were faster, and
 * the whole transaction is to be done again from its begin. The handle is closed then, too, except after
 * `BRISTLECONE_IN_USE` (another thread is in a call on it), `BRISTLECONE_FORKED` and for what is no transaction.
 */
int bristlecone_transaction_commit(struct bristlecone_transaction *transaction);

/**
 * Forgets a transaction: nothing changes. After an error it is open as before.
 */
int bristlecone_transaction_rollback(struct bristlecone_transaction *transaction);

/**
 * Opens the tree of this name with keys and values of these kinds, or creates it, with the default design.
 *
 * Kinds are "u64", "str", "bytes", …: the table at the head of this header has them all. A tree of other kinds is
 * `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is as it was; if the tree was to be created it
 * is there wholly or not at all.
 */
int bristlecone_tree_open_or_create(const struct bristlecone_pool *pool,
                                    const char *name,
                                    const char *key_kind,
                                    const char *value_kind,
                                    struct bristlecone_tree **tree);

/**
 * Opens the tree of this name, whatever its kinds are: `bristlecone_tree_get_info` tells. There may be several handles to a
 * tree; each has to be closed.
 *
 * Returns `BRISTLECONE_ABSENT` if there is none. After an error there is no handle, and `*tree` is as it was.
 */
int bristlecone_tree_open(const struct bristlecone_pool *pool,
                          const char *name,
                          struct bristlecone_tree **tree);

/**
 * Creates a tree with keys and values of these kinds, of a design and with its options; null is the defaults.
 *
 * A tree that exists is `BRISTLECONE_USAGE`. After an error there is no handle, and `*tree` is as it was; the tree
 * is there wholly or not at all.
 */
int bristlecone_tree_create(const struct bristlecone_pool *pool,
                            const char *name,
                            const char *key_kind,
                            const char *value_kind,
                            const struct bristlecone_tree_options *tree_options,
                            struct bristlecone_tree **tree);

/**
 * Closes a handle to a tree. Everything that was written stays; iterators that are open go on.
 *
 * After an error the handle is open as before: `BRISTLECONE_IN_USE` while a call of another thread on it does not end.
 */
int bristlecone_tree_close(struct bristlecone_tree *tree);

/**
 * Writes what is known about a tree. After an error `*info` is as it was.
 */
int bristlecone_tree_get_info(const struct bristlecone_tree *tree, struct bristlecone_tree_info *info);

/**
 * Counts the items of a tree; exact while no thread writes. After an error `*items` is as it was.
 */
int bristlecone_tree_len(const struct bristlecone_tree *tree, uint64_t *items);

/**
 * Verifies everything that a tree reaches, and shows what is wrong. Exact only while no thread writes.
 *
 * Returns `BRISTLECONE_FAILED` if anything is. Nothing is changed.
 */
int bristlecone_tree_check(const struct bristlecone_tree *tree, bristlecone_show_finding show, void *context);

/**
 * Shows what reads came across that is wrong since the tree was opened, without looking for more.
 *
 * Returns `BRISTLECONE_FAILED` if there is anything. Nothing is changed.
 */
int bristlecone_tree_damage(const struct bristlecone_tree *tree,
                            bristlecone_show_finding show,
                            void *context);

/**
 * Looks a key up: `*value` is its value. Like all calls that end in `_u64`, for trees whose keys and values are `u64`;
 * others are `BRISTLECONE_USAGE`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there; after any error `*value` is as it was.
 */
int bristlecone_get_u64(const struct bristlecone_tree *tree,
                        uint64_t key,
                        uint64_t *value);

/**
 * Writes a key's value, whether the key is there or not. Durable when it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
 */
int bristlecone_put_u64(const struct bristlecone_tree *tree, uint64_t key, uint64_t value);

/**
 * Inserts a key that is absent. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_PRESENT` if the key is there: `*found`, which may be null, is its value then. After an
 * error nothing has changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
 */
int bristlecone_insert_u64(const struct bristlecone_tree *tree,
                           uint64_t key,
                           uint64_t value,
                           uint64_t *found);

/**
 * Replaces the value of a key that is there; `*old`, which may be null, is the value it had. Durable when it returns
 * `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there. After an error nothing has changed, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
 */
int bristlecone_update_u64(const struct bristlecone_tree *tree,
                           uint64_t key,
                           uint64_t value,
                           uint64_t *old);

/**
 * Removes a key; `*old`, which may be null, is the value it had. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there. After an error nothing has changed, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
 */
int bristlecone_remove_u64(const struct bristlecone_tree *tree, uint64_t key, uint64_t *old);

/**
 * Changes a key from what is expected to what is wanted, in one atomic step; null stands for an absent key. So
 * it inserts (`expected` null), replaces, removes (`wanted` null), or only compares (both null). Durable when it returns
 * `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_DIFFERS` if the key is not as expected: `*is_there` says whether it is there, and `*found` is its
 * value then; both may be null. After an error nothing has changed, but for `BRISTLECONE_DURABILITY_LOST`, which
 * leaves that open.
 */
int bristlecone_compare_and_swap_u64(const struct bristlecone_tree *tree,
                                     uint64_t key,
                                     const uint64_t *expected,
                                     const uint64_t *wanted,
                                     int32_t *is_there,
                                     uint64_t *found);

/**
 * Writes a key's value, whether the key is there or not. Durable when it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
 */
int bristlecone_put(const struct bristlecone_tree *tree,
                    const void *key,
                    size_t key_bytes,
                    const void *value,
                    size_t value_bytes);

/**
 * Writes a key's value, whether the key is there or not, and shows the value that it had, if it had one. Durable when
 * it returns `BRISTLECONE_OK`.
 *
 * After an error nothing has changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open. A value that was there
 * and is nothing of the tree's kind is replaced, and not shown: it counts as absent.
 */
int bristlecone_exchange(const struct bristlecone_tree *tree,
                         const void *key,
                         size_t key_bytes,
                         const void *value,
                         size_t value_bytes,
                         bristlecone_show show,
                         void *context);

/**
 * Inserts a key that is absent. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_PRESENT` if the key is there, and shows its value. After an error nothing has changed, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
 */
int bristlecone_insert(const struct bristlecone_tree *tree,
                       const void *key,
                       size_t key_bytes,
                       const void *value,
                       size_t value_bytes,
                       bristlecone_show show,
                       void *context);

/**
 * Replaces the value of a key that is there, and shows the value that it had. Durable when it returns
 * `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there. After an error nothing has changed, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves that open. A value that was there and is nothing of the tree's kind is
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
 * Removes a key, and shows the value that it had. Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_ABSENT` if the key is not there. After an error nothing has changed, but for
 * `BRISTLECONE_DURABILITY_LOST`, which leaves that open. A value that was there and is nothing of the tree's kind is
 * removed, and counts as absent.
 */
int bristlecone_remove(const struct bristlecone_tree *tree,
                       const void *key,
                       size_t key_bytes,
                       bristlecone_show show,
                       void *context);

/**
 * Changes a key from what is expected to what is wanted, in one atomic step; a null pointer without a length stands
 * for an absent key, and an empty value has a pointer that is not null. So it inserts (`expected` null), replaces,
 * removes (`wanted` null), or only compares (both null). Durable when it returns `BRISTLECONE_OK`.
 *
 * Returns `BRISTLECONE_DIFFERS` if the key is not as expected, and shows its value, unless it is absent. After an error
 * nothing has changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open.
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
