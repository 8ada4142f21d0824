// The C library for Node.js. JavaScript passes an operation, numbers and bytes; a job makes the call, on the thread of
// JavaScript or on one of libuv's, and its result becomes an object.

#define NAPI_VERSION 8
#include <node_api.h>

#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { NUMBERS = 8, PARTS = 5 };

// Operations. lib/native.js has the same list.
enum {
    OP_OPEN, OP_CLOSE, OP_COMMIT, OP_BEGIN, OP_SNAPSHOT_BYTES, OP_POOL_INFO, OP_JOURNAL_STATUS, OP_TREES, OP_CHECK, OP_MANAGE,
    OP_TREE_OPEN, OP_TREE_CREATE, OP_TREE_INFO, OP_LEN, OP_GET, OP_CONTAINS, OP_WRITE, OP_CHANGE, OP_GET_MANY, OP_PUT_MANY,
    OP_REMOVE_MANY, OP_REMOVE_RANGE, OP_FETCH, OP_CHANGES, OP_CHANGES_NEXT, OP_CHANGES_ADVANCE, OP_CREATE_CURSOR, OP_CURSORS,
    OP_TREE_EXPIRING, OP_EXPIRING_WRITE, OP_EXPIRY, OP_SET_EXPIRY, OP_REMOVE_EXPIRED, OP_COUNT
};

typedef struct {
    char *data;
    size_t bytes;
    int there;
} part;

// An argument of bytes ends with a zero that does not count, so that it can be a name.
typedef struct {
    int op;
    uint64_t numbers[NUMBERS];
    part parts[PARTS];
    br_result result;
    napi_deferred deferred;
    napi_async_work work;
} job;

// The open handles of an environment, which are closed with it: a worker that ends leaves no pool open.
typedef struct {
    struct open_handle { uint64_t handle; int type; } *open;
    size_t count, capacity;
} environment;

static void note(environment *of, int type, uint64_t handle)
{
    if (of->count == of->capacity) {
        size_t capacity = of->capacity ? 2 * of->capacity : 64;
        struct open_handle *grown = realloc(of->open, capacity * sizeof(*grown));
        // Without a note the handle stays open until the process ends.
        if (!grown) return;
        of->open = grown;
        of->capacity = capacity;
    }
    of->open[of->count++] = (struct open_handle){handle, type};
}

static void forget(environment *of, uint64_t handle)
{
    for (size_t at = 0; at < of->count; at++) {
        if (of->open[at].handle == handle) {
            of->open[at] = of->open[--of->count];
            return;
        }
    }
}

static void close_all(void *data)
{
    environment *of = data;
    for (int pools = 0; pools < 2; pools++) {
        for (size_t at = 0; at < of->count; at++) {
            if ((of->open[at].type == BR_POOL) == pools) free(br_close(of->open[at].type, (uintptr_t)of->open[at].handle).message);
        }
    }
    free(of->open);
    free(of);
}

static const char *text_of(const part *of) { return of->there ? of->data : NULL; }

static const void *bytes_of(const part *of) { return of->there ? (const void *)of->data : NULL; }

static br_result failed(const char *message)
{
    br_result of = {0};
    of.status = BRISTLECONE_FAILED;
    of.message = strdup(message);
    return of;
}

static br_result raw(br_result of, void *data, size_t bytes)
{
    if (of.status == BRISTLECONE_OK) {
        of.data = data;
        of.bytes = bytes;
        of.there = 1;
    } else {
        free(data);
    }
    return of;
}

static br_result info(int op, uintptr_t handle)
{
    const size_t bytes = sizeof(bristlecone_tree_info) + sizeof(bristlecone_pool_info) + sizeof(bristlecone_journal_status);
    void *data = calloc(1, bytes);
    if (!data) return failed("out of memory");
    switch (op) {
    case OP_POOL_INFO: return raw(br_pool_info(handle, data), data, bytes);
    case OP_JOURNAL_STATUS: return raw(br_journal_status(handle, data), data, bytes);
    default: return raw(br_tree_info(handle, data), data, bytes);
    }
}

// The options lie behind each other: a word, and a name with its zero.
static br_result create(const uint64_t *n, const part *b)
{
    enum { OPTIONS_MAX = 64 };
    bristlecone_option options[OPTIONS_MAX];
    size_t count = 0;
    for (size_t at = 0; at + sizeof(uint64_t) < b[4].bytes && count < OPTIONS_MAX; count++) {
        memcpy(&options[count].value, b[4].data + at, sizeof(uint64_t));
        options[count].name = b[4].data + at + sizeof(uint64_t);
        at += sizeof(uint64_t) + strlen(options[count].name) + 1;
    }
    return br_tree_create((uintptr_t)n[0], text_of(&b[0]), text_of(&b[1]), text_of(&b[2]), text_of(&b[3]), options, count, n[1]);
}

static br_result get(const uint64_t *n, const part *key)
{
    size_t capacity = 256;
    for (;;) {
        void *to = malloc(capacity);
        if (!to) return failed("out of memory");
        br_result of = br_get((int)n[0], (uintptr_t)n[1], (uintptr_t)n[2], key->data, key->bytes, to, capacity);
        if (of.status != BRISTLECONE_TOO_SMALL) return raw(of, to, of.bytes);
        capacity = of.bytes;
        free(to);
    }
}

// Fetches a chunk of items. Numbers: tree, snapshot, transaction, flags, whether backward, items, whether a prefix.
static br_result fetch(const uint64_t *n, const part *b)
{
    const uintptr_t tree = (uintptr_t)n[0];
    if (n[2]) {
        return br_transaction_scan((uintptr_t)n[2], tree, bytes_of(&b[0]), b[0].bytes, bytes_of(&b[1]), b[1].bytes, (uint32_t)n[3], n[5]);
    }
    br_result iter = n[6] ? br_iter_prefix(tree, b[0].data, b[0].bytes)
                          : br_iter(tree, (uintptr_t)n[1], bytes_of(&b[0]), b[0].bytes, bytes_of(&b[1]), b[1].bytes, (uint32_t)n[3]);
    if (iter.status != BRISTLECONE_OK) return iter;
    br_result of = br_next((uintptr_t)iter.word, (int)n[4], n[5]);
    free(br_close(BR_ITER, (uintptr_t)iter.word).message);
    return of;
}

// Fetches changes of a commit: `word` says whether its last one is among them.
static br_result next_changes(uintptr_t changes, int64_t timeout_ms)
{
    br_result of = br_changes_next(changes, timeout_ms);
    of.word = (uint64_t)of.there;
    of.there = of.bytes > 0;
    return of;
}

// Three words: how many entries were read and removed, and whether the end was reached.
static br_result remove_expired(uintptr_t tree, uint64_t budget)
{
    uint64_t *words = calloc(3, sizeof(uint64_t));
    if (!words) return failed("out of memory");
    br_result of = br_remove_expired(tree, budget, &words[0]);
    words[1] = of.word;
    words[2] = (uint64_t)of.there;
    of.there = 0;
    return raw(of, words, 3 * sizeof(uint64_t));
}

// A word that is no data.
static br_result plain(br_result of)
{
    of.there = 0;
    return of;
}

static br_result run(const job *of)
{
    const uint64_t *n = of->numbers;
    const part *b = of->parts;
    switch (of->op) {
    case OP_OPEN: return br_open(text_of(&b[0]), (uint32_t)n[0], (uint32_t)n[1], n[2], n[3], (uint32_t)n[4], (uint32_t)n[5], text_of(&b[1]), n[6]);
    case OP_CLOSE: return br_close((int)n[0], (uintptr_t)n[1]);
    case OP_COMMIT: return br_commit((int)n[0], (uintptr_t)n[1]);
    case OP_BEGIN: return br_begin((int)n[0], (uintptr_t)n[1], n[2]);
    case OP_SNAPSHOT_BYTES: return br_snapshot_bytes((uintptr_t)n[0]);
    case OP_POOL_INFO:
    case OP_JOURNAL_STATUS:
    case OP_TREE_INFO: return info(of->op, (uintptr_t)n[0]);
    case OP_TREES: return br_trees((uintptr_t)n[0]);
    case OP_CHECK: return br_check((int)n[0], (uintptr_t)n[1]);
    case OP_MANAGE: return br_manage((int)n[0], (uintptr_t)n[1], text_of(&b[0]), text_of(&b[1]), n[2]);
    case OP_TREE_OPEN: return br_tree_open((uintptr_t)n[0], text_of(&b[0]), text_of(&b[1]), text_of(&b[2]));
    case OP_TREE_CREATE: return create(n, b);
    case OP_LEN: return br_len((uintptr_t)n[0]);
    case OP_GET: return get(n, &b[0]);
    case OP_CONTAINS: return br_contains((uintptr_t)n[0], b[0].data, b[0].bytes);
    case OP_WRITE: return br_write((int)n[0], (uintptr_t)n[1], b[0].data, b[0].bytes, bytes_of(&b[1]), b[1].bytes, bytes_of(&b[2]), b[2].bytes);
    case OP_CHANGE: return br_change((int)n[0], (int)n[1], (uintptr_t)n[2], (uintptr_t)n[3], b[0].data, b[0].bytes, bytes_of(&b[1]), b[1].bytes);
    case OP_GET_MANY: return br_get_many((uintptr_t)n[0], b[0].data, (const uint64_t *)b[1].data, n[1]);
    case OP_PUT_MANY: return br_put_many((uintptr_t)n[0], b[0].data, (const uint64_t *)b[1].data, b[2].data, (const uint64_t *)b[3].data, n[1]);
    case OP_REMOVE_MANY: return br_remove_many((uintptr_t)n[0], b[0].data, (const uint64_t *)b[1].data, n[1]);
    case OP_REMOVE_RANGE: return br_remove_range((uintptr_t)n[0], n[2] ? b[0].data : bytes_of(&b[0]), b[0].bytes, bytes_of(&b[1]), b[1].bytes, (uint32_t)n[1], (int)n[2]);
    case OP_FETCH: return fetch(n, b);
    case OP_CHANGES: return br_changes((uintptr_t)n[0], text_of(&b[0]), n[1]);
    case OP_CHANGES_NEXT: return next_changes((uintptr_t)n[0], (int64_t)n[1]);
    case OP_CHANGES_ADVANCE: return br_changes_advance((uintptr_t)n[0], n[1]);
    case OP_CREATE_CURSOR: return br_create_cursor((uintptr_t)n[0], text_of(&b[0]), n[1]);
    case OP_CURSORS: return br_cursors((uintptr_t)n[0]);
    case OP_TREE_EXPIRING: return plain(br_tree_expiring((uintptr_t)n[0]));
    case OP_EXPIRING_WRITE: return br_expiring_write((int)n[0], (uintptr_t)n[1], b[0].data, b[0].bytes, bytes_of(&b[1]), b[1].bytes, bytes_of(&b[2]), b[2].bytes, n[2]);
    case OP_EXPIRY: return plain(br_expiry((uintptr_t)n[0], b[0].data, b[0].bytes));
    case OP_SET_EXPIRY: return plain(br_set_expiry((uintptr_t)n[0], b[0].data, b[0].bytes, n[1]));
    case OP_REMOVE_EXPIRED: return remove_expired((uintptr_t)n[0], n[1]);
    default: return failed("an unknown operation");
    }
}

static void discard(job *of)
{
    for (int at = 0; at < PARTS; at++) free(of->parts[at].data);
    free(of);
}

// Notes what a job has opened or closed.
static void note_result(napi_env env, const job *of)
{
    environment *own = NULL;
    if (of->result.status != BRISTLECONE_OK || napi_get_instance_data(env, (void **)&own) != napi_ok || !own) return;
    switch (of->op) {
    case OP_OPEN: note(own, BR_POOL, of->result.word); break;
    case OP_TREE_OPEN:
    case OP_TREE_EXPIRING:
    case OP_TREE_CREATE: note(own, BR_TREE, of->result.word); break;
    case OP_CHANGES: note(own, BR_CHANGES, of->result.word); break;
    case OP_BEGIN: note(own, (int)of->numbers[0], of->result.word); break;
    case OP_CLOSE:
    case OP_COMMIT: forget(own, of->numbers[1]); break;
    default: break;
    }
}

// Copies data to an ArrayBuffer.
static napi_value bytes_value(napi_env env, const void *data, size_t bytes)
{
    void *to = NULL;
    napi_value buffer, array;
    if (napi_create_arraybuffer(env, bytes, &to, &buffer) != napi_ok) return NULL;
    if (bytes) memcpy(to, data, bytes);
    return napi_create_typedarray(env, napi_uint8_array, bytes, buffer, 0, &array) == napi_ok ? array : NULL;
}

// Returns { status, word, data, message }, and frees the result.
static napi_value result_value(napi_env env, br_result *of)
{
    napi_value object, value;
    napi_create_object(env, &object);
    napi_create_int32(env, of->status, &value);
    napi_set_named_property(env, object, "status", value);
    napi_create_double(env, (double)of->word, &value);
    napi_set_named_property(env, object, "word", value);
    if (of->there) {
        value = bytes_value(env, of->data, of->bytes);
        if (value) napi_set_named_property(env, object, "data", value);
    }
    if (of->message) {
        napi_create_string_utf8(env, of->message, NAPI_AUTO_LENGTH, &value);
        napi_set_named_property(env, object, "message", value);
    }
    free(of->data);
    free(of->message);
    return object;
}

static void execute(napi_env env, void *data)
{
    (void)env;
    job *of = data;
    of->result = run(of);
}

static void complete(napi_env env, napi_status status, void *data)
{
    job *of = data;
    if (status == napi_cancelled) of->result = failed("the environment has ended");
    note_result(env, of);
    napi_value value = result_value(env, &of->result);
    napi_resolve_deferred(env, of->deferred, value);
    napi_delete_async_work(env, of->work);
    discard(of);
}

static int take_number(napi_env env, napi_value from, uint64_t *to)
{
    napi_valuetype type;
    bool lossless = false, flag = false;
    double number = 0;
    if (napi_typeof(env, from, &type) != napi_ok) return 0;
    switch (type) {
    case napi_undefined: return 1;
    case napi_boolean: napi_get_value_bool(env, from, &flag); *to = flag; return 1;
    case napi_bigint: return napi_get_value_bigint_uint64(env, from, to, &lossless) == napi_ok && lossless;
    case napi_number:
        napi_get_value_double(env, from, &number);
        if (!(number >= 0 && number <= 9007199254740991.0)) return 0;
        *to = (uint64_t)number;
        return (double)*to == number;
    default: return 0;
    }
}

static int take_part(napi_env env, napi_value from, part *to)
{
    napi_valuetype type;
    bool is_typed = false;
    napi_typedarray_type of;
    void *data = NULL;
    size_t bytes = 0;
    if (napi_typeof(env, from, &type) != napi_ok) return 0;
    if (type == napi_undefined) return 1;
    if (napi_is_typedarray(env, from, &is_typed) != napi_ok || !is_typed) return 0;
    if (napi_get_typedarray_info(env, from, &of, &bytes, &data, NULL, NULL) != napi_ok || of != napi_uint8_array) return 0;
    to->data = malloc(bytes + 1);
    if (!to->data) return 0;
    // A detached buffer has neither data nor a length.
    if (bytes && data) memcpy(to->data, data, bytes);
    to->bytes = data ? bytes : 0;
    to->data[to->bytes] = 0;
    to->there = 1;
    return 1;
}

// Arguments: the operation, an array of numbers, and an array of bytes.
static job *take_job(napi_env env, napi_callback_info info)
{
    size_t count = 3;
    napi_value arguments[3], element;
    uint64_t op = OP_COUNT;
    uint32_t numbers = 0, parts = 0;
    job *of = calloc(1, sizeof(*of));
    int ok = of && napi_get_cb_info(env, info, &count, arguments, NULL, NULL) == napi_ok && count == 3 && take_number(env, arguments[0], &op) &&
             op < OP_COUNT && napi_get_array_length(env, arguments[1], &numbers) == napi_ok && numbers <= NUMBERS &&
             napi_get_array_length(env, arguments[2], &parts) == napi_ok && parts <= PARTS;
    if (ok) of->op = (int)op;
    for (uint32_t at = 0; ok && at < numbers; at++) {
        ok = napi_get_element(env, arguments[1], at, &element) == napi_ok && take_number(env, element, &of->numbers[at]);
    }
    for (uint32_t at = 0; ok && at < parts; at++) {
        ok = napi_get_element(env, arguments[2], at, &element) == napi_ok && take_part(env, element, &of->parts[at]);
    }
    if (ok) return of;
    if (of) discard(of);
    napi_throw_type_error(env, "ERR_BRISTLECONE_USAGE", "arguments of another type");
    return NULL;
}

static napi_value call(napi_env env, napi_callback_info info)
{
    job *of = take_job(env, info);
    if (!of) return NULL;
    of->result = run(of);
    note_result(env, of);
    napi_value value = result_value(env, &of->result);
    discard(of);
    return value;
}

static napi_value call_async(napi_env env, napi_callback_info info)
{
    napi_value promise = NULL, name;
    job *of = take_job(env, info);
    if (!of) return NULL;
    napi_create_string_utf8(env, "bristlecone", NAPI_AUTO_LENGTH, &name);
    if (napi_create_promise(env, &of->deferred, &promise) != napi_ok ||
        napi_create_async_work(env, NULL, name, execute, complete, of, &of->work) != napi_ok || napi_queue_async_work(env, of->work) != napi_ok) {
        discard(of);
        napi_throw_error(env, NULL, "the call cannot be queued");
        return NULL;
    }
    return promise;
}

static napi_value version(napi_env env, napi_callback_info info)
{
    (void)info;
    napi_value value;
    napi_create_string_utf8(env, bristlecone_version(), NAPI_AUTO_LENGTH, &value);
    return value;
}

NAPI_MODULE_INIT()
{
    napi_value function;
    if (bristlecone_abi_version() != BRISTLECONE_ABI_VERSION) {
        napi_throw_error(env, NULL, "the C library has another interface than this package: build both again");
        return NULL;
    }
    environment *own = calloc(1, sizeof(*own));
    if (!own || napi_set_instance_data(env, own, NULL, NULL) != napi_ok || napi_add_env_cleanup_hook(env, close_all, own) != napi_ok) {
        free(own);
        napi_throw_error(env, NULL, "out of memory");
        return NULL;
    }
    napi_create_function(env, "call", NAPI_AUTO_LENGTH, call, NULL, &function);
    napi_set_named_property(env, exports, "call", function);
    napi_create_function(env, "callAsync", NAPI_AUTO_LENGTH, call_async, NULL, &function);
    napi_set_named_property(env, exports, "callAsync", function);
    napi_create_function(env, "version", NAPI_AUTO_LENGTH, version, NULL, &function);
    napi_set_named_property(env, exports, "version", function);
    return exports;
}
