/* What the programs have in common: each stops at the first promise that is not kept. */
#ifndef CHECK_H
#define CHECK_H

#include <cachette.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Direct segments, whose sizes do not depend on the policy. */
#define DIRECT "expandable_segments:False"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,       \
                    cachette_last_error());                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The call succeeds. */
#define OK(call) CHECK((call) == CACHETTE_OK)

/* The call fails with this status, and its text has these words. */
#define FAILS(call, status, words)                                                                 \
    do {                                                                                           \
        CHECK((call) == (status));                                                                 \
        CHECK(strstr(cachette_last_error(), (words)) != NULL);                                     \
    } while (0)

/* The call is wrong, and its text has these words. */
#define WRONG(call, words) FAILS(call, CACHETTE_ERROR_INVALID_ARGUMENT, words)

/* An allocator of host memory. */
static inline cachette_allocator_t *open_host(const char *config) {
    cachette_allocator_t *allocator = NULL;
    OK(cachette_open("host", config, &allocator));
    CHECK(allocator != NULL);
    return allocator;
}

static inline void *create_stream(cachette_allocator_t *allocator) {
    void *stream = NULL;
    OK(cachette_stream_create(allocator, &stream));
    CHECK(stream != NULL);
    return stream;
}

static inline void *allocate(cachette_allocator_t *allocator, uint64_t bytes, void *stream) {
    void *address = NULL;
    OK(cachette_allocate(allocator, bytes, stream, &address));
    CHECK(address != NULL);
    return address;
}

static inline cachette_pool_t *create_pool(cachette_allocator_t *allocator) {
    cachette_pool_t *pool = NULL;
    OK(cachette_pool_create(allocator, NULL, 0, &pool));
    CHECK(pool != NULL);
    return pool;
}

static inline uint64_t allocated(const cachette_allocator_t *allocator) {
    uint64_t bytes = 0;
    OK(cachette_allocated_bytes(allocator, &bytes));
    return bytes;
}

static inline uint64_t reserved(const cachette_allocator_t *allocator) {
    uint64_t bytes = 0;
    OK(cachette_reserved_bytes(allocator, &bytes));
    return bytes;
}

/* Whether just these addresses are allocated in the pool. */
static inline bool holds(const cachette_pool_t *pool, void *const *addresses, size_t count) {
    bool answer = false;
    OK(cachette_pool_check_live_allocations(pool, addresses, count, &answer));
    return answer;
}

/* The one value that all bytes have; -1 if they differ. */
static inline int content(cachette_allocator_t *allocator, void *address, size_t bytes, void *stream) {
    unsigned char *copy = (unsigned char *)malloc(bytes);
    int value;
    size_t i;
    CHECK(copy != NULL);
    OK(cachette_download(allocator, copy, address, bytes, stream));
    OK(cachette_stream_synchronize(allocator, stream));
    value = copy[0];
    for (i = 1; i < bytes; i++) {
        if (copy[i] != copy[0]) {
            value = -1;
        }
    }
    free(copy);
    return value;
}

/* The invariants hold, nothing is allocated, and the allocator closes. */
static inline void close_clean(cachette_allocator_t *allocator) {
    OK(cachette_check(allocator));
    CHECK(allocated(allocator) == 0);
    OK(cachette_close(allocator));
}

#endif
