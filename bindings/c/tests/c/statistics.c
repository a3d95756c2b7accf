/* The figures follow what is allocated, and are reset apart from each other. */
#include "check.h"

static cachette_stats_t read_stats(const cachette_allocator_t *allocator) {
    cachette_stats_t stats;
    OK(cachette_stats(allocator, &stats, sizeof stats));
    return stats;
}

static void texts(const cachette_allocator_t *allocator) {
    char small[8];
    char *text;
    size_t needed = 0;
    size_t again = 0;
    OK(cachette_stats_text(allocator, NULL, 0, &needed));
    CHECK(needed > 100);
    text = (char *)malloc(needed);
    CHECK(text != NULL);
    OK(cachette_stats_text(allocator, text, needed, &again));
    CHECK(again == needed && strlen(text) + 1 == needed && strstr(text, "allocated_bytes") != NULL);
    free(text);
    FAILS(cachette_stats_text(allocator, small, sizeof small, &needed), CACHETTE_ERROR_BUFFER_TOO_SMALL,
          "pass a larger one");
    CHECK(needed == again && small[0] == '\0');
    WRONG(cachette_stats_text(allocator, NULL, 1, &needed), "`buffer` is null");
    WRONG(cachette_stats_text(allocator, small, sizeof small, NULL), "`out_needed` is null");
    WRONG(cachette_stats_text(NULL, small, sizeof small, &needed), "`allocator` is null");

    /* The same for monitoring. */
    OK(cachette_metrics_text(allocator, NULL, 0, &needed));
    text = (char *)malloc(needed);
    CHECK(text != NULL);
    OK(cachette_metrics_text(allocator, text, needed, &again));
    CHECK(strstr(text, "cachette_limit_bytes{device=\"0\",backend=\"host\"} +Inf") != NULL);
    free(text);
    WRONG(cachette_metrics_text(NULL, small, sizeof small, &needed), "`allocator` is null");
}

int main(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    cachette_stats_t stats;
    void *small = allocate(allocator, 1000, NULL);
    void *large = allocate(allocator, 3 * MIB, NULL);
    uint64_t bytes = 9;

    stats = read_stats(allocator);
    CHECK(stats.allocation.all.current == 2 && stats.segment.all.current == 2);
    CHECK(stats.allocation.small_pool.current == 1 && stats.allocation.large_pool.current == 1);
    CHECK(stats.allocated_bytes.all.current == 3 * MIB + 1024);
    CHECK(stats.allocated_bytes.small_pool.current == 1024);
    CHECK(stats.allocated_bytes.large_pool.allocated == 3 * MIB);
    CHECK(stats.requested_bytes.all.current == 3 * MIB + 1000);
    CHECK(stats.reserved_bytes.all.current == 22 * MIB && stats.active.all.current == 2);
    CHECK(stats.active_bytes.all.current == stats.allocated_bytes.all.current);
    CHECK(stats.inactive_split.all.current == 2);
    CHECK(stats.inactive_split_bytes.all.current == 19 * MIB - 1024);
    CHECK(stats.oversize_allocations.current == 0 && stats.oversize_segments.current == 0);
    CHECK(stats.num_device_alloc == 2 && stats.num_device_free == 0 && stats.num_ooms == 0);
    CHECK(stats.num_alloc_retries == 0 && stats.num_sync_all_streams == 0);
    CHECK(stats.num_oom_rejections == 0 && stats.max_split_size == CACHETTE_NO_LIMIT);
    CHECK(allocated(allocator) == 3 * MIB + 1024 && reserved(allocator) == 22 * MIB);

    OK(cachette_free(allocator, large));
    stats = read_stats(allocator);
    CHECK(stats.allocated_bytes.all.current == 1024 && stats.allocated_bytes.all.peak == 3 * MIB + 1024);
    CHECK(stats.allocated_bytes.all.freed == 3 * MIB);
    OK(cachette_reset_peaks(allocator));
    stats = read_stats(allocator);
    CHECK(stats.allocated_bytes.all.peak == 1024 && stats.allocated_bytes.all.freed == 3 * MIB);
    OK(cachette_reset_totals(allocator));
    stats = read_stats(allocator);
    CHECK(stats.allocated_bytes.all.freed == 0 && stats.allocated_bytes.all.current == 1024);
    CHECK(stats.num_device_alloc == 0);
    texts(allocator);

    WRONG(cachette_stats(NULL, &stats, sizeof stats), "`allocator` is null");
    WRONG(cachette_stats(allocator, NULL, sizeof stats), "`out` is null");
    WRONG(cachette_stats(allocator, &stats, 0), "pass its `sizeof`");
    WRONG(cachette_allocated_bytes(NULL, &bytes), "`allocator` is null");
    CHECK(bytes == 0);
    WRONG(cachette_allocated_bytes(allocator, NULL), "`out_bytes` is null");
    WRONG(cachette_reserved_bytes(NULL, &bytes), "`allocator` is null");
    WRONG(cachette_reserved_bytes(allocator, NULL), "`out_bytes` is null");
    WRONG(cachette_reset_peaks(NULL), "`allocator` is null");
    WRONG(cachette_reset_totals(NULL), "`allocator` is null");
    OK(cachette_free(allocator, small));
    close_clean(allocator);
    return 0;
}
