/* A pool has its own memory, an identifier, and counted users. */
#include "check.h"

static void life(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_pool_t *again = NULL;
    cachette_pool_id_t id;
    cachette_pool_stats_t stats;
    void *live[2];
    void *outside;
    uint64_t number = 0;
    OK(cachette_pool_id(pool, &id));
    CHECK(id.capture == 0 && id.user != 0);
    OK(cachette_pool_use_count(pool, &number));
    CHECK(number == 1);

    OK(cachette_pool_allocate(pool, 1000, stream, &live[0]));
    OK(cachette_pool_allocate(pool, 3 * MIB, stream, &live[1]));
    outside = allocate(allocator, 1000, stream);
    CHECK(holds(pool, live, 2) && !holds(pool, live, 1) && !holds(pool, &outside, 1));
    OK(cachette_pool_stats(pool, &stats, sizeof stats));
    CHECK(stats.allocations == 2 && stats.allocated_bytes == 3 * MIB + 1024);
    CHECK(stats.segments == 2 && stats.reserved_bytes == 22 * MIB);

    OK(cachette_pool_open(allocator, id, &again));
    OK(cachette_pool_use_count(again, &number));
    CHECK(number == 2);
    OK(cachette_pool_release(again));
    OK(cachette_free(allocator, live[1]));
    OK(cachette_pool_empty_cache(pool, &number));
    CHECK(number == 20 * MIB && holds(pool, live, 1));

    /* What lives keeps its memory, and the pool can be opened meanwhile. */
    OK(cachette_pool_release(pool));
    OK(cachette_pool_open(allocator, id, &pool));
    CHECK(holds(pool, live, 1));
    OK(cachette_free(allocator, live[0]));
    OK(cachette_pool_release(pool));
    FAILS(cachette_pool_open(allocator, id, &pool), CACHETTE_ERROR_POOL, "no such pool");
    CHECK(pool == NULL);
    OK(cachette_free(allocator, outside));
}

static void options(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_options_t options;
    cachette_pool_t *pool = NULL;
    cachette_pool_t *second = NULL;
    cachette_pool_id_t id, found;
    cachette_pool_stats_t stats;
    void *memory[2];
    OK(cachette_pool_new_id(&id));
    memset(&options, 0, sizeof options);
    options.id = id;
    options.flags = CACHETTE_POOL_NO_SPLIT;
    OK(cachette_pool_create(allocator, &options, sizeof options, &pool));
    OK(cachette_pool_id(pool, &found));
    CHECK(found.user == id.user && found.capture == id.capture);
    FAILS(cachette_pool_create(allocator, &options, sizeof options, &second), CACHETTE_ERROR_POOL,
          "a pool with this id exists");
    CHECK(second == NULL);
    OK(cachette_pool_allocate(pool, 512, stream, &memory[0]));
    OK(cachette_pool_allocate(pool, 512, stream, &memory[1]));
    OK(cachette_pool_stats(pool, &stats, sizeof stats));
    CHECK(stats.segments == 2);
    OK(cachette_free(allocator, memory[0]));
    OK(cachette_free(allocator, memory[1]));
    OK(cachette_pool_release(pool));

    options.flags = (uint64_t)1 << 32;
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "0x100000000, which is not a pool flag");
    options.flags = 0;
    WRONG(cachette_pool_create(allocator, &options, 8, &pool), "pass its `sizeof`");
}

/* The free blocks of a pool serve others before those fail, if it says so. */
static void helpful(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    cachette_pool_options_t options;
    cachette_pool_t *pool = NULL;
    void *memory = NULL;
    void *served = NULL;
    memset(&options, 0, sizeof options);
    options.flags = CACHETTE_POOL_USE_ON_OOM;
    OK(cachette_pool_create(allocator, &options, sizeof options, &pool));
    OK(cachette_pool_allocate(pool, 40 * MIB, NULL, &memory));
    OK(cachette_free(allocator, memory));
    OK(cachette_set_memory_limit(allocator, 40 * MIB));
    OK(cachette_allocate(allocator, 30 * MIB, NULL, &served));
    CHECK(served == memory);
    OK(cachette_free(allocator, served));
    OK(cachette_pool_release(pool));
    close_clean(allocator);
}

static void nulls(cachette_allocator_t *allocator) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_pool_t *none = pool;
    cachette_pool_id_t id;
    cachette_pool_stats_t stats;
    uint64_t number = 9;
    bool answer = true;
    void *memory = &number;
    OK(cachette_pool_id(pool, &id));
    WRONG(cachette_pool_create(NULL, NULL, 0, &none), "`allocator` is null");
    CHECK(none == NULL);
    WRONG(cachette_pool_create(allocator, NULL, 0, NULL), "`out_pool` is null");
    WRONG(cachette_pool_open(NULL, id, &none), "`allocator` is null");
    WRONG(cachette_pool_open(allocator, id, NULL), "`out_pool` is null");
    WRONG(cachette_pool_new_id(NULL), "`out_id` is null");
    WRONG(cachette_pool_id(NULL, &id), "`pool` is null");
    CHECK(id.user == 0 && id.capture == 0);
    WRONG(cachette_pool_id(pool, NULL), "`out_id` is null");
    WRONG(cachette_pool_use_count(NULL, &number), "`pool` is null");
    WRONG(cachette_pool_use_count(pool, NULL), "`out_count` is null");
    WRONG(cachette_pool_allocate(NULL, 1, NULL, &memory), "`pool` is null");
    CHECK(memory == NULL);
    WRONG(cachette_pool_allocate(pool, 1, NULL, NULL), "`out_address` is null");
    OK(cachette_pool_allocate(pool, 0, NULL, &memory));
    CHECK(memory == NULL);
    WRONG(cachette_pool_empty_cache(NULL, &number), "`pool` is null");
    WRONG(cachette_pool_empty_cache(pool, NULL), "`out_bytes` is null");
    WRONG(cachette_pool_stats(NULL, &stats, sizeof stats), "`pool` is null");
    WRONG(cachette_pool_stats(pool, NULL, sizeof stats), "`out` is null");
    WRONG(cachette_pool_stats(pool, &stats, 31), "a multiple of 8 from 32 to");
    WRONG(cachette_pool_check_live_allocations(NULL, NULL, 0, &answer), "`pool` is null");
    CHECK(!answer);
    WRONG(cachette_pool_check_live_allocations(pool, NULL, 1, &answer), "`addresses` is null");
    WRONG(cachette_pool_check_live_allocations(pool, NULL, 0, NULL), "`out_holds` is null");
    CHECK(holds(pool, NULL, 0));
    OK(cachette_pool_release(pool));
    OK(cachette_pool_release(NULL));
}

/* A pool keeps its allocator alive; a saved state without memory frees what came since. */
static void outlives(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    cachette_pool_t *pool = create_pool(allocator);
    cachette_checkpoint_t *empty = NULL;
    void *memory = NULL;
    OK(cachette_close(allocator));
    OK(cachette_pool_checkpoint(pool, &empty));
    OK(cachette_pool_allocate(pool, MIB, NULL, &memory));
    CHECK(holds(pool, &memory, 1));
    OK(cachette_pool_restore(pool, empty));
    CHECK(holds(pool, NULL, 0));
    OK(cachette_checkpoint_destroy(empty));
    OK(cachette_pool_release(pool));
}

int main(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    void *stream = create_stream(allocator);
    life(allocator, stream);
    life(allocator, NULL);
    options(allocator, stream);
    nulls(allocator);
    close_clean(allocator);
    helpful();
    outlives();
    return 0;
}
