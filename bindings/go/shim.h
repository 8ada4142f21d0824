// The C library as Go calls it: handles are numbers, and a result contains the message, which C keeps by thread.
#ifndef BRISTLECONE_GO_SHIM_H
#define BRISTLECONE_GO_SHIM_H

#include <bristlecone.h>

// The result of a call. The caller frees `data` and `message`.
typedef struct {
    int status;
    // Whether `word` or `data` is a value.
    int there;
    uint64_t word;
    void *data;
    size_t bytes;
    char *message;
} br_result;

// The types of handles.
enum { BR_POOL, BR_TREE, BR_ITER, BR_BATCH, BR_SNAPSHOT, BR_TRANSACTION, BR_CHANGES };

// Operations on one key.
enum { BR_PUT, BR_EXCHANGE, BR_INSERT, BR_UPDATE, BR_REMOVE, BR_SWAP, BR_EXPECT };

// A key or a value. A null pointer without a length is an absent one.
typedef struct {
    const void *data;
    size_t bytes;
} br_bytes;

br_result br_open(const char *path, uint32_t flags, uint32_t domain, uint64_t max_bytes, size_t threads, uint32_t durability, uint32_t interval_ms, const char *journal, uint64_t cursor_limit);
// Ends a handle: closes it, discards a batch, or rolls a transaction back. It ends the waiting of a stream of changes first.
br_result br_close(int type, uintptr_t handle);
br_result br_commit(int type, uintptr_t handle);
// Begins a batch, a snapshot of at most `max_bytes`, or a transaction: `word` is its handle.
br_result br_begin(int type, uintptr_t pool, size_t max_bytes);
br_result br_snapshot_bytes(uintptr_t snapshot);

br_result br_pool_info(uintptr_t pool, bristlecone_pool_info *info);
br_result br_journal_status(uintptr_t pool, bristlecone_journal_status *status);
// `data` contains four strings for each tree, with their zeros.
br_result br_trees(uintptr_t pool);
// Issues of a pool, or of a tree: `data` contains two strings for each, with their zeros.
br_result br_check(int type, uintptr_t handle);
enum { BR_SYNC, BR_CHECKPOINT, BR_PRUNE, BR_PREFAULT, BR_DROP, BR_CLEAR, BR_RENAME, BR_DROP_CURSOR };
br_result br_manage(int what, uintptr_t pool, const char *name, const char *to, uint64_t bytes);

// Opens a stream of changes at a cursor, or, if that is null, from an LSN on.
br_result br_changes(uintptr_t pool, const char *cursor, uint64_t from);
// Returns changes of one entry: `there` says whether the last of them is among them. `data` contains for each of them the
// words LSN, LSN behind the entry, time, what, existed (-1: unknown), number of the tree, new number of the tree, and the
// lengths of six parts, which follow: the tree's name, its kinds, key, value, and new name. An absent new name has the
// length ~0. After BRISTLECONE_ABSENT no change became durable in time.
br_result br_changes_next(uintptr_t changes, int64_t timeout_ms);
br_result br_changes_advance(uintptr_t changes, uint64_t lsn);
// Creates a cursor; `word` is its LSN.
br_result br_create_cursor(uintptr_t pool, const char *name, uint64_t lsn);
// `data` contains for each cursor the words LSN, pinned bytes, time, dropped, and the length of its name, which follows.
br_result br_cursors(uintptr_t pool);

br_result br_tree_open(uintptr_t pool, const char *name, const char *keys, const char *values);
br_result br_tree_create(uintptr_t pool, const char *name, const char *keys, const char *values, const char *design, const bristlecone_option *options, size_t count, uint64_t expire_after_ms);
br_result br_tree_info(uintptr_t tree, bristlecone_tree_info *info);
br_result br_len(uintptr_t tree);

br_result br_word_get(int type, uintptr_t of, uintptr_t tree, uint64_t key);
br_result br_word_write(int what, uintptr_t tree, uint64_t key, uint64_t value, int is_expected, uint64_t expected, int is_wanted);

// Looks a key up in a tree, a snapshot or a transaction: `bytes` is the length of the value, which is copied if it fits.
br_result br_get(int type, uintptr_t of, uintptr_t tree, const void *key, size_t key_bytes, void *to, size_t capacity);
br_result br_contains(uintptr_t tree, const void *key, size_t key_bytes);
br_result br_write(int what, uintptr_t tree, const void *key, size_t key_bytes, const void *value, size_t value_bytes, const void *expected, size_t expected_bytes);
// Adds a change to a batch or a transaction.
br_result br_change(int what, int type, uintptr_t to, uintptr_t tree, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

// Keys and values lie behind each other in `data`, with lengths. Values of present keys come with their index.
br_result br_get_many(uintptr_t tree, const void *keys, const uint64_t *key_bytes, size_t count);
br_result br_put_many(uintptr_t tree, const void *keys, const uint64_t *key_bytes, const void *values, const uint64_t *value_bytes, size_t count);
br_result br_remove_many(uintptr_t tree, const void *keys, const uint64_t *key_bytes, size_t count);
// Removes a range, or the keys that begin with `from`, in one step. `word` counts them.
br_result br_remove_range(uintptr_t tree, const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags, int is_prefix);
br_result br_get_many_words(uintptr_t tree, const uint64_t *keys, size_t count, uint64_t *values, uint8_t *found);
br_result br_put_many_words(uintptr_t tree, const uint64_t *keys, const uint64_t *values, size_t count);

// Opens an iterator over a tree, or a snapshot unless it is 0.
br_result br_iter(uintptr_t tree, uintptr_t snapshot, const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags);
br_result br_iter_prefix(uintptr_t tree, const void *prefix, size_t prefix_bytes);
// Returns up to `items` items: `data` contains the two lengths, the key and the value of each. `word` counts them.
br_result br_next(uintptr_t iter, int is_back, size_t items);

// Trees whose values expire. `word` is a handle that shows only live values.
br_result br_tree_expiring(uintptr_t tree);
br_result br_expiring_write(int what, uintptr_t tree, const void *key, size_t key_bytes, const void *value, size_t value_bytes, const void *expected, size_t expected_bytes, uint64_t expires_ms);
// `word` is the expiry, or the previous one.
br_result br_expiry(uintptr_t tree, const void *key, size_t key_bytes);
br_result br_set_expiry(uintptr_t tree, const void *key, size_t key_bytes, uint64_t expires_ms);
// `word` counts the removed entries, and `there` says whether the end was reached.
br_result br_remove_expired(uintptr_t tree, uint64_t budget, uint64_t *examined);

br_result br_transaction_scan(uintptr_t transaction, uintptr_t tree, const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags, size_t items);

#endif
