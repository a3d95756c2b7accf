/* A pool that sleeps gives its memory back and keeps addresses and contents. */
#include "check.h"

struct seen {
    int calls;
    uint64_t done;
    uint64_t total;
};

static void progress(void *user, uint64_t done, uint64_t total) {
    struct seen *seen = (struct seen *)user;
    CHECK(done >= seen->done && done <= total);
    seen->calls++;
    seen->done = done;
    seen->total = total;
}

static bool asleep(const cachette_pool_t *pool) {
    bool answer = false;
    OK(cachette_pool_is_asleep(pool, &answer));
    return answer;
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    cachette_allocator_t *plain = open_host(DIRECT);
    void *stream = create_stream(allocator);
    cachette_pool_options_t options;
    cachette_pool_t *pool = NULL;
    cachette_pool_t *fixed = create_pool(plain);
    cachette_slept_t slept;
    struct seen seen;
    void *memory = NULL;
    void *refused = NULL;
    uint64_t bytes = 0;
    memset(&options, 0, sizeof options);
    memset(&seen, 0, sizeof seen);
    options.tag = "weights";
    OK(cachette_pool_create(allocator, &options, sizeof options, &pool));
    OK(cachette_pool_allocate(pool, 4 * MIB, stream, &memory));
    OK(cachette_fill(allocator, memory, 7, 4 * MIB, stream));

    OK(cachette_pool_sleep(pool, 1, progress, &seen, &slept, sizeof slept));
    CHECK(slept.released == 4 * MIB && slept.saved == 4 * MIB && asleep(pool));
    CHECK(seen.calls > 0 && seen.done == 4 * MIB && seen.total == 4 * MIB);
    CHECK(reserved(allocator) == 0);
    FAILS(cachette_pool_allocate(pool, 512, stream, &refused), CACHETTE_ERROR_POOL, "wake it first");
    memset(&seen, 0, sizeof seen);
    OK(cachette_pool_wake(pool, progress, &seen, &bytes));
    CHECK(bytes == 4 * MIB && !asleep(pool) && seen.calls > 0);
    CHECK(content(allocator, memory, 4 * MIB, stream) == 7);
    OK(cachette_release_contents(allocator, &bytes));
    CHECK(bytes >= 4 * MIB);

    /* By tag, and without the contents. */
    OK(cachette_sleep_tagged(allocator, "weights", 0, &slept, sizeof slept));
    CHECK(slept.released == 4 * MIB && slept.saved == 0 && asleep(pool));
    OK(cachette_pool_sleep(pool, 1, NULL, NULL, &slept, sizeof slept));
    CHECK(slept.released == 0);
    OK(cachette_wake_tagged(allocator, "weights", &bytes));
    CHECK(bytes == 4 * MIB && !asleep(pool));

    FAILS(cachette_sleep_tagged(allocator, "unused", 1, &slept, sizeof slept), CACHETTE_ERROR_POOL,
          "no pool has this tag");
    FAILS(cachette_wake_tagged(allocator, "unused", &bytes), CACHETTE_ERROR_POOL, "no pool has this tag");
    OK(cachette_pool_allocate(fixed, 512, NULL, &refused));
    FAILS(cachette_pool_sleep(fixed, 1, NULL, NULL, &slept, sizeof slept), CACHETTE_ERROR_POOL,
          "set expandable_segments:True");
    WRONG(cachette_pool_sleep(pool, 1, NULL, NULL, NULL, 0), "`out` is null");
    WRONG(cachette_pool_wake(NULL, NULL, NULL, &bytes), "`pool` is null");
    WRONG(cachette_sleep_tagged(allocator, NULL, 1, &slept, sizeof slept), "`tag` is null");
    WRONG(cachette_release_contents(allocator, NULL), "`out_bytes` is null");

    OK(cachette_free(plain, refused));
    OK(cachette_pool_release(fixed));
    close_clean(plain);
    OK(cachette_free(allocator, memory));
    OK(cachette_pool_release(pool));
    OK(cachette_stream_destroy(allocator, stream));
    close_clean(allocator);
    return 0;
}
