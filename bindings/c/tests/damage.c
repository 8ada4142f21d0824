/* Pools whose bytes were changed: the result is an error or the original data, and never more data. */
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ITEMS 3000
#define ROUNDS 30

static uint64_t seed = 0x9E3779B97F4A7C15;

static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* A status that a damaged pool may cause. */
static int known(int status)
{
    switch (status) {
    case BRISTLECONE_OK:
    case BRISTLECONE_FAILED:
    case BRISTLECONE_USAGE: /* the damage may have changed the kinds of the tree */
    case BRISTLECONE_ABSENT:
    case BRISTLECONE_CORRUPTED:
    case BRISTLECONE_FULL:
    case BRISTLECONE_PRESENT:
        return 1;
    default:
        return 0;
    }
}

#define KNOWN(call) CHECK(known(call))

static void take(void *context, const void *value, size_t bytes)
{
    const unsigned char *at = value;
    for (size_t i = 0; i < bytes; i++) *(uint64_t *)context += at[i];
}

static void build(const char *path)
{
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE_NEW);
    bristlecone_tree *words = open_tree(pool, "words", "u64", "u64");
    bristlecone_tree *texts = open_tree(pool, "texts", "str", "bytes");
    char key[32], value[200] = "a value";
    for (uint64_t i = 0; i < ITEMS; i++) {
        int length = snprintf(key, sizeof(key), "key %llu", (unsigned long long)i);
        OK(bristlecone_put_u64(words, i * 7919, i));
        OK(bristlecone_put(texts, key, (size_t)length, value, i % sizeof(value)));
    }
    OK(bristlecone_tree_close(words));
    OK(bristlecone_tree_close(texts));
    OK(bristlecone_pool_close(pool));
}

static void visit(bristlecone_pool *pool, const char *name)
{
    bristlecone_tree *tree = NULL;
    bristlecone_iter *iter = NULL;
    bristlecone_snapshot *then = NULL;
    bristlecone_tree_info info = BRISTLECONE_TREE_INFO_INIT;
    uint64_t sum = 0, value = 0;
    size_t bytes = 0;

    if (bristlecone_tree_open(pool, name, &tree) != BRISTLECONE_OK) return;
    KNOWN(bristlecone_tree_get_info(tree, &info));
    for (uint64_t i = 0; i < ITEMS; i += 17) {
        char key[32];
        int length = snprintf(key, sizeof(key), "key %llu", (unsigned long long)i);
        KNOWN(bristlecone_get_u64(tree, i * 7919, &value));
        KNOWN(bristlecone_get_with(tree, key, (size_t)length, take, &sum));
        int status = bristlecone_get(tree, key, (size_t)length, NULL, 0, &bytes);
        CHECK(known(status) || status == BRISTLECONE_TOO_SMALL);
    }
    const void *key = NULL, *held = NULL;
    size_t key_bytes = 0, held_bytes = 0;
    int status = bristlecone_iter_open(tree, NULL, &iter);
    KNOWN(status);
    if (status == BRISTLECONE_OK) {
        for (int i = 0; i < 4 * ITEMS; i++) {
            status = bristlecone_iter_next(iter, &key, &key_bytes, &held, &held_bytes);
            KNOWN(status);
            if (status != BRISTLECONE_OK) break;
            take(&sum, key, key_bytes);
            take(&sum, held, held_bytes);
        }
        OK(bristlecone_iter_close(iter));
    }
    KNOWN(bristlecone_tree_check(tree, NULL, NULL));
    KNOWN(bristlecone_tree_damage(tree, NULL, NULL));
    KNOWN(bristlecone_put_u64(tree, 1, 1));
    KNOWN(bristlecone_insert(tree, "new", 3, "new", 3, NULL, NULL));
    KNOWN(bristlecone_remove_u64(tree, 7919, NULL));
    if (bristlecone_snapshot_open(pool, 0, &then) == BRISTLECONE_OK) {
        KNOWN(bristlecone_snapshot_get(then, tree, WORD(2 * 7919), &value, 8, NULL));
        OK(bristlecone_snapshot_close(then));
    }
    OK(bristlecone_tree_close(tree));
}

static void damaged(const char *path, const char *whole, long size)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && write(file, whole, (size_t)size) == size);
    /* Bytes, words or whole lines; most pages are unchanged. */
    for (uint64_t left = 1 + draw() % 40; left > 0; left--) {
        unsigned char noise[64];
        size_t bytes = (size_t)1 << (draw() % 7);
        off_t at = (off_t)(draw() % (draw() % 2 ? (uint64_t)size - 64 : 16384));
        for (size_t i = 0; i < bytes; i++) noise[i] = draw() % 3 ? (unsigned char)draw() : 0;
        CHECK(pwrite(file, noise, bytes, at) == (ssize_t)bytes);
    }
    CHECK(close(file) == 0);
}

int main(void)
{
    char whole_path[128], path[128];
    snprintf(whole_path, sizeof(whole_path), "%s", scratch("whole"));
    snprintf(path, sizeof(path), "%s", scratch("damaged"));
    build(whole_path);
    struct stat stat_of;
    int file = open(whole_path, O_RDONLY);
    CHECK(file >= 0 && fstat(file, &stat_of) == 0);
    char *whole = malloc((size_t)stat_of.st_size);
    CHECK(whole && read(file, whole, (size_t)stat_of.st_size) == stat_of.st_size && close(file) == 0);

    int opened = 0, refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        bristlecone_pool *pool = NULL;
        damaged(path, whole, (long)stat_of.st_size);
        int status = bristlecone_pool_open(path, NULL, &pool);
        if (status != BRISTLECONE_OK) {
            CHECK(known(status) && pool == NULL && strlen(bristlecone_errmsg()) > 0);
            refused++;
            continue;
        }
        opened++;
        KNOWN(bristlecone_pool_check(pool, NULL, NULL));
        visit(pool, "words");
        visit(pool, "texts");
        OK(bristlecone_pool_close(pool));
    }
    CHECK(opened > 0 && refused > 0);
    free(whole);
    unlink(path);
    unlink(whole_path);
    puts("damage.c: all is well");
    return 0;
}
