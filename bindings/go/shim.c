#include "buffer.h"

static br_result with_handle(int status, const void *handle)
{
    br_result of = described(status);
    of.word = (uintptr_t)handle;
    return of;
}

static void keep_at(void *context, size_t index, const void *value, size_t bytes)
{
    const uint64_t head[2] = {index, bytes};
    append(context, head, sizeof(head));
    append(context, value, bytes);
    ((buffer *)context)->items++;
}

br_result br_open(const char *path, uint32_t flags, uint32_t domain, uint64_t max_bytes, size_t threads, uint32_t durability, uint32_t interval_ms, const char *journal, uint64_t cursor_limit)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    options.flags = flags;
    options.domain = domain;
    options.max_bytes = max_bytes;
    options.recovery_threads = threads;
    options.durability = durability;
    options.interval_ms = interval_ms;
    options.journal = journal;
    options.cursor_limit_bytes = cursor_limit;
    int status = bristlecone_pool_open(path, &options, &pool);
    return with_handle(status, pool);
}

br_result br_close(int type, uintptr_t handle)
{
    switch (type) {
    case BR_POOL: return result(bristlecone_pool_close((bristlecone_pool *)handle));
    case BR_TREE: return result(bristlecone_tree_close((bristlecone_tree *)handle));
    case BR_ITER: return result(bristlecone_iter_close((bristlecone_iter *)handle));
    case BR_BATCH: return result(bristlecone_batch_discard((bristlecone_batch *)handle));
    case BR_SNAPSHOT: return result(bristlecone_snapshot_close((bristlecone_snapshot *)handle));
    case BR_CHANGES:
        // A stream that another thread waits on cannot be closed.
        bristlecone_changes_stop((bristlecone_changes *)handle);
        return result(bristlecone_changes_close((bristlecone_changes *)handle));
    default: return result(bristlecone_transaction_rollback((bristlecone_transaction *)handle));
    }
}

br_result br_commit(int type, uintptr_t handle)
{
    if (type == BR_BATCH) return result(bristlecone_batch_commit((bristlecone_batch *)handle));
    return result(bristlecone_transaction_commit((bristlecone_transaction *)handle));
}

br_result br_begin(int type, uintptr_t pool, size_t max_bytes)
{
    const bristlecone_pool *of = (const bristlecone_pool *)pool;
    bristlecone_batch *batch = NULL;
    bristlecone_snapshot *snapshot = NULL;
    bristlecone_transaction *transaction = NULL;
    int status;
    switch (type) {
    case BR_BATCH: status = bristlecone_batch_begin(of, &batch); return with_handle(status, batch);
    case BR_SNAPSHOT: status = bristlecone_snapshot_open(of, max_bytes, &snapshot); return with_handle(status, snapshot);
    default: status = bristlecone_transaction_begin(of, &transaction); return with_handle(status, transaction);
    }
}

br_result br_snapshot_bytes(uintptr_t snapshot)
{
    size_t kept = 0;
    int status = bristlecone_snapshot_bytes((const bristlecone_snapshot *)snapshot, &kept);
    return with_word(status, kept);
}

br_result br_pool_info(uintptr_t pool, bristlecone_pool_info *info)
{
    info->struct_bytes = sizeof(*info);
    return result(bristlecone_pool_get_info((const bristlecone_pool *)pool, info));
}

br_result br_journal_status(uintptr_t pool, bristlecone_journal_status *status)
{
    status->struct_bytes = sizeof(*status);
    return described(bristlecone_pool_get_journal_status((const bristlecone_pool *)pool, status));
}

static void keep_tree(void *context, const char *name, const char *keys, const char *values, const char *design)
{
    const char *strings[4] = {name, keys, values, design};
    for (int at = 0; at < 4; at++) append(context, strings[at], strlen(strings[at]) + 1);
    ((buffer *)context)->items++;
}

static void keep_issue(void *context, const char *location, const char *what)
{
    append(context, location, strlen(location) + 1);
    append(context, what, strlen(what) + 1);
    ((buffer *)context)->items++;
}

br_result br_trees(uintptr_t pool)
{
    buffer to = {0};
    int status = bristlecone_pool_trees((const bristlecone_pool *)pool, keep_tree, &to);
    return with_data(status, &to);
}

br_result br_check(int type, uintptr_t handle)
{
    buffer to = {0};
    int status = type == BR_POOL ? bristlecone_pool_check((const bristlecone_pool *)handle, keep_issue, &to)
                                 : bristlecone_tree_check((const bristlecone_tree *)handle, keep_issue, &to);
    return with_data(status, &to);
}

br_result br_manage(int what, uintptr_t handle, const char *name, const char *to, uint64_t bytes)
{
    const bristlecone_pool *pool = (const bristlecone_pool *)handle;
    switch (what) {
    case BR_SYNC: return described(bristlecone_pool_sync(pool));
    case BR_CHECKPOINT: return described(bristlecone_pool_checkpoint(pool));
    case BR_PRUNE: return described(bristlecone_pool_prune_journal(pool));
    case BR_PREFAULT: return described(bristlecone_pool_prefault(pool, bytes));
    case BR_DROP: return described(bristlecone_pool_drop_tree(pool, name));
    case BR_CLEAR: return described(bristlecone_pool_clear_tree(pool, name));
    case BR_DROP_CURSOR: return described(bristlecone_pool_drop_cursor(pool, name));
    default: return described(bristlecone_pool_rename_tree(pool, name, to));
    }
}

br_result br_changes(uintptr_t handle, const char *cursor, uint64_t from)
{
    const bristlecone_pool *pool = (const bristlecone_pool *)handle;
    bristlecone_changes *changes = NULL;
    int status = cursor ? bristlecone_changes_open_cursor(pool, cursor, &changes) : bristlecone_changes_open(pool, from, &changes);
    return with_handle(status, changes);
}

static void append_change(buffer *to, const bristlecone_change *of)
{
    const char *names[3] = {of->tree, of->key_kind, of->value_kind};
    const uint64_t words[13] = {of->lsn, of->next_lsn, of->time_ms, (uint64_t)of->what, (uint64_t)(int64_t)of->existed, of->tree_id,
        of->new_tree_id, strlen(names[0]), strlen(names[1]), strlen(names[2]), of->key_bytes, of->value_bytes,
        of->renamed_to ? strlen(of->renamed_to) : UINT64_MAX};
    append(to, words, sizeof(words));
    for (int at = 0; at < 3; at++) append(to, names[at], strlen(names[at]));
    append(to, of->key, of->key_bytes);
    append(to, of->value, of->value_bytes);
    if (of->renamed_to) append(to, of->renamed_to, strlen(of->renamed_to));
    to->items++;
}

br_result br_changes_next(uintptr_t handle, int64_t timeout_ms)
{
    const bristlecone_changes *changes = (const bristlecone_changes *)handle;
    bristlecone_change change = BRISTLECONE_CHANGE_INIT;
    buffer to = {.items_max = SIZE_MAX};
    int status = BRISTLECONE_OK;
    while (status == BRISTLECONE_OK && !change.is_last && !is_full(&to)) {
        status = bristlecone_changes_next(changes, timeout_ms, &change);
        if (status == BRISTLECONE_OK) append_change(&to, &change);
    }
    br_result of = with_data(status, &to);
    of.there = change.is_last;
    return of;
}

br_result br_changes_advance(uintptr_t changes, uint64_t lsn)
{
    return described(bristlecone_changes_advance((const bristlecone_changes *)changes, lsn));
}

br_result br_create_cursor(uintptr_t pool, const char *name, uint64_t lsn)
{
    uint64_t begun = 0;
    br_result of = described(bristlecone_pool_create_cursor((const bristlecone_pool *)pool, name, lsn, &begun));
    of.word = begun;
    return of;
}

static void keep_cursor(void *context, const bristlecone_cursor *cursor)
{
    const uint64_t words[5] = {cursor->lsn, cursor->pinned_bytes, cursor->time_ms, (uint64_t)cursor->dropped, strlen(cursor->name)};
    append(context, words, sizeof(words));
    append(context, cursor->name, strlen(cursor->name));
    ((buffer *)context)->items++;
}

br_result br_cursors(uintptr_t pool)
{
    buffer to = {0};
    int status = bristlecone_pool_cursors((const bristlecone_pool *)pool, keep_cursor, &to);
    br_result of = with_data(status, &to);
    if (status == BRISTLECONE_ABSENT && !of.message) of.message = strdup(bristlecone_errmsg());
    return of;
}

br_result br_tree_open(uintptr_t handle, const char *name, const char *keys, const char *values)
{
    const bristlecone_pool *pool = (const bristlecone_pool *)handle;
    bristlecone_tree *tree = NULL;
    int status = keys ? bristlecone_tree_open_or_create(pool, name, keys, values, &tree) : bristlecone_tree_open(pool, name, &tree);
    return with_handle(status, tree);
}

br_result br_tree_create(uintptr_t pool, const char *name, const char *keys, const char *values, const char *design, const bristlecone_option *options, size_t count, uint64_t expire_after_ms)
{
    bristlecone_tree_options how = BRISTLECONE_TREE_OPTIONS_INIT;
    bristlecone_tree *tree = NULL;
    how.design = design;
    how.options = options;
    how.option_count = count;
    how.expire_after_ms = expire_after_ms;
    int status = bristlecone_tree_create((const bristlecone_pool *)pool, name, keys, values, &how, &tree);
    return with_handle(status, tree);
}

br_result br_tree_info(uintptr_t tree, bristlecone_tree_info *info)
{
    info->struct_bytes = sizeof(*info);
    return result(bristlecone_tree_get_info((const bristlecone_tree *)tree, info));
}

br_result br_len(uintptr_t tree)
{
    uint64_t items = 0;
    int status = bristlecone_tree_len((const bristlecone_tree *)tree, &items);
    return with_word(status, items);
}

br_result br_word_get(int type, uintptr_t of, uintptr_t handle, uint64_t key)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    uint64_t value = 0;
    int status;
    switch (type) {
    case BR_TREE: status = bristlecone_get_u64(tree, key, &value); break;
    case BR_SNAPSHOT: status = bristlecone_snapshot_get((const bristlecone_snapshot *)of, tree, &key, sizeof key, &value, sizeof value, NULL); break;
    default: status = bristlecone_transaction_get((const bristlecone_transaction *)of, tree, &key, sizeof key, &value, sizeof value, NULL);
    }
    return with_word(status, value);
}

br_result br_word_write(int what, uintptr_t handle, uint64_t key, uint64_t value, int is_expected, uint64_t expected, int is_wanted)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    uint64_t found = 0;
    int32_t is_there = 1;
    int status;
    switch (what) {
    case BR_PUT: status = bristlecone_put_u64(tree, key, value); break;
    case BR_INSERT: status = bristlecone_insert_u64(tree, key, value, &found); break;
    case BR_UPDATE: status = bristlecone_update_u64(tree, key, value, &found); break;
    case BR_REMOVE: status = bristlecone_remove_u64(tree, key, &found); break;
    default: status = bristlecone_compare_and_swap_u64(tree, key, is_expected ? &expected : NULL, is_wanted ? &value : NULL, &is_there, &found);
    }
    br_result of = with_word(status, found);
    of.there = is_there;
    return of;
}

br_result br_get(int type, uintptr_t of, uintptr_t handle, const void *key, size_t key_bytes, void *to, size_t capacity)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    size_t bytes = 0;
    int status;
    switch (type) {
    case BR_TREE: status = bristlecone_get(tree, key, key_bytes, to, capacity, &bytes); break;
    case BR_SNAPSHOT: status = bristlecone_snapshot_get((const bristlecone_snapshot *)of, tree, key, key_bytes, to, capacity, &bytes); break;
    default: status = bristlecone_transaction_get((const bristlecone_transaction *)of, tree, key, key_bytes, to, capacity, &bytes);
    }
    br_result got = result(status);
    got.bytes = bytes;
    return got;
}

br_result br_contains(uintptr_t tree, const void *key, size_t key_bytes)
{
    return result(bristlecone_contains((const bristlecone_tree *)tree, key, key_bytes));
}

br_result br_write(int what, uintptr_t handle, const void *key, size_t key_bytes, const void *value, size_t value_bytes, const void *expected, size_t expected_bytes)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    buffer old = {0};
    int status;
    switch (what) {
    case BR_PUT: return result(bristlecone_put(tree, key, key_bytes, value, value_bytes));
    case BR_EXCHANGE: status = bristlecone_exchange(tree, key, key_bytes, value, value_bytes, keep, &old); break;
    case BR_INSERT: status = bristlecone_insert(tree, key, key_bytes, value, value_bytes, keep, &old); break;
    case BR_UPDATE: status = bristlecone_update(tree, key, key_bytes, value, value_bytes, keep, &old); break;
    case BR_REMOVE: status = bristlecone_remove(tree, key, key_bytes, keep, &old); break;
    default: status = bristlecone_compare_and_swap(tree, key, key_bytes, expected, expected_bytes, value, value_bytes, keep, &old);
    }
    return with_data(status, &old);
}

br_result br_change(int what, int type, uintptr_t to, uintptr_t handle, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    const bristlecone_batch *batch = (const bristlecone_batch *)to;
    const bristlecone_transaction *transaction = (const bristlecone_transaction *)to;
    if (type == BR_TRANSACTION) {
        return result(what == BR_PUT ? bristlecone_transaction_put(transaction, tree, key, key_bytes, value, value_bytes)
                                     : bristlecone_transaction_remove(transaction, tree, key, key_bytes));
    }
    switch (what) {
    case BR_PUT: return result(bristlecone_batch_put(batch, tree, key, key_bytes, value, value_bytes));
    case BR_REMOVE: return result(bristlecone_batch_remove(batch, tree, key, key_bytes));
    default: return result(bristlecone_batch_expect(batch, tree, key, key_bytes, value, value_bytes));
    }
}

// Points to each of `count` keys or values that lie behind each other. The caller frees the array.
static bristlecone_bytes *split(const void *data, const uint64_t *bytes, size_t count)
{
    bristlecone_bytes *parts = calloc(count ? count : 1, sizeof(*parts));
    const char *at = data;
    for (size_t part = 0; parts && part < count; part++) {
        parts[part].data = at;
        parts[part].bytes = bytes[part];
        at += bytes[part];
    }
    return parts;
}

static br_result out_of_memory(void)
{
    br_result of = {0};
    of.status = BRISTLECONE_FAILED;
    of.message = strdup("out of memory");
    return of;
}

br_result br_get_many(uintptr_t tree, const void *keys, const uint64_t *key_bytes, size_t count)
{
    buffer to = {0};
    bristlecone_bytes *parts = split(keys, key_bytes, count);
    if (!parts) return out_of_memory();
    int status = bristlecone_get_many((const bristlecone_tree *)tree, parts, count, keep_at, &to);
    free(parts);
    return with_data(status, &to);
}

br_result br_put_many(uintptr_t tree, const void *keys, const uint64_t *key_bytes, const void *values, const uint64_t *value_bytes, size_t count)
{
    size_t done = 0;
    bristlecone_bytes *of_keys = split(keys, key_bytes, count), *of_values = split(values, value_bytes, count);
    int status = of_keys && of_values ? bristlecone_put_many((const bristlecone_tree *)tree, of_keys, of_values, count, &done) : -1;
    free(of_keys);
    free(of_values);
    return status < 0 ? out_of_memory() : with_word(status, done);
}

br_result br_remove_many(uintptr_t tree, const void *keys, const uint64_t *key_bytes, size_t count)
{
    size_t done = 0;
    bristlecone_bytes *parts = split(keys, key_bytes, count);
    if (!parts) return out_of_memory();
    int status = bristlecone_remove_many((const bristlecone_tree *)tree, parts, count, &done);
    free(parts);
    return with_word(status, done);
}

static bristlecone_range bounds(const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags)
{
    bristlecone_range range = BRISTLECONE_RANGE_INIT;
    range.from = from;
    range.from_bytes = from_bytes;
    range.to = to;
    range.to_bytes = to_bytes;
    range.flags = flags;
    return range;
}

br_result br_remove_range(uintptr_t tree, const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags, int is_prefix)
{
    uint64_t removed = 0;
    const bristlecone_range range = bounds(from, from_bytes, to, to_bytes, flags);
    int status = is_prefix ? bristlecone_remove_prefix((const bristlecone_tree *)tree, from, from_bytes, &removed)
                           : bristlecone_remove_range((const bristlecone_tree *)tree, &range, &removed);
    return with_word(status, removed);
}

br_result br_get_many_words(uintptr_t tree, const uint64_t *keys, size_t count, uint64_t *values, uint8_t *found)
{
    return result(bristlecone_get_many_u64((const bristlecone_tree *)tree, keys, count, values, found));
}

br_result br_put_many_words(uintptr_t tree, const uint64_t *keys, const uint64_t *values, size_t count)
{
    size_t done = 0;
    int status = bristlecone_put_many_u64((const bristlecone_tree *)tree, keys, values, count, &done);
    return with_word(status, done);
}

br_result br_iter(uintptr_t handle, uintptr_t snapshot, const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    bristlecone_iter *iter = NULL;
    const bristlecone_range range = bounds(from, from_bytes, to, to_bytes, flags);
    int status = snapshot ? bristlecone_snapshot_iter_open((const bristlecone_snapshot *)snapshot, tree, &range, &iter)
                          : bristlecone_iter_open(tree, &range, &iter);
    return with_handle(status, iter);
}

br_result br_iter_prefix(uintptr_t tree, const void *prefix, size_t prefix_bytes)
{
    bristlecone_iter *iter = NULL;
    int status = bristlecone_iter_open_prefix((const bristlecone_tree *)tree, prefix, prefix_bytes, &iter);
    return with_handle(status, iter);
}

br_result br_next(uintptr_t handle, int is_back, size_t items)
{
    const bristlecone_iter *iter = (const bristlecone_iter *)handle;
    buffer to = {.items_max = items};
    int status = BRISTLECONE_OK;
    while (status == BRISTLECONE_OK && !is_full(&to)) {
        const void *key = NULL, *value = NULL;
        size_t key_bytes = 0, value_bytes = 0;
        status = is_back ? bristlecone_iter_next_back(iter, &key, &key_bytes, &value, &value_bytes)
                         : bristlecone_iter_next(iter, &key, &key_bytes, &value, &value_bytes);
        if (status == BRISTLECONE_OK) append_item(&to, key, key_bytes, value, value_bytes);
    }
    return with_data(status, &to);
}

static int keep_item(void *context, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    append_item(context, key, key_bytes, value, value_bytes);
    return is_full(context);
}

br_result br_transaction_scan(uintptr_t transaction, uintptr_t tree, const void *from, size_t from_bytes, const void *to, size_t to_bytes, uint32_t flags, size_t items)
{
    buffer collected = {.items_max = items};
    const bristlecone_range range = bounds(from, from_bytes, to, to_bytes, flags);
    int status = bristlecone_transaction_scan((const bristlecone_transaction *)transaction, (const bristlecone_tree *)tree, &range, keep_item, &collected);
    return with_data(status, &collected);
}
