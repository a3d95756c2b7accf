/* Pinned host memory is cached in exact sizes, and serves again after its uses. */
#include "check.h"

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    void *stream = create_stream(allocator);
    cachette_pinned_stats_t stats;
    void *memory = NULL;
    void *again = NULL;
    uint64_t bytes = 0;
    OK(cachette_pinned_allocate(allocator, 0, &memory));
    CHECK(memory == NULL);
    OK(cachette_pinned_allocate(allocator, 3 << 20, &memory));
    CHECK(memory != NULL);
    memset(memory, 5, 3000);
    OK(cachette_pinned_record_stream(allocator, memory, stream));
    OK(cachette_pinned_free(allocator, memory));
    OK(cachette_stream_synchronize(allocator, stream));
    OK(cachette_pinned_allocate(allocator, 3 << 20, &again));
    CHECK(again == memory);

    OK(cachette_pinned_stats(allocator, &stats, sizeof stats));
    CHECK(stats.num_host_alloc == 1 && stats.num_host_free == 0 && stats.host_alloc_time.count == 1);
    CHECK(stats.allocated_bytes.current == 3 << 20 && stats.active_requests.current == 1);
    CHECK(stats.active_requests.allocated == 2);
    OK(cachette_pinned_free(allocator, again));
    FAILS(cachette_pinned_free(allocator, again), CACHETTE_ERROR_INVALID_POINTER,
          "it may have been freed before");
    FAILS(cachette_pinned_record_stream(allocator, &stats, stream), CACHETTE_ERROR_INVALID_POINTER,
          "not allocated by this allocator");
    OK(cachette_pinned_free(allocator, NULL));
    OK(cachette_pinned_record_stream(allocator, NULL, stream));

    OK(cachette_pinned_empty_cache(allocator, &bytes));
    CHECK(bytes == 3 << 20);
    OK(cachette_pinned_stats(allocator, &stats, sizeof stats));
    CHECK(stats.allocations.current == 0);

    WRONG(cachette_pinned_allocate(allocator, 1, NULL), "`out_address` is null");
    WRONG(cachette_pinned_allocate(NULL, 1, &memory), "`allocator` is null");
    WRONG(cachette_pinned_stats(allocator, &stats, 8), "pass its `sizeof`");
    WRONG(cachette_pinned_empty_cache(allocator, NULL), "`out_bytes` is null");
    OK(cachette_stream_destroy(allocator, stream));
    close_clean(allocator);
    return 0;
}
