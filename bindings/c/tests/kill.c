/* Killed writers: all acknowledged data is present afterwards. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>

#define ROUNDS 8

/* Writes keys from `first` on, and reports each once it is durable. */
static void write_until_killed(const char *path, uint64_t first, int report)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    bristlecone_tree *words = NULL, *texts = NULL;

    options.flags = BRISTLECONE_CREATE;
    options.max_bytes = 256 << 20;
    OK(bristlecone_pool_open(path, &options, &pool));
    OK(bristlecone_tree_open_or_create(pool, "words", "u64", "u64", &words));
    OK(bristlecone_tree_open_or_create(pool, "texts", "bytes", "bytes", &texts));
    for (uint64_t key = first;; key++) {
        char text[32];
        int bytes = snprintf(text, sizeof(text), "item %llu", (unsigned long long)key);
        OK(bristlecone_put_u64(words, key, ~key));
        OK(bristlecone_put(texts, text, (size_t)bytes, &key, sizeof(key)));
        if (write(report, &key, sizeof(key)) != sizeof(key)) _exit(1);
    }
}

static void verify(const char *path, uint64_t acknowledged)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool_info info = BRISTLECONE_POOL_INFO_INIT;
    bristlecone_pool *pool = NULL;
    bristlecone_tree *words = NULL, *texts = NULL;
    uint64_t items = 0, value = 0;
    size_t bytes = 0;

    options.recovery_threads = 1;
    OK(bristlecone_pool_open(path, &options, &pool));
    OK(bristlecone_pool_get_info(pool, &info));
    CHECK(!info.was_clean);
    OK(bristlecone_tree_open(pool, "words", &words));
    OK(bristlecone_tree_open(pool, "texts", &texts));
    OK(bristlecone_tree_check(words, NULL, NULL));
    OK(bristlecone_tree_check(texts, NULL, NULL));
    for (uint64_t key = 0; key < acknowledged; key++) {
        char text[32];
        int text_bytes = snprintf(text, sizeof(text), "item %llu", (unsigned long long)key);
        OK(bristlecone_get_u64(words, key, &value));
        CHECK(value == ~key);
        OK(bristlecone_get(texts, text, (size_t)text_bytes, &value, sizeof(value), &bytes));
        CHECK(value == key && bytes == sizeof(value));
    }
    OK(bristlecone_tree_len(words, &items));
    /* In addition, at most the write in progress may be present. */
    CHECK(items == acknowledged || items == acknowledged + 1);
    OK(bristlecone_tree_close(words));
    OK(bristlecone_tree_close(texts));
    OK(bristlecone_pool_close(pool));
}

int main(void)
{
    const char *path = scratch("kill");
    uint64_t written = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2], status = 0;
        uint64_t key = 0;
        CHECK(pipe(ends) == 0);
        fflush(NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(ends[0]);
            write_until_killed(path, written, ends[1]);
        }
        close(ends[1]);
        uint64_t acknowledged = written, enough = 500 + 137 * (uint64_t)round;
        while (acknowledged - written < enough && read(ends[0], &key, sizeof(key)) == sizeof(key)) acknowledged = key + 1;
        CHECK(kill(child, SIGKILL) == 0);
        while (read(ends[0], &key, sizeof(key)) == sizeof(key)) acknowledged = key + 1;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && acknowledged - written >= enough);
        close(ends[0]);
        verify(path, acknowledged);
        written = acknowledged;
    }
    unlink(path);
    printf("kill.c: %llu items, %d killed writers, nothing lost\n", (unsigned long long)written, ROUNDS);
    return 0;
}
