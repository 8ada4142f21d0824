/* Misuse: invalid handles, threads that close handles in use, children, signals. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* Closes its own handle during a call on it, which is forbidden. */
static void close_within(void *context, const void *value, size_t bytes)
{
    (void)value;
    (void)bytes;
    FAILS(bristlecone_tree_close(context), BRISTLECONE_IN_USE, "this thread");
    OK(bristlecone_put_u64(context, 2, 2));
}

struct nest {
    bristlecone_tree *tree;
    int depth;
};

static void nest(void *context, const void *value, size_t bytes)
{
    struct nest *inner = context;
    uint64_t key = 1;
    (void)value;
    (void)bytes;
    inner->depth++;
    int status = bristlecone_get_with(inner->tree, &key, 8, nest, inner);
    CHECK(status == BRISTLECONE_OK || status == BRISTLECONE_USAGE);
}

static void handles(void)
{
    const char *path = scratch("handles");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "t", "u64", "u64"), *again = NULL;
    bristlecone_iter *iter = NULL;
    uint64_t key = 1;

    OK(bristlecone_put_u64(tree, 1, 1));
    OK(bristlecone_iter_open(tree, NULL, &iter));
    /* Null, of another kind, never a handle. */
    FAILS(bristlecone_get_u64(NULL, 1, NULL), BRISTLECONE_USAGE, "null handle");
    FAILS(bristlecone_tree_close(NULL), BRISTLECONE_USAGE, "null handle");
    FAILS(bristlecone_get_u64((bristlecone_tree *)pool, 1, NULL), BRISTLECONE_USAGE, "is a pool, not a tree");
    FAILS(bristlecone_get_u64((bristlecone_tree *)iter, 1, NULL), BRISTLECONE_USAGE, "is an iterator, not a tree");
    FAILS(bristlecone_pool_close((bristlecone_pool *)tree), BRISTLECONE_USAGE, "not a pool");
    FAILS(bristlecone_tree_close((bristlecone_tree *)iter), BRISTLECONE_USAGE, "not a tree");
    FAILS(bristlecone_iter_close((bristlecone_iter *)pool), BRISTLECONE_USAGE, "not an iterator");
    FAILS(bristlecone_get_u64((bristlecone_tree *)&key, 1, NULL), BRISTLECONE_USAGE, "never was one");
    FAILS(bristlecone_get_u64((bristlecone_tree *)UINTPTR_MAX, 1, NULL), BRISTLECONE_USAGE, "never was one");
    FAILS(bristlecone_get_u64((bristlecone_tree *)1, 1, NULL), BRISTLECONE_USAGE, "never was one");
    FAILS(bristlecone_tree_open(pool, NULL, &again), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_tree_open(pool, "t", NULL), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_tree_open(pool, "\xff", &again), BRISTLECONE_USAGE, "UTF-8");
    FAILS(bristlecone_tree_get_info(tree, NULL), BRISTLECONE_USAGE, "null");

    OK(bristlecone_get_with(tree, &key, 8, close_within, tree));
    struct nest depth = {tree, 0};
    OK(bristlecone_get_with(tree, &key, 8, nest, &depth));
    CHECK(depth.depth == 8);

    /* Closed, and closed again, also after the slot is reused for another handle. */
    OK(bristlecone_tree_open(pool, "t", &again));
    OK(bristlecone_tree_close(again));
    for (int round = 0; round < 1000; round++) {
        FAILS(bristlecone_tree_close(again), BRISTLECONE_USAGE, "was closed");
        FAILS(bristlecone_put_u64(again, 1, 2), BRISTLECONE_USAGE, "was closed");
        bristlecone_tree *other = NULL;
        OK(bristlecone_tree_open(pool, "t", &other));
        CHECK(other != again);
        OK(bristlecone_tree_close(other));
    }
    OK(bristlecone_iter_close(iter));
    FAILS(bristlecone_iter_next(iter, NULL, NULL, NULL, NULL), BRISTLECONE_USAGE, "was closed");
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_USAGE, "was closed");
    FAILS(bristlecone_pool_check(pool, NULL, NULL), BRISTLECONE_USAGE, "was closed");
    unlink(path);
}

#define THREADS 4
#define ITEMS 2000

struct worker {
    pthread_t thread;
    bristlecone_tree *tree;
    bristlecone_iter *shared;
    uint64_t number;
};

static void *work(void *context)
{
    struct worker *self = context;
    for (uint64_t i = 0; i < ITEMS; i++) {
        uint64_t value = 0, key = i * THREADS + self->number;
        OK(bristlecone_put_u64(self->tree, key, key + 1));
        OK(bristlecone_get_u64(self->tree, key, &value));
        CHECK(value == key + 1);
        CHECK(bristlecone_put(self->tree, &key, 1, &key, 8) == BRISTLECONE_USAGE);
        CHECK(strstr(bristlecone_errmsg(), "where u64 has 8"));
        int status = bristlecone_iter_next(self->shared, NULL, NULL, NULL, NULL);
        CHECK(status == BRISTLECONE_OK || status == BRISTLECONE_ABSENT || status == BRISTLECONE_IN_USE);
    }
    return NULL;
}

static void threads(void)
{
    const char *path = scratch("threads");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "t", "u64", "u64");
    struct worker workers[THREADS];
    bristlecone_iter *shared = NULL;
    uint64_t items = 0;

    OK(bristlecone_iter_open(tree, NULL, &shared));
    for (uint64_t number = 0; number < THREADS; number++) {
        workers[number] = (struct worker){.tree = tree, .shared = shared, .number = number};
        CHECK(pthread_create(&workers[number].thread, NULL, work, &workers[number]) == 0);
    }
    for (int number = 0; number < THREADS; number++) CHECK(pthread_join(workers[number].thread, NULL) == 0);
    OK(bristlecone_tree_len(tree, &items));
    CHECK(items == THREADS * ITEMS);
    OK(bristlecone_iter_close(shared));
    OK(bristlecone_tree_check(tree, NULL, NULL));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

/* A handle that is closed repeatedly while other threads use it. */
static bristlecone_pool *torn_pool;
static _Atomic(bristlecone_tree *) torn;
static atomic_int torn_done;

static void *use_torn(void *context)
{
    uint64_t *served = context;
    while (!atomic_load(&torn_done)) {
        int status = bristlecone_get_u64(atomic_load(&torn), 1, NULL);
        CHECK(status == BRISTLECONE_OK || status == BRISTLECONE_USAGE);
        *served += status == BRISTLECONE_OK;
    }
    return NULL;
}

/* Stays in a call until released. */
static void dwell(void *context, const void *value, size_t bytes)
{
    atomic_int *state = context;
    (void)value;
    (void)bytes;
    atomic_store(state, 1);
    while (atomic_load(state) != 2) usleep(100);
}

static void *dwell_in(void *context)
{
    uint64_t key = 1;
    OK(bristlecone_get_with(atomic_load(&torn), &key, 8, dwell, context));
    return NULL;
}

static void torn_away(void)
{
    const char *path = scratch("torn");
    torn_pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(torn_pool, "t", "u64", "u64");
    pthread_t users[2], dweller;
    uint64_t served[2] = {0, 0};

    OK(bristlecone_put_u64(tree, 1, 1));
    atomic_store(&torn, tree);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&users[i], NULL, use_torn, &served[i]) == 0);
    for (int round = 0; round < 500; round++) {
        /* A descheduled thread may stay in its call for longer than a close waits. */
        int closed = BRISTLECONE_IN_USE;
        for (int tries = 0; closed == BRISTLECONE_IN_USE && tries < 100; tries++) closed = bristlecone_tree_close(tree);
        OK(closed);
        OK(bristlecone_tree_open(torn_pool, "t", &tree));
        atomic_store(&torn, tree);
        if (round % 50 == 0) usleep(1000);
    }
    atomic_store(&torn_done, 1);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(users[i], NULL) == 0);
    CHECK(served[0] + served[1] > 0);

    atomic_int state = 0;
    CHECK(pthread_create(&dweller, NULL, dwell_in, &state) == 0);
    while (atomic_load(&state) != 1) usleep(100);
    FAILS(bristlecone_tree_close(tree), BRISTLECONE_IN_USE, "another thread");
    OK(bristlecone_get_u64(tree, 1, NULL));
    atomic_store(&state, 2);
    CHECK(pthread_join(dweller, NULL) == 0);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(torn_pool));
    unlink(path);
}

static void forks(void)
{
    const char *path = scratch("forks");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *tree = open_tree(pool, "t", "u64", "u64");
    bristlecone_iter *iter = NULL;
    int status = 0;

    for (uint64_t key = 0; key < 100; key++) OK(bristlecone_put_u64(tree, key, key));
    OK(bristlecone_iter_open(tree, NULL, &iter));
    OK(bristlecone_iter_next(iter, NULL, NULL, NULL, NULL));
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint64_t key = 1, items = 0;
        uint8_t found = 0;
        bristlecone_tree *other = NULL;
        bristlecone_pool *own = NULL;
        bristlecone_pool_info info = BRISTLECONE_POOL_INFO_INIT;
        alarm(30);
        FAILS(bristlecone_get_u64(tree, 1, &items), BRISTLECONE_FORKED, "open it again in this process");
        CHECK(bristlecone_put_u64(tree, 1, 2) == BRISTLECONE_FORKED);
        CHECK(bristlecone_remove_u64(tree, 1, NULL) == BRISTLECONE_FORKED);
        CHECK(bristlecone_get_many_u64(tree, &key, 1, &items, &found) == BRISTLECONE_FORKED);
        CHECK(bristlecone_get(tree, &key, 8, &items, 8, NULL) == BRISTLECONE_FORKED);
        CHECK(bristlecone_put(tree, &key, 8, &items, 8) == BRISTLECONE_FORKED);
        CHECK(bristlecone_contains(tree, &key, 8) == BRISTLECONE_FORKED);
        CHECK(bristlecone_tree_len(tree, &items) == BRISTLECONE_FORKED);
        CHECK(bristlecone_tree_check(tree, NULL, NULL) == BRISTLECONE_FORKED);
        CHECK(bristlecone_iter_next(iter, NULL, NULL, NULL, NULL) == BRISTLECONE_FORKED);
        CHECK(bristlecone_iter_open(tree, NULL, &iter) == BRISTLECONE_FORKED);
        CHECK(bristlecone_tree_open(pool, "t", &other) == BRISTLECONE_FORKED);
        CHECK(bristlecone_pool_get_info(pool, &info) == BRISTLECONE_FORKED);
        CHECK(bristlecone_pool_check(pool, NULL, NULL) == BRISTLECONE_FORKED);
        CHECK(bristlecone_pool_drop_tree(pool, "t") == BRISTLECONE_FORKED);
        OK(bristlecone_iter_close(iter));
        OK(bristlecone_tree_close(tree));
        CHECK(bristlecone_put_u64(tree, 1, 2) == BRISTLECONE_USAGE);
        OK(bristlecone_pool_close(pool));
        FAILS(bristlecone_pool_open(path, NULL, &own), BRISTLECONE_IN_USE, "in use");
        /* The child's own pool. */
        const char *mine = scratch("child");
        own = open_pool(mine, BRISTLECONE_CREATE);
        other = open_tree(own, "t", "u64", "u64");
        OK(bristlecone_put_u64(other, 1, 1));
        OK(bristlecone_tree_close(other));
        OK(bristlecone_pool_close(own));
        unlink(mine);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (uint64_t key = 0; key < 100; key++) OK(bristlecone_get_u64(tree, key, NULL));
    OK(bristlecone_iter_next(iter, NULL, NULL, NULL, NULL));
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_tree_check(tree, NULL, NULL));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void on_bus(int signal)
{
    (void)signal;
    _exit(42);
}

static void signals(void)
{
    const char *path = scratch("signals");
    struct sigaction action;
    int status = 0;

    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(signal(SIGBUS, on_bus) != SIG_ERR);
        bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE | BRISTLECONE_LEAVE_SIGBUS);
        CHECK(sigaction(SIGBUS, NULL, &action) == 0 && action.sa_handler == on_bus);
        bristlecone_tree *tree = open_tree(pool, "t", "u64", "u64");
        OK(bristlecone_put_u64(tree, 1, 1));
        CHECK(truncate(path, 4096) == 0);
        bristlecone_get_u64(tree, 1, NULL);
        bristlecone_tree_check(tree, NULL, NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    unlink(path);
}

int main(void)
{
    handles();
    threads();
    torn_away();
    forks();
    signals();
    puts("hard.c: all is well");
    return 0;
}
