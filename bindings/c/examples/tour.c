/* Five minutes in C: a pool, a tree of strings, a tree of numbers, iteration, a counter shared by several threads.
 *
 *     cc tour.c $(pkg-config --cflags --libs bristlecone) -o tour && ./tour /dev/shm/tour.pool
 */
#include <bristlecone.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's message. */
static void must(int status)
{
    if (status != BRISTLECONE_OK) {
        fprintf(stderr, "tour: %s\n", bristlecone_errmsg());
        exit(status);
    }
}

/* Receives a value in place: no copy, no buffer that might be too small. */
static void print(void *context, const void *value, size_t bytes)
{
    printf("%s is %.*s\n", (const char *)context, (int)bytes, (const char *)value);
}

/* Counts a visit, atomically with other threads and processes. */
static uint64_t count(bristlecone_tree *visits, uint64_t page)
{
    uint64_t held = 0, next = 1;
    int is_there = 0;
    int status = bristlecone_insert_u64(visits, page, next, &held);
    if (status == BRISTLECONE_PRESENT) {
        do {
            next = held + 1;
            status = bristlecone_compare_and_swap_u64(visits, page, &held, &next, &is_there, &held);
        } while (status == BRISTLECONE_DIFFERS);
    }
    must(status);
    return next;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: tour POOL\n");
        return BRISTLECONE_USAGE;
    }
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    options.flags = BRISTLECONE_CREATE;
    options.max_bytes = 1 << 30;
    bristlecone_pool *pool = NULL;
    must(bristlecone_pool_open(argv[1], &options, &pool));

    /* Strings to strings. A put is durable when it returns BRISTLECONE_OK. */
    bristlecone_tree *trees = NULL;
    must(bristlecone_tree_open_or_create(pool, "trees", "str", "str", &trees));
    must(bristlecone_put(trees, "Methuselah", 10, "a bristlecone pine", 18));
    must(bristlecone_put(trees, "Hyperion", 8, "a redwood", 9));
    must(bristlecone_put(trees, "Pando", 5, "an aspen grove", 14));
    must(bristlecone_get_with(trees, "Pando", 5, print, "Pando"));
    if (bristlecone_contains(trees, "Yggdrasil", 9) == BRISTLECONE_ABSENT) printf("Yggdrasil is a legend\n");

    /* From "H" up to, but without, "N", in order. */
    bristlecone_range range = BRISTLECONE_RANGE_INIT;
    range.from = "H";
    range.from_bytes = 1;
    range.to = "N";
    range.to_bytes = 1;
    bristlecone_iter *iter = NULL;
    must(bristlecone_iter_open(trees, &range, &iter));
    const void *key = NULL, *value = NULL;
    size_t key_bytes = 0, value_bytes = 0;
    int status;
    while ((status = bristlecone_iter_next(iter, &key, &key_bytes, &value, &value_bytes)) == BRISTLECONE_OK) {
        printf("%.*s: %.*s\n", (int)key_bytes, (const char *)key, (int)value_bytes, (const char *)value);
    }
    if (status != BRISTLECONE_ABSENT) must(status);
    must(bristlecone_iter_close(iter));

    /* Numbers to numbers, without conversion to bytes. */
    bristlecone_tree *visits = NULL;
    must(bristlecone_tree_open_or_create(pool, "visits", "u64", "u64", &visits));
    printf("visit %" PRIu64 " of page 7\n", count(visits, 7));

    must(bristlecone_tree_close(visits));
    must(bristlecone_tree_close(trees));
    must(bristlecone_pool_close(pool));
    return 0;
}
