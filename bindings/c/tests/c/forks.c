/* In a forked child whatever the parent has opened answers with one error; only giving it back succeeds. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSED(call) FAILS(call, CACHETTE_ERROR_FORKED, "start workers by spawn or exec")

/* What the parent has opened. */
static struct {
    cachette_allocator_t *allocator;
    void *stream, *held, *pinned;
    cachette_pool_t *pool;
    cachette_inside_t *inside;
    cachette_checkpoint_t *checkpoint;
    cachette_capture_t *capture;
    cachette_graph_t *graph;
} its;

/* Several results of a kind that a call could leave as they were. */
static uint64_t number;
static size_t count;
static void *address;
static bool yes;
static char text[64];

static void refuses_of_allocators(void) {
    cachette_allocator_t *a = its.allocator;
    cachette_device_info_t info;
    cachette_stats_t stats;
    cachette_pinned_stats_t pinned;
    cachette_slept_t slept;
    cachette_pool_t *pool = its.pool;
    cachette_pool_id_t id = {0, 1};

    address = its.held;
    REFUSED(cachette_allocate(a, MIB, NULL, &address));
    CHECK(address == NULL);
    REFUSED(cachette_empty_cache(a, &number));
    REFUSED(cachette_check(a));
    REFUSED(cachette_device_info(a, &info, sizeof info));
    REFUSED(cachette_memory_info(a, &number, &number));
    REFUSED(cachette_stream_create(a, &address));
    REFUSED(cachette_stream_destroy(a, its.stream));
    REFUSED(cachette_stream_synchronize(a, its.stream));
    REFUSED(cachette_record_stream(a, its.held, its.stream));
    REFUSED(cachette_base_allocation(a, its.held, &address, &number));
    REFUSED(cachette_requested_bytes(a, its.held, &number));
    REFUSED(cachette_fill(a, its.held, 1, 16, its.stream));
    REFUSED(cachette_copy(a, its.held, its.held, 16, its.stream));
    REFUSED(cachette_upload(a, its.held, text, 16, its.stream));
    REFUSED(cachette_download(a, text, its.held, 16, its.stream));
    REFUSED(cachette_pool_create(a, NULL, 0, &pool));
    CHECK(pool == NULL);
    REFUSED(cachette_pool_open(a, id, &pool));
    REFUSED(cachette_sleep_tagged(a, "tag", 1, &slept, sizeof slept));
    REFUSED(cachette_wake_tagged(a, "tag", &number));
    REFUSED(cachette_release_contents(a, &number));
    REFUSED(cachette_stats(a, &stats, sizeof stats));
    REFUSED(cachette_stats_text(a, text, sizeof text, &count));
    REFUSED(cachette_metrics_text(a, text, sizeof text, &count));
    REFUSED(cachette_allocated_bytes(a, &number));
    REFUSED(cachette_reserved_bytes(a, &number));
    REFUSED(cachette_reset_peaks(a));
    REFUSED(cachette_reset_totals(a));
    REFUSED(cachette_pinned_allocate(a, KIB, &address));
    REFUSED(cachette_pinned_record_stream(a, its.pinned, its.stream));
    REFUSED(cachette_pinned_empty_cache(a, &number));
    REFUSED(cachette_pinned_stats(a, &pinned, sizeof pinned));
    REFUSED(cachette_set_memory_limit(a, GIB));
    REFUSED(cachette_memory_limit(a, &number));
    REFUSED(cachette_config(a, text, sizeof text, &count));
    REFUSED(cachette_set_config(a, ""));
    REFUSED(cachette_on_out_of_memory(a, NULL, NULL));
    REFUSED(cachette_on_pressure(a, NULL, NULL));
    REFUSED(cachette_track(a, NULL, NULL));
    REFUSED(cachette_record_history(a, NULL, 0));
    REFUSED(cachette_stop_history(a));
    REFUSED(cachette_save_snapshot(a, "/none/snapshot.json"));
}

static void refuses_of_pools(void) {
    cachette_pool_t *p = its.pool;
    cachette_pool_id_t id;
    cachette_pool_stats_t stats;
    cachette_slept_t slept;
    cachette_inside_t *inside;
    cachette_checkpoint_t *checkpoint;
    cachette_capture_t *capture;
    cachette_graph_t *graph;

    REFUSED(cachette_pool_id(p, &id));
    REFUSED(cachette_pool_use_count(p, &number));
    REFUSED(cachette_pool_allocate(p, MIB, its.stream, &address));
    REFUSED(cachette_pool_empty_cache(p, &number));
    REFUSED(cachette_pool_stats(p, &stats, sizeof stats));
    REFUSED(cachette_pool_check_live_allocations(p, NULL, 0, &yes));
    REFUSED(cachette_pool_enter(p, its.stream, &inside));
    REFUSED(cachette_pool_enter_all(p, &inside));
    REFUSED(cachette_pool_route_all(p));
    REFUSED(cachette_pool_route_stream(p, its.stream));
    REFUSED(cachette_pool_end_route(p));
    REFUSED(cachette_pool_checkpoint(p, &checkpoint));
    REFUSED(cachette_pool_restore(p, its.checkpoint));
    REFUSED(cachette_pool_begin_capture(p, its.stream, CACHETTE_CAPTURE_GLOBAL, &capture));
    REFUSED(cachette_capture_end(its.capture, &graph));
    CHECK(graph == NULL);
    REFUSED(cachette_graph_launch(its.graph, its.stream));
    REFUSED(cachette_pool_sleep(p, 1, NULL, NULL, &slept, sizeof slept));
    REFUSED(cachette_pool_wake(p, NULL, NULL, &number));
    REFUSED(cachette_pool_is_asleep(p, &yes));
    REFUSED(cachette_pool_save_snapshot(p, "/none/snapshot.json"));
}

/* What gives something back succeeds, and leaves it to the parent. */
static void gives_back(void) {
    OK(cachette_free(its.allocator, its.held));
    OK(cachette_pinned_free(its.allocator, its.pinned));
    OK(cachette_graph_destroy(its.graph));
    OK(cachette_checkpoint_destroy(its.checkpoint));
    OK(cachette_pool_leave(its.inside));
    OK(cachette_pool_release(its.pool));
    OK(cachette_close(its.allocator));
}

static void opens_its_own(void) {
    cachette_allocator_t *allocator = open_host("");
    void *held = allocate(allocator, MIB, NULL);
    OK(cachette_free(allocator, held));
    close_clean(allocator);
}

static void open_all(void) {
    cachette_capture_t *capture = NULL;
    its.allocator = open_host("");
    its.stream = create_stream(its.allocator);
    its.held = allocate(its.allocator, MIB, its.stream);
    OK(cachette_pinned_allocate(its.allocator, KIB, &its.pinned));
    its.pool = create_pool(its.allocator);
    OK(cachette_pool_checkpoint(its.pool, &its.checkpoint));
    OK(cachette_pool_begin_capture(its.pool, its.stream, CACHETTE_CAPTURE_GLOBAL, &capture));
    OK(cachette_capture_end(capture, &its.graph));
    OK(cachette_pool_begin_capture(its.pool, its.stream, CACHETTE_CAPTURE_GLOBAL, &its.capture));
    OK(cachette_pool_enter_all(its.pool, &its.inside));
}

int main(void) {
    int status = 1;
    pid_t child;

    CHECK(strstr(cachette_status_text(CACHETTE_ERROR_FORKED), "parent") != NULL);
    open_all();
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(120);
        refuses_of_allocators();
        refuses_of_pools();
        gives_back();
        opens_its_own();
        return 0;
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(cachette_pool_leave(its.inside));
    OK(cachette_capture_abandon(its.capture));
    OK(cachette_graph_destroy(its.graph));
    OK(cachette_checkpoint_destroy(its.checkpoint));
    OK(cachette_pool_release(its.pool));
    OK(cachette_pinned_free(its.allocator, its.pinned));
    OK(cachette_free(its.allocator, its.held));
    close_clean(its.allocator);
    return 0;
}
