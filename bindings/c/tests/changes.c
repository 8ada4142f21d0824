/* The change stream of a pool with a journal, and its cursors. */
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static bristlecone_pool *open_journal(const char *path, uint64_t cursor_limit)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    bristlecone_pool *pool = NULL;
    options.flags = BRISTLECONE_CREATE;
    options.domain = BRISTLECONE_DOMAIN_JOURNAL;
    options.max_bytes = 64 << 20;
    options.recovery_threads = 1;
    options.cursor_limit_bytes = cursor_limit;
    OK(bristlecone_pool_open(path, &options, &pool));
    return pool;
}

static void remove_pool(const char *path)
{
    char folder[160], name[512];
    snprintf(folder, sizeof(folder), "%s.journal", path);
    unlink(path);
    DIR *open = opendir(folder);
    if (!open) return;
    for (struct dirent *entry; (entry = readdir(open));) {
        snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
        unlink(name);
    }
    closedir(open);
    CHECK(rmdir(folder) == 0);
}

static bristlecone_change next(bristlecone_changes *changes)
{
    bristlecone_change change = BRISTLECONE_CHANGE_INIT;
    OK(bristlecone_changes_next(changes, 10000, &change));
    return change;
}

static int is(const void *found, size_t bytes, const char *text)
{
    return bytes == strlen(text) && memcmp(found, text, bytes) == 0;
}

static void every_kind(const char *path)
{
    bristlecone_pool *pool = open_journal(path, 0);
    bristlecone_changes *changes = NULL;
    bristlecone_batch *batch = NULL;
    bristlecone_change change = BRISTLECONE_CHANGE_INIT;
    const uint64_t number = 7;
    bristlecone_tree *tree = open_tree(pool, "ages", "str", "(u64, str)");
    OK(bristlecone_changes_open(pool, 0, &changes));
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_CREATE);
    CHECK(strcmp(change.tree, "ages") == 0 && strcmp(change.key_kind, "str") == 0);
    CHECK(strcmp(change.value_kind, "(u64, str)") == 0 && change.lsn == 0 && change.is_last);
    CHECK(change.existed == -1 && !change.key && !change.value && !change.renamed_to && change.time_ms > 1000);
    FAILS(bristlecone_changes_next(changes, 0, &change), BRISTLECONE_ABSENT, "durable");

    const char value[] = "\7\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0old";
    OK(bristlecone_batch_begin(pool, &batch));
    OK(bristlecone_batch_put(batch, tree, "Methuselah", 10, value, sizeof(value) - 1));
    OK(bristlecone_batch_remove(batch, tree, "Pando", 5));
    OK(bristlecone_batch_commit(batch));
    uint64_t before = change.next_lsn;
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_PUT && change.existed == 0 && !change.is_last);
    CHECK(change.lsn >= before && is(change.key, change.key_bytes, "Methuselah"));
    CHECK(change.value_bytes == sizeof(value) - 1 && memcmp(change.value, value, sizeof(value) - 1) == 0);
    CHECK(memcmp(change.value, &number, 8) == 0);
    uint64_t lsn = change.lsn;
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_REMOVE && change.lsn == lsn && change.is_last);
    CHECK(change.existed == 0 && is(change.key, change.key_bytes, "Pando") && change.value == NULL);
    OK(bristlecone_tree_close(tree));

    OK(bristlecone_pool_rename_tree(pool, "ages", "years"));
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_RENAME);
    CHECK(strcmp(change.tree, "ages") == 0 && strcmp(change.renamed_to, "years") == 0);
    OK(bristlecone_pool_clear_tree(pool, "years"));
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_CLEAR && strcmp(change.tree, "years") == 0);
    CHECK(change.new_tree_id != change.tree_id);
    uint32_t id = change.new_tree_id;
    OK(bristlecone_pool_drop_tree(pool, "years"));
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_DROP && change.tree_id == id);

    /* A program that was compiled with fewer members, and wrong ones. */
    tree = open_tree(pool, "t", "u64", "()");
    OK(bristlecone_put(tree, &number, 8, NULL, 0));
    next(changes);
    change.struct_bytes = 8;
    FAILS(bristlecone_changes_next(changes, 0, &change), BRISTLECONE_USAGE, "too short");
    FAILS(bristlecone_changes_next(changes, 0, NULL), BRISTLECONE_USAGE, "null");
    CHECK((change = next(changes)).what == BRISTLECONE_CHANGE_PUT && change.key_bytes == 8 && change.value_bytes == 0);
    FAILS(bristlecone_changes_advance(changes, change.next_lsn), BRISTLECONE_USAGE, "no cursor");
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_IN_USE, "");
    OK(bristlecone_changes_close(changes));
    FAILS(bristlecone_changes_next(changes, 0, &change), BRISTLECONE_USAGE, "closed");
    FAILS(bristlecone_changes_open(pool, 1 << 30, &changes), BRISTLECONE_USAGE, "beyond the durable end");
    FAILS(bristlecone_changes_open(pool, 0, NULL), BRISTLECONE_USAGE, "null");

    /* A stream continues where another one ended. */
    OK(bristlecone_changes_open(pool, change.next_lsn, &changes));
    FAILS(bristlecone_changes_next(changes, 0, &change), BRISTLECONE_ABSENT, "");
    OK(bristlecone_changes_close(changes));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    remove_pool(path);
}

struct seen {
    int count;
    bristlecone_cursor last;
    char name[65];
};

static void see(void *context, const bristlecone_cursor *cursor)
{
    struct seen *seen = context;
    seen->count++;
    seen->last = *cursor;
    snprintf(seen->name, sizeof(seen->name), "%s", cursor->name);
}

static void cursors(const char *path)
{
    bristlecone_pool *pool = open_journal(path, 1 << 20);
    bristlecone_changes *changes = NULL, *second = NULL;
    bristlecone_change change;
    uint64_t begun = 7;
    struct seen seen = {0};
    bristlecone_tree *tree = open_tree(pool, "t", "u64", "bytes");
    OK(bristlecone_pool_create_cursor(pool, "audit", BRISTLECONE_DURABLE_END, &begun));
    OK(bristlecone_pool_create_cursor(pool, "other", 0, NULL));
    FAILS(bristlecone_pool_create_cursor(pool, "audit", 0, NULL), BRISTLECONE_USAGE, "exists");
    FAILS(bristlecone_pool_create_cursor(pool, "a/b", 0, NULL), BRISTLECONE_USAGE, "cannot name");
    FAILS(bristlecone_pool_create_cursor(pool, NULL, 0, NULL), BRISTLECONE_USAGE, "null");
    OK(bristlecone_pool_cursors(pool, see, &seen));
    CHECK(seen.count == 2 && strcmp(seen.name, "other") == 0 && seen.last.lsn == 0 && !seen.last.dropped);
    OK(bristlecone_pool_drop_cursor(pool, "other"));
    FAILS(bristlecone_pool_drop_cursor(pool, "other"), BRISTLECONE_ABSENT, "other");
    FAILS(bristlecone_changes_open_cursor(pool, "other", &changes), BRISTLECONE_ABSENT, "other");

    OK(bristlecone_changes_open_cursor(pool, "audit", &changes));
    FAILS(bristlecone_changes_open_cursor(pool, "audit", &second), BRISTLECONE_IN_USE, "");
    for (uint64_t key = 0; key < 10; key++) OK(bristlecone_put(tree, &key, 8, "x", 1));
    for (uint64_t key = 0; key < 5; key++) {
        change = next(changes);
        CHECK(change.lsn >= begun && memcmp(change.key, &key, 8) == 0);
    }
    OK(bristlecone_changes_advance(changes, change.next_lsn));
    FAILS(bristlecone_changes_advance(changes, begun), BRISTLECONE_USAGE, "");
    OK(bristlecone_pool_checkpoint(pool));
    next(changes);
    OK(bristlecone_changes_close(changes));
    /* Read, but not behind the cursor. */
    OK(bristlecone_changes_open_cursor(pool, "audit", &changes));
    change = next(changes);
    uint64_t key = 5;
    CHECK(memcmp(change.key, &key, 8) == 0);

    /* A consumer that does not advance loses its cursor. */
    char *much = calloc(1, 100000);
    for (key = 0; key < 600; key++) OK(bristlecone_put(tree, &(uint64_t){key % 8}, 8, much, 100000));
    free(much);
    OK(bristlecone_pool_checkpoint(pool));
    OK(bristlecone_pool_checkpoint(pool));
    int status;
    for (change = (bristlecone_change)BRISTLECONE_CHANGE_INIT; !(status = bristlecone_changes_next(changes, 1000, &change));) {}
    CHECK(status == BRISTLECONE_PRUNED && strstr(bristlecone_errmsg(), "audit"));
    OK(bristlecone_changes_close(changes));
    FAILS(bristlecone_changes_open_cursor(pool, "audit", &changes), BRISTLECONE_PRUNED, "dropped");
    seen.count = 0;
    OK(bristlecone_pool_cursors(pool, see, &seen));
    CHECK(seen.count == 1 && seen.last.dropped && seen.last.pinned_bytes == 0);
    OK(bristlecone_pool_drop_cursor(pool, "audit"));
    FAILS(bristlecone_pool_cursors(pool, NULL, NULL), BRISTLECONE_USAGE, "null");

    /* What is gone is told, with what is left. */
    bristlecone_journal_status left = BRISTLECONE_JOURNAL_STATUS_INIT;
    FAILS(bristlecone_changes_open(pool, 0, &changes), BRISTLECONE_PRUNED, "LSN");
    OK(bristlecone_pool_get_journal_status(pool, &left));
    CHECK(left.oldest_lsn > 0);
    OK(bristlecone_changes_open(pool, left.oldest_lsn, &changes));
    OK(bristlecone_put(tree, &(uint64_t){77}, 8, "y", 1));
    next(changes);
    OK(bristlecone_changes_close(changes));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    remove_pool(path);
}

static void *waits(void *context)
{
    bristlecone_change change = BRISTLECONE_CHANGE_INIT;
    return (void *)(intptr_t)bristlecone_changes_next(context, -1, &change);
}

static void threads_and_processes(const char *path)
{
    bristlecone_pool *pool = open_journal(path, 0);
    bristlecone_changes *changes = NULL;
    bristlecone_change change = BRISTLECONE_CHANGE_INIT;
    pthread_t thread;
    void *status = NULL;
    OK(bristlecone_changes_open(pool, 0, &changes));
    CHECK(pthread_create(&thread, NULL, waits, changes) == 0);
    usleep(50000);
    FAILS(bristlecone_changes_next(changes, 0, &change), BRISTLECONE_IN_USE, "another thread");
    FAILS(bristlecone_changes_close(changes), BRISTLECONE_IN_USE, "");
    OK(bristlecone_changes_stop(changes));
    CHECK(pthread_join(thread, &status) == 0 && (intptr_t)status == BRISTLECONE_ABSENT);
    FAILS(bristlecone_changes_next(changes, -1, &change), BRISTLECONE_ABSENT, "");
    pid_t child = fork();
    if (child == 0) {
        CHECK(bristlecone_changes_next(changes, -1, &change) == BRISTLECONE_FORKED);
        CHECK(bristlecone_changes_stop(changes) == BRISTLECONE_FORKED);
        OK(bristlecone_changes_close(changes));
        _exit(0);
    }
    int ended = 0;
    CHECK(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    OK(bristlecone_changes_close(changes));
    OK(bristlecone_pool_close(pool));
    remove_pool(path);

    pool = open_pool(path, BRISTLECONE_CREATE);
    FAILS(bristlecone_changes_open(pool, 0, &changes), BRISTLECONE_USAGE, "with a journal");
    FAILS(bristlecone_pool_create_cursor(pool, "c", 0, NULL), BRISTLECONE_USAGE, "with a journal");
    FAILS(bristlecone_pool_cursors(pool, see, NULL), BRISTLECONE_ABSENT, "journal");
    OK(bristlecone_pool_close(pool));
    unlink(path);
    FAILS(bristlecone_changes_open(NULL, 0, &changes), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_changes_stop(NULL), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_changes_advance(NULL, 0), BRISTLECONE_USAGE, "null");
}

int main(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s", scratch("changes"));
    every_kind(path);
    cursors(path);
    threads_and_processes(path);
    printf("changes.c: all is well\n");
    return 0;
}
