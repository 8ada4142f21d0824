/* Readers of a pool that another process writes to: acknowledged data is visible, writes are refused, and an exited
 * writer is reported by a status. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DESIGNS 5
#define ROUNDS 300
#define KEYS 20000

static const char *const designs[DESIGNS] = { "sstree", "nbtree", "cclbtree", "lodgetree", "wotree" };

/* State shared by the two processes: all trees have the keys below `told`; the number of writes; and the request to
 * close the pool. */
struct shared {
    _Atomic uint64_t told, written;
    _Atomic int stop;
};

/* One tree of words for each design, and one of texts. */
struct trees {
    bristlecone_tree *words[DESIGNS], *texts;
};

static struct trees open_trees(bristlecone_pool *pool, int create)
{
    struct trees trees;
    for (int at = 0; at < DESIGNS; at++) {
        bristlecone_tree_options options = BRISTLECONE_TREE_OPTIONS_INIT;
        options.design = designs[at];
        if (create) OK(bristlecone_tree_create(pool, designs[at], "u64", "u64", &options, &trees.words[at]));
        else OK(bristlecone_tree_open(pool, designs[at], &trees.words[at]));
    }
    trees.texts = open_tree(pool, "texts", "str", "bytes");
    return trees;
}

static void close_trees(const struct trees *trees)
{
    for (int at = 0; at < DESIGNS; at++) OK(bristlecone_tree_close(trees->words[at]));
    OK(bristlecone_tree_close(trees->texts));
}

static size_t text(char *to, uint64_t key)
{
    return (size_t)snprintf(to, 32, "item %012llu", (unsigned long long)key);
}

static void write_all(const char *path, struct shared *shared)
{
    const uint64_t told = atomic_load(&shared->told);
    uint64_t key = told > 0 ? told - 1 : 0;
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    struct trees trees = open_trees(pool, told == 0);
    while (!atomic_load(&shared->stop)) {
        char name[32];
        for (int at = 0; at < DESIGNS; at++) OK(bristlecone_put_u64(trees.words[at], key, ~key));
        OK(bristlecone_put(trees.texts, name, text(name, key), &key, sizeof(key)));
        atomic_store(&shared->told, key + 1);
        atomic_fetch_add(&shared->written, 1);
        /* The pool has space for these keys; then the last one is written repeatedly. */
        if (key < KEYS - 1) key++;
    }
    close_trees(&trees);
    OK(bristlecone_pool_close(pool));
}

static pid_t start_writer(const char *path, struct shared *shared)
{
    const uint64_t before = atomic_load(&shared->written);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        write_all(path, shared);
        _exit(0);
    }
    while (atomic_load(&shared->written) < before + 50) CHECK(waitpid(child, NULL, WNOHANG) == 0);
    return child;
}

static int try_to_follow(const char *path, bristlecone_pool **pool)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    options.flags = BRISTLECONE_FOLLOW;
    return bristlecone_pool_open(path, &options, pool);
}

static void is_key(void *context, const void *value, size_t bytes)
{
    CHECK(bytes == sizeof(uint64_t) && memcmp(context, value, bytes) == 0);
}

static void count_shown(void *context, size_t index, const void *value, size_t bytes)
{
    (void)index, (void)value;
    *(size_t *)context += bytes;
}

/* Looks acknowledged keys up by every method. */
static void read_one(const struct trees *trees, struct shared *shared, uint64_t round)
{
    const uint64_t told = atomic_load(&shared->told), key = round % 3 ? round * 7919 % told : told - 1;
    bristlecone_tree *words = trees->words[round % DESIGNS];
    uint64_t value = 0, keys[3] = { key, UINT64_MAX, told - 1 }, values[3] = { 0 }, items = 0;
    uint8_t found[3] = { 9, 9, 9 };
    size_t shown = 0;
    char name[32];
    size_t bytes = text(name, key);
    bristlecone_bytes names[2] = { { name, bytes }, { "none", 4 } };

    OK(bristlecone_get_u64(words, key, &value));
    CHECK(value == ~key);
    OK(bristlecone_get(words, &key, sizeof(key), &value, sizeof(value), NULL));
    OK(bristlecone_contains(words, &key, sizeof(key)));
    OK(bristlecone_get_many_u64(words, keys, 3, values, found));
    CHECK(found[0] == 1 && found[1] == 0 && found[2] == 1 && values[0] == ~key && values[2] == ~(told - 1));
    CHECK(bristlecone_get_u64(words, UINT64_MAX, &value) == BRISTLECONE_ABSENT);
    OK(bristlecone_get_with(trees->texts, name, bytes, is_key, (void *)&key));
    OK(bristlecone_get(trees->texts, name, bytes, &value, sizeof(value), NULL));
    CHECK(value == key);
    OK(bristlecone_get_many(trees->texts, names, 2, count_shown, &shown));
    CHECK(shown == sizeof(uint64_t));
    OK(bristlecone_tree_len(words, &items));
    CHECK(items >= told);
}

/* Every acknowledged key is returned once, in order, from either end. */
static void scan(bristlecone_tree *words, struct shared *shared)
{
    bristlecone_iter *iter = NULL;
    const uint64_t told = atomic_load(&shared->told);
    uint64_t keys[100], values[100], next = 0, last = UINT64_MAX;
    size_t count = 0;
    int status;

    OK(bristlecone_iter_open(words, NULL, &iter));
    while ((status = bristlecone_iter_next_u64(iter, keys, values, 100, &count)) == BRISTLECONE_OK)
        for (size_t at = 0; at < count; at++, next++) CHECK(keys[at] == next && values[at] == ~next);
    CHECK(status == BRISTLECONE_ABSENT && next >= told);
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_iter_open(words, NULL, &iter));
    while ((status = bristlecone_iter_next_back_u64(iter, keys, values, 100, &count)) == BRISTLECONE_OK)
        for (size_t at = 0; at < count; at++, last = keys[at - 1]) CHECK(last == UINT64_MAX || keys[at] + 1 == last);
    CHECK(status == BRISTLECONE_ABSENT && last == 0);
    OK(bristlecone_iter_close(iter));
}

static void writes_are_refused(bristlecone_pool *pool, const struct trees *trees)
{
    bristlecone_tree *words = trees->words[0], *none = NULL;
    const uint64_t key = 1;
    bristlecone_batch *batch = NULL;
    uint8_t removed = 9;

    FAILS(bristlecone_put_u64(words, 1, 1), BRISTLECONE_READ_ONLY, "reading only");
    CHECK(bristlecone_insert_u64(words, UINT64_MAX, 1, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_update_u64(words, 1, 1, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_remove_u64(words, 1, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_compare_and_swap_u64(words, 1, NULL, &key, NULL, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_put_many_u64(words, &key, &key, 1, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_remove_many_u64(words, &key, 1, &removed, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_put(trees->texts, "a", 1, "a", 1) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_remove(trees->texts, "a", 1, NULL, NULL) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_tree_create(pool, "new", "u64", "u64", NULL, &none) == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_tree_open_or_create(pool, "new", "u64", "u64", &none) == BRISTLECONE_ABSENT && none == NULL);
    CHECK(bristlecone_pool_rename_tree(pool, "texts", "names") == BRISTLECONE_READ_ONLY);
    OK(bristlecone_batch_begin(pool, &batch));
    OK(bristlecone_batch_put(batch, words, WORD(1), WORD(1)));
    CHECK(bristlecone_batch_commit(batch) == BRISTLECONE_READ_ONLY);
}

/* Every reading call reports that the writer has exited. */
static void nothing_is_read(bristlecone_pool *pool, const struct trees *trees, bristlecone_iter *iter)
{
    bristlecone_tree_info info = BRISTLECONE_TREE_INFO_INIT;
    const void *bytes = NULL;
    bristlecone_tree *none = NULL;
    bristlecone_iter *begun = NULL;

    for (int at = 0; at < DESIGNS; at++) {
        bristlecone_tree *words = trees->words[at];
        uint64_t value = 7, key = 0, items = 7;
        uint8_t found = 0;
        size_t count = 0;
        FAILS(bristlecone_get_u64(words, 0, &value), BRISTLECONE_NO_WRITER, "cannot be followed");
        CHECK(bristlecone_get(words, &key, sizeof(key), &value, sizeof(value), NULL) == BRISTLECONE_NO_WRITER);
        CHECK(bristlecone_contains(words, &key, sizeof(key)) == BRISTLECONE_NO_WRITER);
        CHECK(bristlecone_get_many_u64(words, &key, 1, &value, &found) == BRISTLECONE_NO_WRITER);
        CHECK(value == 7);
        CHECK(bristlecone_tree_len(words, &items) == BRISTLECONE_NO_WRITER && items == 7);
        CHECK(bristlecone_tree_get_info(words, &info) == BRISTLECONE_NO_WRITER);
        OK(bristlecone_iter_open(words, NULL, &begun));
        CHECK(bristlecone_iter_next_u64(begun, &key, &value, 1, &count) == BRISTLECONE_NO_WRITER && count == 0);
        CHECK(bristlecone_iter_next_u64(begun, &key, &value, 1, &count) == BRISTLECONE_ABSENT);
        OK(bristlecone_iter_close(begun));
    }
    CHECK(bristlecone_get_with(trees->texts, "a", 1, NULL, NULL) == BRISTLECONE_NO_WRITER);
    /* Items that it has already read come first. */
    int status;
    while ((status = bristlecone_iter_next(iter, &bytes, NULL, NULL, NULL)) == BRISTLECONE_OK) {}
    CHECK(status == BRISTLECONE_NO_WRITER);
    CHECK(bristlecone_iter_next(iter, &bytes, NULL, NULL, NULL) == BRISTLECONE_ABSENT);
    FAILS(bristlecone_tree_open(pool, "texts", &none), BRISTLECONE_NO_WRITER, "cannot be followed");
    CHECK(bristlecone_pool_trees(pool, NULL, NULL) == BRISTLECONE_NO_WRITER);
    CHECK(strstr(bristlecone_strerror(BRISTLECONE_NO_WRITER), "no process writes"));
}

static void processes(void)
{
    const char *path = scratch("follow");
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bristlecone_pool_info info = BRISTLECONE_POOL_INFO_INIT;
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    bristlecone_iter *iter = NULL;
    const void *name = NULL;
    size_t bytes = 0, shown = 0;
    char expected[32];
    int status = 0;

    CHECK(shared != MAP_FAILED);
    CHECK(try_to_follow(path, &pool) == BRISTLECONE_ABSENT && pool == NULL);
    pid_t writer = start_writer(path, shared);
    options.flags = BRISTLECONE_FOLLOW | BRISTLECONE_CREATE;
    FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "must exist");
    OK(try_to_follow(path, &pool));
    OK(bristlecone_pool_get_info(pool, &info));
    CHECK(info.following == 1 && info.read_only == 1);
    struct trees trees = open_trees(pool, 0);
    for (uint64_t round = 0; round < ROUNDS; round++) read_one(&trees, shared, round);
    for (int at = 0; at < DESIGNS; at++) scan(trees.words[at], shared);
    writes_are_refused(pool, &trees);
    OK(bristlecone_iter_open(trees.texts, NULL, &iter));
    OK(bristlecone_iter_next(iter, &name, &bytes, NULL, NULL));

    /* A writer closes the pool: the follower's handles stay open, and continue with the next writer. */
    atomic_store(&shared->stop, 1);
    CHECK(waitpid(writer, &status, 0) == writer && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    nothing_is_read(pool, &trees, iter);
    bristlecone_pool *another = NULL;
    CHECK(try_to_follow(path, &another) == BRISTLECONE_NO_WRITER && another == NULL);
    const uint64_t had = atomic_load(&shared->told);
    atomic_store(&shared->stop, 0);
    writer = start_writer(path, shared);
    for (uint64_t round = 0; round < ROUNDS; round++) read_one(&trees, shared, round);
    /* The iterator ended with the first writer. Another one shows what that writer had told. */
    CHECK(bristlecone_iter_next(iter, &name, &bytes, NULL, NULL) == BRISTLECONE_ABSENT);
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_iter_open(trees.texts, NULL, &iter));
    while ((status = bristlecone_iter_next(iter, &name, &bytes, NULL, NULL)) == BRISTLECONE_OK) {
        CHECK(bytes == 17);
        memcpy(expected, name, bytes);
        expected[bytes] = 0;
        if (shown == 0) shown = (size_t)strtoull(expected + 5, NULL, 10);
        CHECK(bytes == text(expected, shown) && memcmp(name, expected, bytes) == 0);
        shown++;
    }
    CHECK(status == BRISTLECONE_ABSENT && shown >= had);

    /* A writer is killed; the follower does not prevent the next one from recovering the pool. */
    CHECK(kill(writer, SIGKILL) == 0 && waitpid(writer, &status, 0) == writer && WIFSIGNALED(status));
    /* Its data is readable until another process recovers it, unless a lookup waits for it. */
    for (int at = 0; at < DESIGNS; at++) {
        uint64_t value = UINT64_MAX;
        status = bristlecone_get_u64(trees.words[at], 0, &value);
        CHECK((status == BRISTLECONE_OK && value == UINT64_MAX) || status == BRISTLECONE_NO_WRITER);
    }
    CHECK(try_to_follow(path, &another) == BRISTLECONE_NO_WRITER && another == NULL);
    writer = start_writer(path, shared);
    for (uint64_t round = 0; round < ROUNDS; round++) read_one(&trees, shared, round);
    OK(bristlecone_iter_close(iter));
    close_trees(&trees);
    OK(bristlecone_pool_close(pool));
    atomic_store(&shared->stop, 1);
    CHECK(waitpid(writer, &status, 0) == writer && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("follow.c: %llu items in each tree, three writers\n", (unsigned long long)atomic_load(&shared->told));
    unlink(path);
}

struct thread {
    bristlecone_tree *tree;
    _Atomic uint64_t told;
    _Atomic int stop;
};

static void *write_on(void *context)
{
    struct thread *writer = context;
    for (uint64_t key = 0; !atomic_load(&writer->stop) && key < 100000; key++) {
        OK(bristlecone_put_u64(writer->tree, key, ~key));
        atomic_store(&writer->told, key + 1);
    }
    return NULL;
}

/* Both handles in one process. */
static void threads(void)
{
    const char *path = scratch("follow-here");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE), *follower = NULL;
    struct thread writer = { open_tree(pool, "words", "u64", "u64"), 0, 0 };
    bristlecone_pool_info info = BRISTLECONE_POOL_INFO_INIT;
    bristlecone_tree *words = NULL;
    pthread_t thread;
    uint64_t value = 0;

    OK(bristlecone_pool_get_info(pool, &info));
    CHECK(info.following == 0 && info.read_only == 0);
    OK(try_to_follow(path, &follower));
    CHECK(bristlecone_pool_drop_tree(follower, "words") == BRISTLECONE_READ_ONLY);
    CHECK(bristlecone_pool_clear_tree(follower, "words") == BRISTLECONE_READ_ONLY);
    OK(bristlecone_tree_open(follower, "words", &words));
    CHECK(pthread_create(&thread, NULL, write_on, &writer) == 0);
    for (int round = 0; round < 20000; round++) {
        uint64_t told = atomic_load(&writer.told);
        if (told == 0) continue;
        OK(bristlecone_get_u64(words, told - 1, &value));
        CHECK(value == ~(told - 1));
    }
    atomic_store(&writer.stop, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(bristlecone_tree_close(writer.tree));
    OK(bristlecone_pool_close(pool));
    FAILS(bristlecone_get_u64(words, 0, &value), BRISTLECONE_NO_WRITER, "cannot be followed");
    OK(bristlecone_tree_close(words));
    OK(bristlecone_pool_close(follower));
    unlink(path);
}

int main(void)
{
    threads();
    processes();
    return 0;
}
