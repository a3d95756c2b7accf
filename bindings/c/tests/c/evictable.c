/* Pools that give up their memory under pressure, and memory that never changes behind its address. */
#include "check.h"

struct calls {
    int reloads;
    int refuses;
    int agreements;
    uint64_t pool;
    uint64_t mapped;
    uint64_t unmapped;
};

static int32_t reload(void *user, cachette_pool_id_t pool) {
    struct calls *calls = (struct calls *)user;
    calls->pool = pool.user;
    if (calls->refuses) {
        return 5;
    }
    calls->reloads++;
    return 0;
}

static int32_t agree(void *user, cachette_pool_id_t pool) {
    struct calls *calls = (struct calls *)user;
    calls->pool = pool.user;
    calls->agreements++;
    return calls->refuses;
}

static void mapped(void *user, void *address, uint64_t bytes) {
    CHECK(address != NULL);
    ((struct calls *)user)->mapped += bytes;
}

static void unmapping(void *user, void *address, uint64_t bytes) {
    CHECK(address != NULL);
    ((struct calls *)user)->unmapped += bytes;
}

static cachette_pool_t *create(cachette_allocator_t *allocator, const cachette_pool_options_t *options) {
    cachette_pool_t *pool = NULL;
    OK(cachette_pool_create(allocator, options, sizeof *options, &pool));
    return pool;
}

static bool asleep(const cachette_pool_t *pool) {
    bool answer = false;
    OK(cachette_pool_is_asleep(pool, &answer));
    return answer;
}

static uint64_t evictable(const cachette_allocator_t *allocator) {
    uint64_t bytes = 0;
    OK(cachette_evictable_bytes(allocator, &bytes));
    return bytes;
}

static void evicted(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_options_t options;
    cachette_pool_t *first, *second;
    cachette_resident_t *resident = NULL;
    cachette_stats_t stats;
    struct calls calls;
    void *kept, *dropped, *other;
    uint64_t bytes = 0;
    memset(&calls, 0, sizeof calls);
    memset(&options, 0, sizeof options);
    options.flags = CACHETTE_POOL_EVICTABLE;
    first = create(allocator, &options);
    options.priority = 1;
    options.reload = reload;
    options.callback_user = &calls;
    second = create(allocator, &options);
    OK(cachette_pool_allocate(first, 20 * MIB, stream, &kept));
    OK(cachette_fill(allocator, kept, 7, 20 * MIB, stream));
    OK(cachette_pool_allocate(second, 20 * MIB, stream, &dropped));
    CHECK(evictable(allocator) == 40 * MIB);

    /* The lower priority goes first. */
    other = allocate(allocator, 30 * MIB, stream);
    CHECK(asleep(first) && !asleep(second) && evictable(allocator) == 20 * MIB);
    OK(cachette_evict(allocator, 1, &bytes));
    CHECK(asleep(second) && bytes == 20 * MIB && evictable(allocator) == 0);
    OK(cachette_stats(allocator, &stats, sizeof stats));
    CHECK(stats.num_evictions == 2);
    OK(cachette_free(allocator, other));

    OK(cachette_pool_make_resident(first, &resident));
    CHECK(content(allocator, kept, 20 * MIB, stream) == 7);
    OK(cachette_evict(allocator, GIB, &bytes));
    CHECK(bytes == 0 && !asleep(first));
    OK(cachette_resident_release(resident));

    /* What was dropped is written again, by the first guard that can. */
    calls.refuses = 1;
    FAILS(cachette_pool_make_resident(second, &resident), CACHETTE_ERROR_POOL, "`reload` returned 5");
    CHECK(resident == NULL && calls.reloads == 0 && calls.pool != 0);
    calls.refuses = 0;
    OK(cachette_pool_make_resident(second, &resident));
    CHECK(calls.reloads == 1);
    OK(cachette_resident_release(resident));
    OK(cachette_pool_make_resident(second, &resident));
    CHECK(calls.reloads == 1);
    OK(cachette_resident_release(resident));

    OK(cachette_free(allocator, kept));
    OK(cachette_free(allocator, dropped));
    OK(cachette_pool_release(first));
    OK(cachette_pool_release(second));
}

static void registered(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_options_t options;
    cachette_pool_t *pool;
    cachette_slept_t slept;
    struct calls calls;
    void *memory, *outside;
    uint64_t bytes = 0;
    bool stable = false;
    memset(&calls, 0, sizeof calls);
    memset(&options, 0, sizeof options);
    OK(cachette_on_ranges(allocator, mapped, unmapping, &calls));
    options.flags = CACHETTE_POOL_REGISTERED;
    pool = create(allocator, &options);
    OK(cachette_pool_allocate(pool, 10 * MIB, stream, &memory));
    CHECK(calls.mapped >= 10 * MIB);
    outside = allocate(allocator, 10 * MIB, stream);
    OK(cachette_is_stable(allocator, memory, &stable));
    CHECK(stable);
    OK(cachette_is_stable(allocator, outside, &stable));
    CHECK(!stable);
    FAILS(cachette_pool_sleep(pool, 1, NULL, NULL, &slept, sizeof slept), CACHETTE_ERROR_POOL, "registered");
    OK(cachette_free(allocator, outside));
    OK(cachette_free(allocator, memory));
    calls.unmapped = 0;
    OK(cachette_pool_empty_cache(pool, &bytes));
    CHECK(bytes == 0 && calls.unmapped == 0);
    OK(cachette_pool_release(pool));

    options.before_sleep = agree;
    options.callback_user = &calls;
    pool = create(allocator, &options);
    OK(cachette_pool_allocate(pool, 10 * MIB, stream, &memory));
    calls.refuses = 3;
    FAILS(cachette_pool_sleep(pool, 1, NULL, NULL, &slept, sizeof slept), CACHETTE_ERROR_POOL,
          "`before_sleep` returned 3");
    calls.refuses = 0;
    OK(cachette_pool_sleep(pool, 1, NULL, NULL, &slept, sizeof slept));
    CHECK(calls.agreements == 2 && calls.unmapped >= 10 * MIB);
    OK(cachette_pool_wake(pool, NULL, NULL, &bytes));
    OK(cachette_free(allocator, memory));
    OK(cachette_pool_release(pool));
}

static void wrong(cachette_allocator_t *allocator) {
    cachette_pool_options_t options;
    cachette_pool_t *pool = NULL;
    cachette_resident_t *resident = NULL;
    uint64_t bytes = 0;
    bool stable = false;
    memset(&options, 0, sizeof options);
    options.priority = 1;
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "CACHETTE_POOL_EVICTABLE");
    options.flags = CACHETTE_POOL_EVICTABLE;
    options.priority = UINT64_MAX;
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "UINT32_MAX");
    WRONG(cachette_pool_make_resident(NULL, &resident), "`pool` is null");
    WRONG(cachette_evict(NULL, 1, &bytes), "`allocator` is null");
    WRONG(cachette_evictable_bytes(NULL, &bytes), "`allocator` is null");
    WRONG(cachette_is_stable(NULL, NULL, &stable), "`allocator` is null");
    WRONG(cachette_on_ranges(allocator, NULL, NULL, NULL), "`callback` is null");
    OK(cachette_resident_release(NULL));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("memory_limit:60MiB");
    void *stream = create_stream(allocator);
    wrong(allocator);
    evicted(allocator, stream);
    registered(allocator, stream);
    OK(cachette_stream_destroy(allocator, stream));
    close_clean(allocator);
    return 0;
}
