/* Pools with a journal: durability, tickets, the folder, syncs, checkpoints and the state. */
#include "check.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Returns the number of files in a folder. */
static int files(const char *folder)
{
    DIR *open = opendir(folder);
    int count = 0;
    if (!open) return 0;
    for (struct dirent *entry; (entry = readdir(open));) count += entry->d_name[0] != '.';
    closedir(open);
    return count;
}

/* Removes a pool and its journal. */
static void remove_all(const char *path, const char *folder)
{
    DIR *open = opendir(folder);
    unlink(path);
    if (!open) return;
    for (struct dirent *entry; (entry = readdir(open));) {
        char name[512];
        snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
        unlink(name);
    }
    closedir(open);
    CHECK(rmdir(folder) == 0);
}

static bristlecone_open_options with_journal(uint32_t durability, uint32_t interval_ms, const char *folder)
{
    bristlecone_open_options options = BRISTLECONE_OPEN_OPTIONS_INIT;
    options.flags = BRISTLECONE_CREATE;
    options.domain = BRISTLECONE_DOMAIN_JOURNAL;
    options.max_bytes = 64 << 20;
    options.recovery_threads = 1;
    options.durability = durability;
    options.interval_ms = interval_ms;
    options.journal = folder;
    return options;
}

static bristlecone_journal_status status_of(bristlecone_pool *pool)
{
    bristlecone_journal_status status = BRISTLECONE_JOURNAL_STATUS_INIT;
    OK(bristlecone_pool_get_journal_status(pool, &status));
    return status;
}

struct writes {
    bristlecone_tree *tree;
    uint64_t from;
    int returns;
};

/* Writes ten keys. */
static int write_ten(void *context)
{
    struct writes *writes = context;
    for (uint64_t key = writes->from; key < writes->from + 10; key++) OK(bristlecone_put_u64(writes->tree, key, key));
    return writes->returns;
}

static void count(void *context)
{
    __atomic_fetch_add((int *)context, 1, __ATOMIC_SEQ_CST);
}

static void tickets(const char *path, const char *folder)
{
    bristlecone_open_options options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 0, NULL);
    bristlecone_pool *pool = NULL;
    bristlecone_ticket *ticket = NULL, *second = NULL;
    int durable = 7, told = 0;
    OK(bristlecone_pool_open(path, &options, &pool));
    struct writes writes = {open_tree(pool, "t", "u64", "u64"), 0, 0};
    OK(bristlecone_pool_with_ticket(pool, write_ten, &writes, &ticket));
    OK(bristlecone_ticket_is_durable(ticket, &durable));
    CHECK(durable == 0);
    OK(bristlecone_ticket_notify(ticket, count, &told));
    for (int round = 0; __atomic_load_n(&told, __ATOMIC_SEQ_CST) == 0; round++) {
        CHECK(round < 10000);
        usleep(1000);
    }
    OK(bristlecone_ticket_is_durable(ticket, &durable));
    CHECK(durable == 1);
    OK(bristlecone_ticket_notify(ticket, count, &told));
    CHECK(told == 2);
    writes.from = 10;
    OK(bristlecone_pool_with_ticket(pool, write_ten, &writes, &second));
    OK(bristlecone_ticket_wait(second));
    OK(bristlecone_ticket_wait(second));
    OK(bristlecone_ticket_is_durable(second, &durable));
    CHECK(durable == 1);
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_IN_USE, "");
    OK(bristlecone_ticket_close(second));
    OK(bristlecone_ticket_close(ticket));
    FAILS(bristlecone_ticket_wait(ticket), BRISTLECONE_USAGE, "");

    /* A function that fails leaves its writes, which are acknowledged. */
    writes.from = 20;
    writes.returns = 99;
    ticket = NULL;
    FAILS(bristlecone_pool_with_ticket(pool, write_ten, &writes, &ticket), 99, "returned 99");
    CHECK(ticket == NULL);
    CHECK(status_of(pool).durable_lsn == status_of(pool).lsn);
    FAILS(bristlecone_pool_with_ticket(pool, NULL, NULL, &ticket), BRISTLECONE_USAGE, "null");
    FAILS(bristlecone_ticket_notify(NULL, count, &told), BRISTLECONE_USAGE, "");
    uint64_t value = 0;
    OK(bristlecone_get_u64(writes.tree, 29, &value));
    CHECK(value == 29);
    OK(bristlecone_tree_close(writes.tree));
    OK(bristlecone_pool_close(pool));
    remove_all(path, folder);

    /* Without a journal the writes are durable when they return. */
    options.domain = BRISTLECONE_DOMAIN_PROCESS;
    OK(bristlecone_pool_open(path, &options, &pool));
    writes = (struct writes){open_tree(pool, "t", "u64", "u64"), 0, 0};
    OK(bristlecone_pool_with_ticket(pool, write_ten, &writes, &ticket));
    OK(bristlecone_ticket_is_durable(ticket, &durable));
    CHECK(durable == 1);
    OK(bristlecone_ticket_notify(ticket, count, &told));
    CHECK(told == 3);
    OK(bristlecone_ticket_wait(ticket));
    FAILS(bristlecone_ticket_notify(ticket, NULL, NULL), BRISTLECONE_USAGE, "null");
    OK(bristlecone_ticket_close(ticket));
    OK(bristlecone_tree_close(writes.tree));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void commits(const char *path, const char *folder)
{
    bristlecone_open_options options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 0, NULL);
    bristlecone_pool *pool = NULL;
    uint64_t value = 0;

    OK(bristlecone_pool_open(path, &options, &pool));
    bristlecone_tree *tree = open_tree(pool, "words", "u64", "u64");
    for (uint64_t key = 0; key < 500; key++) OK(bristlecone_put_u64(tree, key, key));
    bristlecone_journal_status status = status_of(pool);
    CHECK(status.durability == BRISTLECONE_DURABILITY_COMMIT && status.interval_ms == 0 && !status.failed);
    CHECK(status.lsn > 500 * 32 && status.durable_lsn == status.lsn && status.bytes_since_checkpoint == status.lsn);
    CHECK(status.checkpoint_lsn == BRISTLECONE_NO_CHECKPOINT && status.segment_bytes >= 500 * 4096);
    CHECK(status.syncs >= 500 && status.sync_mean_ns > 0 && status.sync_mean_ns <= status.sync_max_ns);
    CHECK(status.sync_p50_ns <= status.sync_p99_ns && status.sync_p99_ns <= status.sync_max_ns);
    OK(bristlecone_pool_sync(pool));

    OK(bristlecone_pool_checkpoint(pool));
    bristlecone_journal_status after = status_of(pool);
    CHECK(after.checkpoint_lsn == status.lsn && after.bytes_since_checkpoint == 0);
    OK(bristlecone_pool_prune_journal(pool));
    /* A manifest, the ring, a segment and the checkpoint. */
    CHECK(files(folder) == 4);
    OK(bristlecone_put_u64(tree, 7, 8));
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));

    /* The folder must be there. */
    char away[256];
    snprintf(away, sizeof(away), "%s.away", folder);
    CHECK(rename(folder, away) == 0);
    FAILS(bristlecone_pool_open(path, NULL, &pool), BRISTLECONE_ABSENT, "the journal of");
    options.journal = away;
    OK(bristlecone_pool_open(path, &options, &pool));
    tree = open_tree(pool, "words", "u64", "u64");
    OK(bristlecone_get_u64(tree, 7, &value));
    CHECK(value == 8);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    CHECK(files(folder) == 0);
    remove_all(path, away);
}

static void later(const char *path, const char *folder)
{
    /* Longer than the test, so that only the calls here sync. */
    const bristlecone_open_options all[] = {
        with_journal(BRISTLECONE_DURABILITY_MEMORY, 0, NULL),
        with_journal(BRISTLECONE_DURABILITY_INTERVAL, 1000 * 1000, folder),
    };
    for (int i = 0; i < 2; i++) {
        bristlecone_pool *pool = NULL;
        OK(bristlecone_pool_open(path, &all[i], &pool));
        bristlecone_tree *tree = open_tree(pool, "words", "u64", "u64");
        OK(bristlecone_put_u64(tree, 1, 2));
        bristlecone_journal_status status = status_of(pool);
        CHECK(status.durability == all[i].durability && status.interval_ms == all[i].interval_ms);
        CHECK(status.durable_lsn < status.lsn && status.syncs == 0 && status.sync_max_ns == 0);
        OK(bristlecone_pool_sync(pool));
        status = status_of(pool);
        CHECK(status.durable_lsn == status.lsn && status.syncs == 1);
        OK(bristlecone_tree_close(tree));
        OK(bristlecone_pool_close(pool));
        remove_all(path, folder);
    }
}

static void killed(const char *path, const char *folder)
{
    pid_t child = fork();
    if (child == 0) {
        bristlecone_open_options options = with_journal(BRISTLECONE_DURABILITY_MEMORY, 0, NULL);
        bristlecone_pool *pool = NULL;
        OK(bristlecone_pool_open(path, &options, &pool));
        bristlecone_tree *tree = open_tree(pool, "words", "u64", "u64");
        for (uint64_t key = 0; key < 1000; key++) OK(bristlecone_put_u64(tree, key, ~key));
        kill(getpid(), SIGKILL);
    }
    int ended = 0;
    CHECK(waitpid(child, &ended, 0) == child && WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    bristlecone_pool *pool = NULL;
    OK(bristlecone_pool_open(path, NULL, &pool));
    bristlecone_tree *tree = open_tree(pool, "words", "u64", "u64");
    for (uint64_t key = 0; key < 1000; key++) {
        uint64_t value = 0;
        OK(bristlecone_get_u64(tree, key, &value));
        CHECK(value == ~key);
    }
    bristlecone_journal_status status = status_of(pool);
    CHECK(status.durable_lsn == status.lsn && status.lsn > 1000 * 32);
    OK(bristlecone_tree_close(tree));
    OK(bristlecone_pool_close(pool));
    remove_all(path, folder);
}

static void wrong(const char *path, const char *folder)
{
    bristlecone_pool *pool = NULL;
    bristlecone_open_options options = with_journal(4, 0, NULL);
    FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "no durability 4");
    options = with_journal(BRISTLECONE_DURABILITY_INTERVAL, 0, NULL);
    FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "interval of 0");
    options = with_journal(BRISTLECONE_DURABILITY_MEMORY, 5, NULL);
    FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "interval_ms is 5");
    options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 5, NULL);
    FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "interval_ms is 5");
    options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 0, "");
    FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "empty");
    options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 0, "/proc/none/deeper");
    CHECK(bristlecone_pool_open(path, &options, &pool) != BRISTLECONE_OK);
    for (uint32_t durability = 1; durability <= 3; durability++) {
        options = with_journal(durability, durability == BRISTLECONE_DURABILITY_INTERVAL, NULL);
        options.domain = BRISTLECONE_DOMAIN_PROCESS;
        FAILS(bristlecone_pool_open(path, &options, &pool), BRISTLECONE_USAGE, "domain journal");
    }
    CHECK(pool == NULL && access(path, F_OK) != 0);

    /* A pool without a journal. */
    bristlecone_journal_status status = BRISTLECONE_JOURNAL_STATUS_INIT;
    status.lsn = 77;
    options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 0, NULL);
    options.domain = BRISTLECONE_DOMAIN_PROCESS;
    OK(bristlecone_pool_open(path, &options, &pool));
    FAILS(bristlecone_pool_get_journal_status(pool, &status), BRISTLECONE_ABSENT, "does not write a journal");
    CHECK(status.lsn == 77);
    OK(bristlecone_pool_sync(pool));
    FAILS(bristlecone_pool_checkpoint(pool), BRISTLECONE_USAGE, "only pools of the domain journal");
    FAILS(bristlecone_pool_prune_journal(pool), BRISTLECONE_USAGE, "only pools of the domain journal");
    OK(bristlecone_pool_close(pool));
    FAILS(bristlecone_pool_sync(pool), BRISTLECONE_USAGE, "");
    FAILS(bristlecone_pool_checkpoint(NULL), BRISTLECONE_USAGE, "");
    FAILS(bristlecone_pool_prune_journal(NULL), BRISTLECONE_USAGE, "");
    FAILS(bristlecone_pool_get_journal_status(NULL, &status), BRISTLECONE_USAGE, "");
    remove_all(path, folder);

    /* Structs of other sizes. */
    options = with_journal(BRISTLECONE_DURABILITY_DEFAULT, 0, NULL);
    OK(bristlecone_pool_open(path, &options, &pool));
    FAILS(bristlecone_pool_get_journal_status(pool, NULL), BRISTLECONE_USAGE, "null");
    status.struct_bytes = 3;
    FAILS(bristlecone_pool_get_journal_status(pool, &status), BRISTLECONE_USAGE, "3 bytes");
    status.struct_bytes = offsetof(bristlecone_journal_status, lsn);
    OK(bristlecone_pool_get_journal_status(pool, &status));
    CHECK(status.durability == BRISTLECONE_DURABILITY_COMMIT && status.lsn == 77);
    OK(bristlecone_pool_close(pool));
    /* Options of a program that knows nothing of journals. */
    options.struct_bytes = offsetof(bristlecone_open_options, durability);
    options.durability = 99;
    OK(bristlecone_pool_open(path, &options, &pool));
    OK(bristlecone_pool_close(pool));
    remove_all(path, folder);
}

int main(void)
{
    char path[128], folder[160];
    snprintf(path, sizeof(path), "%s", scratch("journal"));
    snprintf(folder, sizeof(folder), "%s.journal", path);
    tickets(path, folder);
    commits(path, folder);
    later(path, folder);
    killed(path, folder);
    wrong(path, folder);
    printf("journal.c: all is well\n");
    return 0;
}
