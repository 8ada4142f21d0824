/* Common code of the tests in C and C++. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bristlecone.h"

#define CHECK(...)                                                                                        \
    do {                                                                                                  \
        if (!(__VA_ARGS__)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s does not hold; the last message: %s\n", __FILE__, __LINE__, #__VA_ARGS__, \
                    bristlecone_errmsg());                                                                \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* A u64 key or value as the two arguments that a call takes. */
#define WORD(word) &(uint64_t){ word }, sizeof(uint64_t)

#define OK(call) CHECK((call) == BRISTLECONE_OK)

/* The call must fail with this status, and its message must contain these words. */
#define FAILS(call, status, words)                      \
    do {                                                \
        CHECK((call) == (status));                      \
        CHECK(strstr(bristlecone_errmsg(), words));     \
    } while (0)

/* Returns a path in shared memory that no other process uses; removes an existing file. */
static inline const char *scratch(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "/dev/shm/bristlecone-c-%ld-%s.pool", (long)getpid(), name);
    unlink(path);
    return path;
}

static inline bristlecone_pool *open_pool(const char *path, uint32_t flags)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    options.flags = flags;
    options.max_bytes = flags & BRISTLECONE_READ ? 0 : 64 << 20;
    options.recovery_threads = 1;
    OK(bristlecone_pool_open(path, &options, &pool));
    CHECK(pool != NULL);
    return pool;
}

static inline bristlecone_tree *open_tree(bristlecone_pool *pool, const char *name, const char *keys, const char *values)
{
    bristlecone_tree *tree = NULL;
    OK(bristlecone_tree_open_or_create(pool, name, keys, values, &tree));
    CHECK(tree != NULL);
    return tree;
}

#endif
