/* Multi-key calls, and a full pool. */
#include "check.h"

static void note_index(void *context, size_t index, const void *value, size_t bytes)
{
    char *all = context;
    sprintf(all + strlen(all), "%zu=%.*s;", index, (int)bytes, (const char *)value);
}

static void many(void)
{
    const char *path = scratch("many");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "squares", "u64", "u64");
    uint64_t keys[] = {5, 1, 5, UINT64_MAX}, values[] = {25, 1, 26, 0}, got[4] = {7, 7, 7, 7};
    uint8_t found[4];
    size_t done = 77;

    OK(bristlecone_put_many_u64(tree, keys, values, 4, &done));
    CHECK(done == 4);
    keys[1] = 2;
    OK(bristlecone_get_many_u64(tree, keys, 4, got, found));
    CHECK(got[0] == 26 && got[1] == 7 && got[2] == 26 && got[3] == 0);
    CHECK(found[0] == 1 && found[1] == 0 && found[2] == 1 && found[3] == 1);
    OK(bristlecone_remove_many_u64(tree, keys, 4, found, &done));
    CHECK(done == 4 && found[0] == 1 && found[1] == 0 && found[2] == 0 && found[3] == 1);
    OK(bristlecone_put_many_u64(tree, NULL, NULL, 0, &done));
    FAILS(bristlecone_put_many_u64(tree, keys, NULL, 4, &done), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_put_many_u64(tree, keys, values, SIZE_MAX / 4, &done), BRISTLECONE_USAGE, "no such array");
    CHECK(done == 0);
    FAILS(bristlecone_get_many_u64(tree, (const uint64_t *)((const char *)keys + 1), 1, got, found), BRISTLECONE_USAGE,
          "not aligned");

    /* More than are passed on at a time. */
    enum { MANY = 1000 };
    static uint64_t many_keys[MANY], many_values[MANY], many_got[MANY];
    static uint8_t was[MANY];
    for (uint64_t i = 0; i < MANY; i++) {
        many_keys[i] = (i * 7) % MANY + 100;
        many_values[i] = i;
    }
    OK(bristlecone_put_many_u64(tree, many_keys, many_values, MANY, &done));
    CHECK(done == MANY);
    for (int i = 1; i < MANY; i += 2) OK(bristlecone_remove_u64(tree, many_keys[i], NULL));
    OK(bristlecone_get_many_u64(tree, many_keys, MANY, many_got, was));
    for (int i = 0; i < MANY; i++) CHECK(was[i] == (i % 2 == 0) && (!was[i] || many_got[i] == many_values[i]));
    memset(was, 7, sizeof(was));
    OK(bristlecone_remove_many_u64(tree, many_keys, MANY, was, &done));
    CHECK(done == MANY);
    for (int i = 0; i < MANY; i++) CHECK(was[i] == (i % 2 == 0));
    OK(bristlecone_tree_close(tree));

    tree = open_tree(pool, "names", "str", "str");
    bristlecone_bytes names[] = {{"ada", 3}, {"grace", 5}, {"\xff", 1}}, roles[] = {{"one", 3}, {"two", 3}, {"three", 5}};
    char all[64] = "";
    FAILS(bristlecone_put_many(tree, names, roles, 3, &done), BRISTLECONE_USAGE, "UTF-8");
    CHECK(done == 2);
    names[2] = (bristlecone_bytes){"none", 4};
    OK(bristlecone_get_many(tree, names, 3, note_index, all));
    CHECK(strcmp(all, "0=one;1=two;") == 0);
    OK(bristlecone_remove_many(tree, names, 3, &done));
    CHECK(done == 3);
    uint64_t items = 7;
    OK(bristlecone_tree_len(tree, &items));
    CHECK(items == 0);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void full(void)
{
    const char *path = scratch("full");
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    char value[60000] = "";
    int status = 0;
    uint64_t written = 0;

    options.flags = BRISTLECONE_CREATE;
    options.max_bytes = 16 << 20;
    OK(bristlecone_pool_open(path, &options, &pool));
    bristlecone_tree *tree = open_tree(pool, "t", "u64", "bytes");
    while ((status = bristlecone_put(tree, &written, 8, value, sizeof(value))) == BRISTLECONE_OK) written++;
    FAILS(status, BRISTLECONE_FULL, "full");
    CHECK(written > 20);
    for (uint64_t key = 0; key < written; key++) OK(bristlecone_contains(tree, &key, 8));
    CHECK(bristlecone_contains(tree, &written, 8) == BRISTLECONE_ABSENT);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

int main(void)
{
    many();
    full();
    puts("many.c: all is well");
    return 0;
}
