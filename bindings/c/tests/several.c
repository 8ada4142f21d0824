/* Atomic operations on several keys: batches, snapshots, transactions, and a bank whose writers are killed. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static uint64_t held(bristlecone_tree *tree, uint64_t key)
{
    uint64_t value = UINT64_MAX;
    int status = bristlecone_get_u64(tree, key, &value);
    CHECK(status == BRISTLECONE_OK || status == BRISTLECONE_ABSENT);
    return value;
}

static void batches(void)
{
    const char *path = scratch("batches");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *words = open_tree(pool, "words", "u64", "u64"), *texts = open_tree(pool, "texts", "str", "str");
    bristlecone_batch *batch = NULL;
    uint64_t one = 1, two = 2;

    OK(bristlecone_put_u64(words, 9, 9));
    OK(bristlecone_batch_begin(pool, &batch));
    OK(bristlecone_batch_put(batch, words, WORD(1), WORD(1)));
    OK(bristlecone_batch_remove(batch, words, WORD(9)));
    OK(bristlecone_batch_expect(batch, words, WORD(1), NULL, 0));
    OK(bristlecone_batch_put(batch, texts, "a", 1, "x", 1));
    OK(bristlecone_batch_remove(batch, texts, "b", 1));
    OK(bristlecone_batch_expect(batch, texts, "a", 1, NULL, 0));
    CHECK(held(words, 1) == UINT64_MAX && bristlecone_contains(texts, "a", 1) == BRISTLECONE_ABSENT);
    OK(bristlecone_batch_commit(batch));
    CHECK(held(words, 1) == 1 && held(words, 9) == UINT64_MAX);
    OK(bristlecone_contains(texts, "a", 1));
    FAILS(bristlecone_batch_commit(batch), BRISTLECONE_USAGE, "was closed");
    FAILS(bristlecone_batch_put(batch, words, WORD(1), WORD(1)), BRISTLECONE_USAGE, "was closed");

    /* A false condition prevents all changes. */
    OK(bristlecone_batch_begin(pool, &batch));
    OK(bristlecone_batch_expect(batch, words, WORD(1), WORD(two)));
    OK(bristlecone_batch_put(batch, texts, "a", 1, "y", 1));
    FAILS(bristlecone_batch_commit(batch), BRISTLECONE_CONFLICT, "condition");
    FAILS(bristlecone_batch_discard(batch), BRISTLECONE_USAGE, "was closed");
    OK(bristlecone_batch_begin(pool, &batch));
    OK(bristlecone_batch_expect(batch, words, WORD(1), WORD(one)));
    OK(bristlecone_batch_expect(batch, texts, "a", 1, "x", 1));
    OK(bristlecone_batch_put(batch, texts, "a", 1, "", 0));
    OK(bristlecone_batch_commit(batch));

    /* Invalid arguments, and discarded batches. */
    const char *other_path = "/dev/shm/bristlecone-c-other.pool";
    unlink(other_path);
    bristlecone_pool *other = open_pool(other_path, BRISTLECONE_CREATE);
    bristlecone_tree *strange = open_tree(other, "words", "u64", "u64");
    OK(bristlecone_batch_begin(pool, &batch));
    FAILS(bristlecone_batch_put(batch, strange, WORD(1), WORD(1)), BRISTLECONE_USAGE, "another pool");
    FAILS(bristlecone_batch_put(batch, words, "a", 1, WORD(1)), BRISTLECONE_USAGE, "a key of 1 bytes, where u64 has 8");
    FAILS(bristlecone_batch_put(batch, texts, "\xff", 1, "", 0), BRISTLECONE_USAGE, "UTF-8");
    FAILS(bristlecone_batch_put((bristlecone_batch *)pool, texts, "a", 1, "", 0), BRISTLECONE_USAGE, "not a batch");
    FAILS(bristlecone_batch_commit((bristlecone_batch *)words), BRISTLECONE_USAGE, "not a batch");
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_IN_USE, "3 trees, iterators, batches");
    OK(bristlecone_batch_put(batch, words, WORD(5), WORD(5)));
    OK(bristlecone_batch_discard(batch));
    CHECK(held(words, 5) == UINT64_MAX);

    OK(bristlecone_tree_close(strange));
    OK(bristlecone_pool_close(other));
    unlink(other_path);
    OK(bristlecone_tree_close(words));
    OK(bristlecone_tree_close(texts));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

static void snapshots(void)
{
    const char *path = scratch("snapshots");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *words = open_tree(pool, "words", "u64", "u64"), *texts = open_tree(pool, "texts", "str", "str");
    bristlecone_snapshot *then = NULL;
    bristlecone_iter *iter = NULL;
    uint64_t keys[200], values[200], value = 7;
    size_t count = 0, bytes = 0;
    char buffer[8];

    for (uint64_t key = 0; key < 100; key++) OK(bristlecone_put_u64(words, key, key));
    OK(bristlecone_put(texts, "a", 1, "old", 3));
    OK(bristlecone_snapshot_open(pool, 0, &then));
    for (uint64_t key = 0; key < 150; key++) OK(bristlecone_put_u64(words, key, key + 1000));
    OK(bristlecone_put(texts, "a", 1, "new", 3));
    OK(bristlecone_remove_u64(words, 50, NULL));
    OK(bristlecone_snapshot_get(then, words, WORD(50), &value, 8, NULL));
    CHECK(value == 50);
    CHECK(bristlecone_snapshot_get(then, words, WORD(120), &value, 8, NULL) == BRISTLECONE_ABSENT && value == 50);
    OK(bristlecone_snapshot_get(then, texts, "a", 1, buffer, sizeof(buffer), &bytes));
    CHECK(bytes == 3 && memcmp(buffer, "old", 3) == 0);
    FAILS(bristlecone_snapshot_get(then, texts, "a", 1, buffer, 2, &bytes), BRISTLECONE_TOO_SMALL, "small");
    OK(bristlecone_snapshot_bytes(then, &bytes));
    CHECK(bytes > 0);

    uint64_t from = 90;
    bristlecone_range range = BRISTLECONE_RANGE_INIT;
    range.from = &from;
    range.from_bytes = 8;
    OK(bristlecone_snapshot_iter_open(then, words, &range, &iter));
    OK(bristlecone_snapshot_close(then));
    OK(bristlecone_iter_next_back_u64(iter, keys, values, 1, &count));
    CHECK(keys[0] == 99 && values[0] == 99);
    OK(bristlecone_iter_next_u64(iter, keys, values, 200, &count));
    CHECK(count == 9 && keys[0] == 90 && values[8] == 98);
    FAILS(bristlecone_pool_close(pool), BRISTLECONE_IN_USE, "close them first");
    OK(bristlecone_iter_close(iter));
    FAILS(bristlecone_snapshot_get(then, words, WORD(1), &value, 8, NULL), BRISTLECONE_USAGE, "was closed");

    OK(bristlecone_snapshot_open(pool, 1000, &then));
    for (uint64_t key = 0; key < 100; key++) OK(bristlecone_put_u64(words, key, 0));
    FAILS(bristlecone_snapshot_get(then, words, WORD(1), &value, 8, NULL), BRISTLECONE_SNAPSHOT_TOO_OLD, "too old");
    OK(bristlecone_snapshot_iter_open(then, words, NULL, &iter));
    CHECK(bristlecone_iter_next_u64(iter, keys, values, 1, &count) == BRISTLECONE_SNAPSHOT_TOO_OLD);
    OK(bristlecone_iter_close(iter));
    OK(bristlecone_snapshot_close(then));
    OK(bristlecone_tree_close(words));
    OK(bristlecone_tree_close(texts));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

/* Sums the items it receives, and stops at the third. */
static int add(void *context, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    uint64_t *sum = context, item = 0;
    CHECK(key != NULL && key_bytes == 8 && value_bytes == 8);
    memcpy(&item, value, 8);
    sum[0] += item;
    return ++sum[1] == 3;
}

static void transactions(void)
{
    const char *path = scratch("transactions");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *words = open_tree(pool, "words", "u64", "u64"), *texts = open_tree(pool, "texts", "str", "str");
    bristlecone_transaction *first = NULL, *second = NULL;
    uint64_t value = 0, sum[2] = {0, 0};
    char buffer[8];
    size_t bytes = 0;

    for (uint64_t key = 1; key <= 5; key++) OK(bristlecone_put_u64(words, key, key));
    OK(bristlecone_transaction_begin(pool, &first));
    OK(bristlecone_transaction_begin(pool, &second));
    OK(bristlecone_transaction_get(first, words, WORD(1), &value, 8, NULL));
    OK(bristlecone_transaction_put(first, words, WORD(1), WORD(value + 10)));
    OK(bristlecone_transaction_get(first, words, WORD(1), &value, 8, NULL));
    CHECK(value == 11 && held(words, 1) == 1);
    OK(bristlecone_transaction_scan(first, words, NULL, add, sum));
    CHECK(sum[0] == 11 + 2 + 3 && sum[1] == 3);
    OK(bristlecone_transaction_put(first, texts, "a", 1, "one", 3));
    OK(bristlecone_transaction_get(first, texts, "a", 1, buffer, sizeof(buffer), &bytes));
    CHECK(bytes == 3);
    OK(bristlecone_transaction_remove(first, texts, "a", 1));
    CHECK(bristlecone_transaction_get(first, texts, "a", 1, buffer, 8, &bytes) == BRISTLECONE_ABSENT);
    OK(bristlecone_transaction_remove(first, words, WORD(5)));
    OK(bristlecone_transaction_get(second, words, WORD(1), &value, 8, NULL));
    OK(bristlecone_transaction_put(second, words, WORD(2), WORD(value)));
    OK(bristlecone_transaction_commit(first));
    CHECK(held(words, 1) == 11 && held(words, 5) == UINT64_MAX);
    FAILS(bristlecone_transaction_commit(second), BRISTLECONE_CONFLICT, "conflict: ");
    CHECK(held(words, 2) == 2);
    FAILS(bristlecone_transaction_rollback(second), BRISTLECONE_USAGE, "was closed");

    OK(bristlecone_transaction_begin(pool, &first));
    OK(bristlecone_transaction_put(first, words, WORD(1), WORD(0)));
    FAILS(bristlecone_transaction_put((bristlecone_transaction *)pool, words, WORD(1), WORD(0)), BRISTLECONE_USAGE, "is a pool");
    OK(bristlecone_transaction_rollback(first));
    CHECK(held(words, 1) == 11);

    /* A child can use neither. */
    OK(bristlecone_transaction_begin(pool, &first));
    OK(bristlecone_transaction_put(first, words, WORD(1), WORD(0)));
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        CHECK(bristlecone_transaction_put(first, words, WORD(1), WORD(0)) == BRISTLECONE_FORKED);
        CHECK(bristlecone_transaction_commit(first) == BRISTLECONE_FORKED);
        OK(bristlecone_transaction_rollback(first));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(bristlecone_transaction_commit(first));
    CHECK(held(words, 1) == 0);
    OK(bristlecone_tree_close(words));
    OK(bristlecone_tree_close(texts));
    OK(bristlecone_pool_close(pool));
    unlink(path);
}

#define ACCOUNTS 20
#define TOTAL (ACCOUNTS * 100)

struct bank {
    bristlecone_pool *pool;
    bristlecone_tree *accounts;
    uint64_t seed;
    uint64_t transfers;
};

/* Moves money between accounts, until enough transfers were made. */
static void *transfer(void *context)
{
    struct bank *bank = context;
    for (uint64_t done = 0; done < bank->transfers;) {
        bank->seed = bank->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t from = (bank->seed >> 33) % ACCOUNTS, to = (from + 1 + (bank->seed >> 50) % (ACCOUNTS - 1)) % ACCOUNTS;
        uint64_t rich = 0, poor = 0;
        bristlecone_transaction *transaction = NULL;
        OK(bristlecone_transaction_begin(bank->pool, &transaction));
        OK(bristlecone_transaction_get(transaction, bank->accounts, WORD(from), &rich, 8, NULL));
        OK(bristlecone_transaction_get(transaction, bank->accounts, WORD(to), &poor, 8, NULL));
        uint64_t moved = rich < 7 ? rich : 7;
        OK(bristlecone_transaction_put(transaction, bank->accounts, WORD(from), WORD(rich - moved)));
        OK(bristlecone_transaction_put(transaction, bank->accounts, WORD(to), WORD(poor + moved)));
        int status = bristlecone_transaction_commit(transaction);
        CHECK(status == BRISTLECONE_OK || status == BRISTLECONE_CONFLICT);
        done += status == BRISTLECONE_OK;
    }
    return NULL;
}

static uint64_t total(bristlecone_pool *pool, bristlecone_tree *accounts)
{
    bristlecone_snapshot *now = NULL;
    uint64_t sum = 0, value = 0;
    OK(bristlecone_snapshot_open(pool, 0, &now));
    for (uint64_t account = 0; account < ACCOUNTS; account++) {
        OK(bristlecone_snapshot_get(now, accounts, WORD(account), &value, 8, NULL));
        sum += value;
    }
    OK(bristlecone_snapshot_close(now));
    return sum;
}

static void a_bank(void)
{
    const char *path = scratch("bank");
    bristlecone_pool *pool = open_pool(path, BRISTLECONE_CREATE);
    bristlecone_tree *accounts = open_tree(pool, "accounts", "u64", "u64");
    pthread_t threads[2];
    struct bank banks[2];

    for (uint64_t account = 0; account < ACCOUNTS; account++) OK(bristlecone_put_u64(accounts, account, 100));
    for (int i = 0; i < 2; i++) {
        banks[i] = (struct bank){pool, accounts, (uint64_t)i + 1, 500};
        CHECK(pthread_create(&threads[i], NULL, transfer, &banks[i]) == 0);
    }
    for (int look = 0; look < 50; look++) CHECK(total(pool, accounts) == TOTAL);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(total(pool, accounts) == TOTAL);
    OK(bristlecone_tree_close(accounts));
    OK(bristlecone_pool_close(pool));

    for (int round = 0; round < 4; round++) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct bank bank = {open_pool(path, 0), NULL, (uint64_t)round + 7, UINT64_MAX};
            bank.accounts = open_tree(bank.pool, "accounts", "u64", "u64");
            transfer(&bank);
        }
        usleep(60000 + 17000 * (unsigned)round);
        CHECK(kill(child, SIGKILL) == 0);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        pool = open_pool(path, 0);
        accounts = open_tree(pool, "accounts", "u64", "u64");
        CHECK(total(pool, accounts) == TOTAL);
        OK(bristlecone_tree_check(accounts, NULL, NULL));
        OK(bristlecone_tree_close(accounts));
        OK(bristlecone_pool_close(pool));
    }
    unlink(path);
}

int main(void)
{
    batches();
    snapshots();
    transactions();
    a_bank();
    puts("several.c: all is well");
    return 0;
}
