// Results of calls, and bytes that they append to. Included by the files of the shim.
#ifndef BRISTLECONE_GO_BUFFER_H
#define BRISTLECONE_GO_BUFFER_H

#include "shim.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Bytes that are appended to. After a failed allocation `failed` is set and nothing is appended any more.
typedef struct {
    char *data;
    size_t bytes, capacity;
    size_t items, items_max;
    int failed;
} buffer;

// Items are returned together up to this size.
#define CHUNK_BYTES (256 << 10)

static inline void append(buffer *to, const void *data, size_t bytes)
{
    if (to->bytes + bytes > to->capacity && !to->failed) {
        size_t capacity = to->capacity ? to->capacity : 256;
        while (capacity < to->bytes + bytes) capacity *= 2;
        char *grown = realloc(to->data, capacity);
        if (grown) {
            to->data = grown;
            to->capacity = capacity;
        } else {
            to->failed = 1;
        }
    }
    if (to->failed) return;
    if (bytes) memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
}

static inline void append_item(buffer *to, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    const uint64_t lengths[2] = {key_bytes, value_bytes};
    append(to, lengths, sizeof(lengths));
    append(to, key, key_bytes);
    append(to, value, value_bytes);
    to->items++;
}

static inline int is_full(const buffer *to) { return to->failed || to->items >= to->items_max || to->bytes >= CHUNK_BYTES; }

// Whether a status is a result of an operation on a key, which needs no message.
static inline int is_outcome(int status)
{
    return status == BRISTLECONE_OK || status == BRISTLECONE_ABSENT || status == BRISTLECONE_PRESENT ||
           status == BRISTLECONE_DIFFERS || status == BRISTLECONE_TOO_SMALL;
}

// Must be called on the thread of the call.
static inline br_result result(int status)
{
    br_result of = {0};
    of.status = status;
    if (!is_outcome(status)) of.message = strdup(bristlecone_errmsg());
    return of;
}

// The result of a call for which everything but success is an error.
static inline br_result described(int status)
{
    br_result of = result(status);
    if (status != BRISTLECONE_OK && !of.message) of.message = strdup(bristlecone_errmsg());
    return of;
}

static inline br_result with_word(int status, uint64_t word)
{
    br_result of = result(status);
    of.word = word;
    of.there = 1;
    return of;
}

static inline br_result with_data(int status, buffer *from)
{
    br_result of = result(status);
    if (from->failed) {
        free(from->data);
        free(of.message);
        of.status = BRISTLECONE_FAILED;
        of.message = strdup("out of memory");
        return of;
    }
    of.data = from->data;
    of.bytes = from->bytes;
    of.word = from->items;
    of.there = from->items > 0;
    return of;
}

// A value that is shown is the only item of a buffer.
static inline void keep(void *context, const void *value, size_t bytes)
{
    buffer *to = context;
    append(to, value, bytes);
    to->items = 1;
}

#endif
