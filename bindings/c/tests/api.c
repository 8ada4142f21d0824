/* Every call of the library, used correctly and incorrectly. */
#include "check.h"

#include <limits.h>

/* Arguments of a callback. */
struct shown {
    size_t times;
    size_t bytes;
    char data[256];
};

static void show(void *context, const void *value, size_t bytes)
{
    struct shown *shown = context;
    CHECK(bytes <= sizeof(shown->data));
    memcpy(shown->data, value, bytes);
    shown->bytes = bytes;
    shown->times++;
}

static int is(const struct shown *shown, const char *text)
{
    return shown->bytes == strlen(text) && memcmp(shown->data, text, shown->bytes) == 0;
}

static void messages(void)
{
    CHECK(bristlecone_abi_version() == BRISTLECONE_ABI_VERSION);
    CHECK(strlen(bristlecone_version()) >= 5);
    CHECK(strcmp(bristlecone_errmsg(), "") == 0);
    CHECK(strcmp(bristlecone_strerror(BRISTLECONE_ABSENT), "there is none") == 0);
    CHECK(strcmp(bristlecone_strerror(INT_MIN), "no status of this library") == 0);
    FAILS(bristlecone_pool_open("/dev/shm/bristlecone-c-none", NULL, NULL), BRISTLECONE_USAGE, "null");
    bristlecone_pool *pool = NULL;
    FAILS(bristlecone_pool_open("/dev/shm/bristlecone-c-none", NULL, &pool), BRISTLECONE_ABSENT, "create it first");
    FAILS(bristlecone_pool_open(NULL, NULL, &pool), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_pool_open("/etc/hostname", NULL, &pool), BRISTLECONE_CORRUPTED, "not a Bristlecone pool");
    CHECK(pool == NULL);
}

static void words(void)
{
    const char *path = scratch("words");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE_NEW);
    bristlecone_tree *tree = open_tree(pool, "squares", "u64", "u64");
    uint64_t value = 7, zero = 0, nine = 9, ten = 10;
    int there = 7;

    CHECK(bristlecone_get_u64(tree, 3, &value) == BRISTLECONE_ABSENT && value == 7);
    CHECK(strcmp(bristlecone_errmsg(), "there is none") == 0);
    OK(bristlecone_put_u64(tree, 3, 8));
    OK(bristlecone_put_u64(tree, 3, 9));
    OK(bristlecone_get_u64(tree, 3, &value));
    CHECK(value == 9);
    OK(bristlecone_get_u64(tree, 3, NULL));
    value = 7;
    FAILS(bristlecone_insert_u64(tree, 3, 10, &value), BRISTLECONE_PRESENT, "there already");
    CHECK(value == 9);
    OK(bristlecone_insert_u64(tree, UINT64_MAX, 0, NULL));
    OK(bristlecone_insert_u64(tree, 0, UINT64_MAX, &value));
    CHECK(bristlecone_update_u64(tree, 4, 16, &value) == BRISTLECONE_ABSENT && value == 9);
    OK(bristlecone_update_u64(tree, 3, 10, &value));
    CHECK(value == 9);

    CHECK(bristlecone_compare_and_swap_u64(tree, 3, &nine, &zero, &there, &value) == BRISTLECONE_DIFFERS);
    CHECK(there == 1 && value == 10);
    CHECK(bristlecone_compare_and_swap_u64(tree, 4, &nine, &zero, &there, &value) == BRISTLECONE_DIFFERS);
    CHECK(there == 0 && value == 10);
    OK(bristlecone_compare_and_swap_u64(tree, 3, &ten, &zero, NULL, NULL));
    OK(bristlecone_compare_and_swap_u64(tree, 3, &zero, NULL, &there, &value));
    OK(bristlecone_compare_and_swap_u64(tree, 3, NULL, &nine, &there, &value));
    OK(bristlecone_compare_and_swap_u64(tree, 4, NULL, NULL, &there, &value));
    OK(bristlecone_remove_u64(tree, 3, &value));
    CHECK(value == 9);
    CHECK(bristlecone_remove_u64(tree, 3, &value) == BRISTLECONE_ABSENT);

    /* The same tree, by bytes. */
    uint64_t key = UINT64_MAX;
    size_t bytes = 0;
    OK(bristlecone_get(tree, &key, sizeof(key), &value, sizeof(value), &bytes));
    CHECK(value == 0 && bytes == 8);
    FAILS(bristlecone_get(tree, &key, 4, &value, sizeof(value), &bytes), BRISTLECONE_USAGE, "4 bytes, where u64 has 8");
    FAILS(bristlecone_put(tree, &key, 8, &value, 9), BRISTLECONE_USAGE, "9 bytes, where u64 has 8");
    uint64_t items = 0;
    OK(bristlecone_tree_len(tree, &items));
    CHECK(items == 2);

    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void strings(void)
{
    const char *path = scratch("strings");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "names", "str", "bytes");
    struct shown shown = {0};
    char buffer[8] = "-------";
    size_t bytes = 77;

    CHECK(bristlecone_get(tree, "ada", 3, buffer, 8, &bytes) == BRISTLECONE_ABSENT && bytes == 77);
    OK(bristlecone_put(tree, "ada", 3, "countess", 8));
    OK(bristlecone_put(tree, "grace", 5, "", 0));
    OK(bristlecone_put(tree, "", 0, "nobody", 6));
    FAILS(bristlecone_get(tree, "ada", 3, buffer, 7, &bytes), BRISTLECONE_TOO_SMALL, "too small");
    CHECK(bytes == 8 && buffer[0] == '-');
    CHECK(bristlecone_get(tree, "ada", 3, NULL, 0, &bytes) == BRISTLECONE_TOO_SMALL && bytes == 8);
    OK(bristlecone_get(tree, "ada", 3, buffer, 8, NULL));
    CHECK(memcmp(buffer, "countess", 8) == 0);
    OK(bristlecone_get(tree, "grace", 5, NULL, 0, &bytes));
    CHECK(bytes == 0);
    OK(bristlecone_get_with(tree, "", 0, show, &shown));
    CHECK(shown.times == 1 && is(&shown, "nobody"));
    CHECK(bristlecone_get_with(tree, "x", 1, show, &shown) == BRISTLECONE_ABSENT && shown.times == 1);
    OK(bristlecone_contains(tree, "ada", 3));
    CHECK(bristlecone_contains(tree, "adam", 4) == BRISTLECONE_ABSENT);

    OK(bristlecone_exchange(tree, "new", 3, "1", 1, show, &shown));
    CHECK(shown.times == 1);
    OK(bristlecone_exchange(tree, "new", 3, "2", 1, show, &shown));
    CHECK(shown.times == 2 && is(&shown, "1"));
    CHECK(bristlecone_insert(tree, "new", 3, "3", 1, show, &shown) == BRISTLECONE_PRESENT);
    CHECK(shown.times == 3 && is(&shown, "2"));
    OK(bristlecone_update(tree, "new", 3, "3", 1, NULL, NULL));
    CHECK(bristlecone_update(tree, "old", 3, "3", 1, show, &shown) == BRISTLECONE_ABSENT);
    CHECK(bristlecone_compare_and_swap(tree, "new", 3, "2", 1, "4", 1, show, &shown) == BRISTLECONE_DIFFERS);
    CHECK(shown.times == 4 && is(&shown, "3"));
    OK(bristlecone_compare_and_swap(tree, "new", 3, "3", 1, "", 0, show, &shown));
    OK(bristlecone_compare_and_swap(tree, "new", 3, "", 0, NULL, 0, show, &shown));
    CHECK(bristlecone_compare_and_swap(tree, "new", 3, "", 0, NULL, 0, show, &shown) == BRISTLECONE_DIFFERS);
    OK(bristlecone_compare_and_swap(tree, "new", 3, NULL, 0, "5", 1, NULL, NULL));
    CHECK(shown.times == 4);
    OK(bristlecone_remove(tree, "new", 3, show, &shown));
    CHECK(shown.times == 5 && is(&shown, "5"));
    CHECK(bristlecone_remove(tree, "new", 3, show, &shown) == BRISTLECONE_ABSENT);

    /* Invalid arguments. */
    FAILS(bristlecone_put(tree, "\xff", 1, "", 0), BRISTLECONE_USAGE, "not UTF-8");
    FAILS(bristlecone_put(tree, NULL, 5, "", 0), BRISTLECONE_USAGE, "null pointer");
    FAILS(bristlecone_put(tree, "k", SIZE_MAX, "", 0), BRISTLECONE_USAGE, "too long");
    FAILS(bristlecone_put(tree, "k", 1, buffer, (size_t)1 << 40), BRISTLECONE_USAGE, "too long");
    char *long_key = calloc(1, 200 << 10);
    FAILS(bristlecone_put(tree, long_key, (16 << 10) + 1, "", 0), BRISTLECONE_USAGE, "at most 16384");
    FAILS(bristlecone_put(tree, "k", 1, long_key, (128 << 10) + 1), BRISTLECONE_USAGE, "at most 131072");
    OK(bristlecone_put(tree, long_key, 16 << 10, long_key, 128 << 10));
    free(long_key);
    FAILS(bristlecone_get_u64(tree, 1, NULL), BRISTLECONE_USAGE, "has str keys and bytes values, not u64");
    FAILS(bristlecone_put_u64(tree, 1, 1), BRISTLECONE_USAGE, "not u64");

    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void kinds(void)
{
    const char *path = scratch("kinds");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "visits", "(str, u32)", "Option<f64>");
    bristlecone_tree_info info = BRISTLECONE_TREE_INFO_INIT;
    char key[64], value[16];
    size_t bytes = 0;
    uint64_t len = 6;
    uint32_t year = 2026;
    double pages = 1.5;

    memcpy(key, &len, 8);
    memcpy(key + 8, "/about", 6);
    memcpy(key + 14, &year, 4);
    value[0] = 1;
    memcpy(value + 1, &pages, 8);
    OK(bristlecone_put(tree, key, 18, value, 9));
    memset(value, 0, sizeof(value));
    OK(bristlecone_get(tree, key, 18, value, sizeof(value), &bytes));
    CHECK(bytes == 9 && value[0] == 1 && memcmp(value + 1, &pages, 8) == 0);
    OK(bristlecone_put(tree, key, 18, "\0", 1));
    OK(bristlecone_get(tree, key, 18, value, sizeof(value), &bytes));
    CHECK(bytes == 1 && value[0] == 0);
    FAILS(bristlecone_put(tree, key, 17, "\0", 1), BRISTLECONE_USAGE, "no (str, u32)");
    FAILS(bristlecone_put(tree, key, 18, "\2", 1), BRISTLECONE_USAGE, "no Option<f64>");
    OK(bristlecone_tree_get_info(tree, &info));
    CHECK(strcmp(info.key_kind, "(str, u32)") == 0 && strcmp(info.value_kind, "Option<f64>") == 0);
    CHECK(strcmp(info.design, "nbtree") == 0 && info.items == 1 && info.pm_bytes > 0);
    CHECK(info.key_bytes == BRISTLECONE_ANY_SIZE && info.value_bytes == BRISTLECONE_ANY_SIZE);
    OK(bristlecone_tree_close(tree));

    bristlecone_option options[] = {{"block_bytes", 512}};
    bristlecone_tree_options how = BRISTLECONE_TREE_OPTIONS_INIT;
    how.design = "nbtree";
    how.options = options;
    how.option_count = 1;
    OK(bristlecone_tree_create(pool, "hot", "i32", "[u8; 3]", &how, &tree));
    int32_t minus = -7, plus = 7;
    OK(bristlecone_put(tree, &plus, 4, "abc", 3));
    OK(bristlecone_put(tree, &minus, 4, "xyz", 3));
    FAILS(bristlecone_put(tree, &minus, 4, "xy", 2), BRISTLECONE_USAGE, "[u8; 3]");
    OK(bristlecone_tree_get_info(tree, &info));
    CHECK(strcmp(info.design, "nbtree") == 0 && info.key_bytes == 4 && info.value_bytes == 3);
    bristlecone_iter *iter = NULL;
    OK(bristlecone_iter_open(tree, NULL, &iter));
    const void *at = NULL;
    OK(bristlecone_iter_next(iter, &at, NULL, NULL, NULL));
    CHECK(memcmp(at, &minus, 4) == 0);
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_tree_close(tree));

    FAILS(bristlecone_tree_create(pool, "hot", "i32", "u8", NULL, &tree), BRISTLECONE_USAGE, "exists already");
    FAILS(bristlecone_tree_create(pool, "x", "u7", "u8", NULL, &tree), BRISTLECONE_USAGE, "unknown kind");
    FAILS(bristlecone_tree_create(pool, "x", "json", "u8", NULL, &tree), BRISTLECONE_USAGE, "no order");
    how.design = "bonsai";
    CHECK(bristlecone_tree_create(pool, "x", "u8", "u8", &how, &tree) == BRISTLECONE_USAGE);
    how.design = "sstree";
    FAILS(bristlecone_tree_create(pool, "x", "u8", "u8", &how, &tree), BRISTLECONE_USAGE, "no option");
    how.struct_bytes = 3;
    FAILS(bristlecone_tree_create(pool, "x", "u8", "u8", &how, &tree), BRISTLECONE_USAGE, "initializer");
    FAILS(bristlecone_tree_open_or_create(pool, "hot", "i32", "u8", &tree), BRISTLECONE_USAGE, "[u8; 3], not u8");
    FAILS(bristlecone_tree_open(pool, "cold", &tree), BRISTLECONE_ABSENT, "no tree named \"cold\"");
    OK(bristlecone_tree_open(pool, "hot", &tree));
    OK(bristlecone_tree_close(tree));
    tree = open_tree(pool, "documents", "u64", "json");
    uint64_t id = 1;
    OK(bristlecone_put(tree, &id, 8, "{\"a\":1}", 7));
    FAILS(bristlecone_put(tree, &id, 8, "{", 1), BRISTLECONE_USAGE, "no JSON");
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void note_tree(void *context, const char *name, const char *keys, const char *values, const char *design)
{
    char *all = context;
    sprintf(all + strlen(all), "%s:%s:%s:%s;", name, keys, values, design);
}

static void pools(void)
{
    const char *path = scratch("pools");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE_NEW), *other = NULL;
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool_info info = BRISTLECONE_POOL_INFO_INIT;
    char all[256] = "";

    FAILS(bristlecone_pool_open(path, NULL, &other), BRISTLECONE_IN_USE, "in use");
    options.flags = 1u << 30;
    FAILS(bristlecone_pool_open(path, &options, &other), BRISTLECONE_USAGE, "flags that there are not");
    options.flags = 0;
    options.domain = 77;
    FAILS(bristlecone_pool_open(path, &options, &other), BRISTLECONE_USAGE, "no domain 77");
    OK(bristlecone_pool_get_info(pool, &info));
    CHECK(info.domain == BRISTLECONE_DOMAIN_PROCESS && info.max_bytes >= 64 << 20 && strlen(info.uuid) >= 32);

    /* A struct of a later version: unknown nonzero members are refused, zeros are accepted. */
    struct {
        bristlecone_open_options known;
        uint64_t more;
    } later = {BRISTLECONE_OPEN_OPTIONS_INIT, 0};
    later.known.struct_bytes = sizeof(later);
    FAILS(bristlecone_pool_open(path, &later.known, &other), BRISTLECONE_IN_USE, "in use");
    later.more = 1;
    FAILS(bristlecone_pool_open(path, &later.known, &other), BRISTLECONE_USAGE, "does not know");

    bristlecone_tree *tree = open_tree(pool, "a", "u64", "u64");
    OK(bristlecone_put_u64(tree, 1, 1));
    FAILS(bristlecone_pool_drop_tree(pool, "a"), BRISTLECONE_IN_USE, "in use");
    FAILS(bristlecone_pool_clear_tree(pool, "a"), BRISTLECONE_IN_USE, "in use");
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_IN_USE, "the pool has 1 trees, iterators, batches");
    OK(bristlecone_pool_rename_tree(pool, "a", "b"));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_trees(pool, note_tree, all));
    CHECK(strcmp(all, "b:u64:u64:nbtree;") == 0);
    OK(bristlecone_pool_clear_tree(pool, "b"));
    OK(bristlecone_tree_open(pool, "b", &tree));
    uint64_t items = 7;
    OK(bristlecone_tree_len(tree, &items));
    CHECK(items == 0);
    OK(bristlecone_tree_check(tree, NULL, NULL));
    OK(bristlecone_tree_damage(tree, NULL, NULL));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_check(pool, NULL, NULL));
    OK(bristlecone_pool_prefault(pool, 8 << 20));
    OK(bristlecone_pool_drop_tree(pool, "b"));
    FAILS(bristlecone_pool_drop_tree(pool, "b"), BRISTLECONE_ABSENT, "no tree");
    tree = open_tree(pool, "c", "u64", "u64");
    OK(bristlecone_put_u64(tree, 1, 2));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));

    pool = open_pool(path, BRISTLECONE_READ);
    other = open_pool(path, BRISTLECONE_READ);
    OK(bristlecone_tree_open(pool, "c", &tree));
    OK(bristlecone_get_u64(tree, 1, &items));
    CHECK(items == 2);
    FAILS(bristlecone_put_u64(tree, 1, 3), BRISTLECONE_READ_ONLY, "reading only");
    CHECK(bristlecone_tree_open_or_create(pool, "d", "u64", "u64", &tree) == BRISTLECONE_ABSENT);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(other));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void iterators(void)
{
    const char *path = scratch("iterators");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "squares", "u64", "u64");
    bristlecone_iter *iter = NULL;
    uint64_t keys[1000] = {0}, values[1000];
    size_t count = 0;

    for (uint64_t key = 0; key < 1000; key++) OK(bristlecone_put_u64(tree, key, key * key));
    FAILS(bristlecone_iter_open_prefix(tree, keys, 8, &iter), BRISTLECONE_USAGE, "");
    uint64_t removed = 7;
    bristlecone_range wrong = BRISTLECONE_RANGE_INIT;
    wrong.flags = 4;
    FAILS(bristlecone_remove_range(tree, &wrong, &removed), BRISTLECONE_USAGE, "flags");
    wrong.flags = 0;
    wrong.from = "abc";
    wrong.from_bytes = 3;
    FAILS(bristlecone_remove_range(tree, &wrong, &removed), BRISTLECONE_USAGE, "3 bytes");
    FAILS(bristlecone_remove_prefix(tree, keys, 8, &removed), BRISTLECONE_USAGE, "");
    CHECK(removed == 7);
    OK(bristlecone_iter_open(tree, NULL, &iter));
    OK(bristlecone_iter_next_u64(iter, keys, values, 600, &count));
    CHECK(count == 600 && keys[0] == 0 && keys[599] == 599 && values[599] == 599 * 599);
    OK(bristlecone_iter_next_back_u64(iter, keys, values, 1, &count));
    CHECK(count == 1 && keys[0] == 999);
    OK(bristlecone_iter_next_u64(iter, keys, values, 1000, &count));
    CHECK(count == 399 && keys[0] == 600 && keys[398] == 998);
    CHECK(bristlecone_iter_next_u64(iter, keys, values, 1000, &count) == BRISTLECONE_ABSENT && count == 0);
    CHECK(bristlecone_iter_next_back_u64(iter, keys, values, 1000, &count) == BRISTLECONE_ABSENT);
    FAILS(bristlecone_iter_next_u64(iter, NULL, values, 1000, &count), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_iter_next_u64(iter, keys, values, SIZE_MAX, &count), BRISTLECONE_USAGE, "no such array");
    OK(bristlecone_iter_next_u64(iter, NULL, NULL, 0, &count));
    OK(bristlecone_iter_close(iter));

    uint64_t from = 10, to = 20;
    bristlecone_range range = BRISTLECONE_RANGE_INIT;
    range.from = &from;
    range.from_bytes = 8;
    range.to = &to;
    range.to_bytes = 8;
    for (uint32_t flags = 0; flags < 4; flags++) {
        range.flags = flags;
        OK(bristlecone_iter_open(tree, &range, &iter));
        OK(bristlecone_iter_next_u64(iter, keys, values, 1000, &count));
        CHECK(keys[0] == (flags & BRISTLECONE_FROM_EXCLUDED ? 11u : 10u));
        CHECK(keys[count - 1] == (flags & BRISTLECONE_TO_INCLUDED ? 20u : 19u));
        OK(bristlecone_iter_close(iter));
    }
    range.flags = 0;
    from = 30;
    OK(bristlecone_iter_open(tree, &range, &iter));
    CHECK(bristlecone_iter_next_u64(iter, keys, values, 1, &count) == BRISTLECONE_ABSENT);
    OK(bristlecone_iter_close(iter));
    range.flags = 64;
    FAILS(bristlecone_iter_open(tree, &range, &iter), BRISTLECONE_USAGE, "flags");
    range.flags = 0;
    range.to_bytes = 7;
    FAILS(bristlecone_iter_open(tree, &range, &iter), BRISTLECONE_USAGE, "7 bytes");

    /* An iterator outlives the handle of its tree, and keeps the pool open. */
    OK(bristlecone_iter_open(tree, NULL, &iter));
    OK(bristlecone_tree_close(tree));
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_IN_USE, "iterators");
    OK(bristlecone_iter_next_u64(iter, keys, values, 2, &count));
    const void *key = NULL, *value = NULL;
    size_t key_bytes = 0, value_bytes = 0;
    OK(bristlecone_iter_next_back(iter, &key, &key_bytes, &value, &value_bytes));
    memcpy(keys, key, 8);
    memcpy(values, value, 8);
    CHECK(keys[0] == 999 && values[0] == 999 * 999 && key_bytes == 8 && value_bytes == 8);
    OK(bristlecone_iter_close(iter));

    tree = open_tree(pool, "names", "bytes", "str");
    OK(bristlecone_put(tree, "b\0", 2, "two", 3));
    OK(bristlecone_put(tree, "b", 1, "one", 3));
    OK(bristlecone_put(tree, "", 0, "none", 4));
    OK(bristlecone_iter_open(tree, NULL, &iter));
    OK(bristlecone_iter_next(iter, &key, &key_bytes, &value, &value_bytes));
    CHECK(key_bytes == 0 && value_bytes == 4 && memcmp(value, "none", 4) == 0);
    OK(bristlecone_iter_next_back(iter, &key, &key_bytes, &value, &value_bytes));
    CHECK(key_bytes == 2 && memcmp(key, "b\0", 2) == 0 && memcmp(value, "two", 3) == 0);
    OK(bristlecone_iter_next(iter, NULL, NULL, &value, NULL));
    CHECK(memcmp(value, "one", 3) == 0);
    key = NULL;
    CHECK(bristlecone_iter_next(iter, &key, NULL, NULL, NULL) == BRISTLECONE_ABSENT && key == NULL);
    CHECK(bristlecone_iter_next_back(iter, &key, NULL, NULL, NULL) == BRISTLECONE_ABSENT);
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_remove_prefix(tree, "x", 1, NULL));
    OK(bristlecone_iter_open_prefix(tree, "b", 1, &iter));
    OK(bristlecone_iter_next_back(iter, &key, &key_bytes, NULL, NULL));
    CHECK(key_bytes == 2 && memcmp(key, "b\0", 2) == 0);
    OK(bristlecone_iter_next(iter, &key, &key_bytes, NULL, NULL));
    CHECK(key_bytes == 1 && memcmp(key, "b", 1) == 0);
    CHECK(bristlecone_iter_next(iter, NULL, NULL, NULL, NULL) == BRISTLECONE_ABSENT);
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_iter_open(tree, NULL, &iter));
    FAILS(bristlecone_iter_next_u64(iter, keys, values, 1, &count), BRISTLECONE_USAGE, "not u64");
    OK(bristlecone_iter_close(iter));
    uint64_t of_prefix = 0, others = 0;
    OK(bristlecone_remove_prefix(tree, "b", 1, &of_prefix));
    OK(bristlecone_remove_range(tree, NULL, &others));
    CHECK(of_prefix == 2 && others == 1);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

int main(void)
{
    messages();
    words();
    strings();
    kinds();
    pools();
    iterators();
    puts("api.c: all is well");
    return 0;
}
