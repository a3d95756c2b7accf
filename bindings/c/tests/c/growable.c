/* Addresses without memory, and memory that comes and goes in parts. */
#include "check.h"

static cachette_growable_info_t info(const cachette_growable_t *growable) {
    cachette_growable_info_t info;
    OK(cachette_growable_info(growable, &info, sizeof info));
    return info;
}

static void *at(const cachette_growable_t *growable, uint64_t offset) {
    return (char *)info(growable).address + offset;
}

static void grows(cachette_allocator_t *allocator, void *stream) {
    cachette_growable_t *cache = NULL;
    void *other = NULL;
    uint64_t page;
    OK(cachette_growable_create(allocator, 64 * GIB, stream, &cache));
    page = info(cache).page;
    CHECK(info(cache).bytes == 64 * GIB && info(cache).committed == 0 && page >= 2 * MIB);
    CHECK(allocated(allocator) == 0);

    OK(cachette_growable_commit(cache, 0, 4 * page));
    CHECK(info(cache).committed == 4 * page && allocated(allocator) == 4 * page);
    OK(cachette_fill(allocator, at(cache, 0), 7, 4 * page, stream));
    OK(cachette_growable_decommit(cache, page, 2 * page));
    CHECK(info(cache).committed == 2 * page && allocated(allocator) == 2 * page);
    CHECK(content(allocator, at(cache, 0), page, stream) == 7);
    CHECK(content(allocator, at(cache, 3 * page), page, stream) == 7);
    OK(cachette_growable_commit(cache, page, page));

    OK(cachette_stream_create(allocator, &other));
    OK(cachette_growable_record_stream(cache, other));
    WRONG(cachette_growable_commit(cache, page, page), "is committed already");
    WRONG(cachette_growable_decommit(cache, 2 * page, page), "is not committed");
    WRONG(cachette_growable_commit(cache, 64 * GIB, 1), "is not within");
    WRONG(cachette_growable_commit(cache, 1, UINT64_MAX), "is not within");
    CHECK(info(cache).committed == 3 * page);
    OK(cachette_growable_destroy(cache));
    OK(cachette_stream_destroy(allocator, other));
}

/* In a pool it sleeps, and is awake again with its contents. */
static void sleeps(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_growable_t *cache = NULL;
    cachette_slept_t slept;
    uint64_t bytes = 0, page;
    OK(cachette_pool_growable_create(pool, GIB, stream, &cache));
    page = info(cache).page;
    OK(cachette_growable_commit(cache, page, page));
    OK(cachette_fill(allocator, at(cache, page), 9, page, stream));
    OK(cachette_pool_sleep(pool, 1, NULL, NULL, &slept, sizeof slept));
    CHECK(slept.saved == page);
    FAILS(cachette_growable_commit(cache, 0, page), CACHETTE_ERROR_POOL, "wake it first");
    OK(cachette_pool_wake(pool, NULL, NULL, &bytes));
    CHECK(content(allocator, at(cache, page), page, stream) == 9);
    OK(cachette_growable_destroy(cache));
    OK(cachette_pool_release(pool));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    cachette_growable_t *none = NULL;
    cachette_growable_info_t figures;
    void *stream = create_stream(allocator);
    grows(allocator, stream);
    sleeps(allocator, stream);
    WRONG(cachette_growable_create(allocator, UINT64_MAX, stream, &none), "too many");
    WRONG(cachette_growable_create(NULL, GIB, stream, &none), "`allocator` is null");
    WRONG(cachette_pool_growable_create(NULL, GIB, stream, &none), "`pool` is null");
    WRONG(cachette_growable_info(NULL, &figures, sizeof figures), "`growable` is null");
    WRONG(cachette_growable_commit(NULL, 0, 1), "`growable` is null");
    WRONG(cachette_growable_decommit(NULL, 0, 1), "`growable` is null");
    WRONG(cachette_growable_record_stream(NULL, stream), "`growable` is null");
    OK(cachette_growable_destroy(NULL));
    OK(cachette_stream_destroy(allocator, stream));
    close_clean(allocator);
    return 0;
}
