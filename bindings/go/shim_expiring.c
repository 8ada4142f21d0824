#include "buffer.h"

br_result br_tree_expiring(uintptr_t tree)
{
    bristlecone_tree *live = NULL;
    int status = bristlecone_tree_expiring((const bristlecone_tree *)tree, &live);
    return with_word(status, (uintptr_t)live);
}

br_result br_expiring_write(int what, uintptr_t handle, const void *key, size_t key_bytes, const void *value, size_t value_bytes, const void *expected, size_t expected_bytes, uint64_t expires_ms)
{
    const bristlecone_tree *tree = (const bristlecone_tree *)handle;
    buffer old = {0};
    int status;
    switch (what) {
    case BR_PUT: return result(bristlecone_expiring_put(tree, key, key_bytes, value, value_bytes, expires_ms));
    case BR_EXCHANGE: status = bristlecone_expiring_exchange(tree, key, key_bytes, value, value_bytes, expires_ms, keep, &old); break;
    case BR_INSERT: status = bristlecone_expiring_insert(tree, key, key_bytes, value, value_bytes, expires_ms, keep, &old); break;
    case BR_UPDATE: status = bristlecone_expiring_update(tree, key, key_bytes, value, value_bytes, expires_ms, keep, &old); break;
    default: status = bristlecone_expiring_compare_and_swap(tree, key, key_bytes, expected, expected_bytes, value, value_bytes, expires_ms, keep, &old);
    }
    return with_data(status, &old);
}

br_result br_expiry(uintptr_t tree, const void *key, size_t key_bytes)
{
    uint64_t at = 0;
    int status = bristlecone_expiry((const bristlecone_tree *)tree, key, key_bytes, &at);
    return with_word(status, at);
}

br_result br_set_expiry(uintptr_t tree, const void *key, size_t key_bytes, uint64_t expires_ms)
{
    uint64_t previous = 0;
    int status = bristlecone_set_expiry((const bristlecone_tree *)tree, key, key_bytes, expires_ms, &previous);
    return with_word(status, previous);
}

br_result br_remove_expired(uintptr_t tree, uint64_t budget, uint64_t *examined)
{
    uint64_t removed = 0;
    int complete = 0;
    int status = bristlecone_remove_expired((const bristlecone_tree *)tree, budget, examined, &removed, &complete);
    br_result of = with_word(status, removed);
    of.there = complete;
    return of;
}
