/* A capture takes its memory from a pool, and its graph runs again and again. */
#include "check.h"

static void life(cachette_allocator_t *allocator, void *stream, uint32_t mode) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_capture_t *capture = NULL;
    cachette_graph_t *graph = NULL;
    void *memory;
    uint64_t users = 0;
    OK(cachette_pool_begin_capture(pool, stream, mode, &capture));
    memory = allocate(allocator, MIB, stream);
    CHECK(holds(pool, &memory, 1));
    OK(cachette_fill(allocator, memory, 7, MIB, stream));
    OK(cachette_capture_end(capture, &graph));
    CHECK(graph != NULL);
    OK(cachette_pool_use_count(pool, &users));
    CHECK(users == 2);

    OK(cachette_fill(allocator, memory, 1, MIB, stream));
    CHECK(content(allocator, memory, MIB, stream) == 1);
    OK(cachette_graph_launch(graph, stream));
    CHECK(content(allocator, memory, MIB, stream) == 7);
    /* The graph keeps its memory after all other handles are destroyed. */
    OK(cachette_pool_release(pool));
    OK(cachette_fill(allocator, memory, 2, MIB, stream));
    OK(cachette_graph_launch(graph, stream));
    CHECK(content(allocator, memory, MIB, stream) == 7);
    OK(cachette_free(allocator, memory));
    OK(cachette_graph_destroy(graph));
    OK(cachette_stream_synchronize(allocator, stream));
}

/* What a capture forbids breaks it; all is usable after its end. */
static void broken(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_capture_t *capture = NULL;
    cachette_graph_t *graph = (cachette_graph_t *)0x1;
    OK(cachette_pool_begin_capture(pool, stream, CACHETTE_CAPTURE_GLOBAL, &capture));
    FAILS(cachette_stream_synchronize(allocator, stream), CACHETTE_ERROR_CAPTURE, "end the capture");
    FAILS(cachette_capture_end(capture, &graph), CACHETTE_ERROR_CAPTURE, "broken");
    CHECK(graph == NULL);
    OK(cachette_pool_release(pool));
    life(allocator, stream, CACHETTE_CAPTURE_GLOBAL);
}

static void refusals(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_capture_t *capture = (cachette_capture_t *)0x1;
    cachette_graph_t *graph = (cachette_graph_t *)0x1;
    uint64_t users = 9;
    FAILS(cachette_pool_begin_capture(pool, NULL, CACHETTE_CAPTURE_GLOBAL, &capture), CACHETTE_ERROR_POOL,
          "the default stream cannot be captured");
    CHECK(capture == NULL);
    WRONG(cachette_pool_begin_capture(pool, stream, 3, &capture), "3 is not a capture mode");
    WRONG(cachette_pool_begin_capture(NULL, stream, 0, &capture), "`pool` is null");
    WRONG(cachette_pool_begin_capture(pool, stream, 0, NULL), "`out_capture` is null");
    WRONG(cachette_capture_end(NULL, &graph), "`capture` is null");
    CHECK(graph == NULL);
    OK(cachette_capture_abandon(NULL));
    WRONG(cachette_graph_launch(NULL, stream), "`graph` is null");
    OK(cachette_graph_destroy(NULL));

    /* Without a place for its graph a capture is over all the same. */
    OK(cachette_pool_begin_capture(pool, stream, CACHETTE_CAPTURE_GLOBAL, &capture));
    WRONG(cachette_capture_end(capture, NULL), "`out_graph` is null");
    OK(cachette_pool_use_count(pool, &users));
    CHECK(users == 1);
    OK(cachette_pool_release(pool));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    void *stream = create_stream(allocator);
    life(allocator, stream, CACHETTE_CAPTURE_GLOBAL);
    life(allocator, stream, CACHETTE_CAPTURE_THREAD_LOCAL);
    life(allocator, stream, CACHETTE_CAPTURE_RELAXED);
    broken(allocator, stream);
    refusals(allocator, stream);
    close_clean(allocator);
    return 0;
}
