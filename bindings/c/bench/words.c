/* Puts and gets of u64 by the C library: the counterpart of examples/words.rs. Prints nanoseconds for each. */
#define _POSIX_C_SOURCE 200809L

#include <bristlecone.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void must(int status)
{
    if (status != BRISTLECONE_OK) {
        fprintf(stderr, "words: %s\n", bristlecone_errmsg());
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: words POOL DESIGN KEYS\n");
        return 2;
    }
    uint64_t keys = strtoull(argv[3], NULL, 10), sum = 0;
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_tree_options how = BRISTLECONE_TREE_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    bristlecone_tree *tree = NULL;
    options.flags = BRISTLECONE_CREATE_NEW;
    options.max_bytes = (uint64_t)4 << 30;
    how.design = argv[2];
    must(bristlecone_pool_open(argv[1], &options, &pool));
    must(bristlecone_pool_prefault(pool, keys * 64));
    must(bristlecone_tree_create(pool, "words", "u64", "u64", &how, &tree));

    double begun = now();
    for (uint64_t i = 0; i < keys; i++) must(bristlecone_put_u64(tree, i * UINT64_C(0x9E3779B97F4A7C15), i));
    double put = (now() - begun) / (double)keys;
    begun = now();
    for (uint64_t i = 0; i < keys; i++) {
        uint64_t value = 0;
        must(bristlecone_get_u64(tree, (keys - 1 - i) * UINT64_C(0x9E3779B97F4A7C15), &value));
        sum += value;
    }
    double get = (now() - begun) / (double)keys;
    must(bristlecone_tree_close(tree));
    must(bristlecone_pool_close(pool));
    printf("%.1f %.1f %" PRIu64 "\n", put, get, sum);
    return 0;
}
