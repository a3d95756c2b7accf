/* Requests are led to the pool that the thread entered last, or to that of the route begun last. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

static void nested(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_t *outer = create_pool(allocator);
    cachette_pool_t *inner = create_pool(allocator);
    cachette_inside_t *in_outer = NULL;
    cachette_inside_t *in_inner = NULL;
    void *memory[4];
    OK(cachette_pool_enter_all(outer, &in_outer));
    memory[0] = allocate(allocator, 1000, stream);
    OK(cachette_pool_enter(inner, stream, &in_inner));
    memory[1] = allocate(allocator, 1000, stream);
    memory[2] = allocate(allocator, 1000, NULL);
    CHECK(holds(inner, &memory[1], 1));
    /* In any order, and after the pool was released. */
    OK(cachette_pool_release(outer));
    OK(cachette_pool_leave(in_outer));
    OK(cachette_free(allocator, memory[1]));
    memory[1] = allocate(allocator, 1000, stream);
    CHECK(holds(inner, &memory[1], 1));
    OK(cachette_pool_leave(in_inner));
    memory[3] = allocate(allocator, 1000, stream);
    CHECK(holds(inner, &memory[1], 1));
    OK(cachette_free(allocator, memory[0]));
    OK(cachette_free(allocator, memory[1]));
    OK(cachette_free(allocator, memory[2]));
    OK(cachette_free(allocator, memory[3]));
    OK(cachette_pool_release(inner));
}

static void routes(cachette_allocator_t *allocator, void *stream) {
    cachette_pool_t *all = create_pool(allocator);
    cachette_pool_t *one = create_pool(allocator);
    void *memory[3];
    uint64_t users = 0;
    OK(cachette_pool_route_all(all));
    OK(cachette_pool_use_count(all, &users));
    CHECK(users == 2);
    FAILS(cachette_pool_route_all(all), CACHETTE_ERROR_POOL, "a route to this pool already exists");
    OK(cachette_pool_route_stream(one, stream));
    memory[0] = allocate(allocator, 1000, NULL);
    memory[1] = allocate(allocator, 1000, stream);
    CHECK(holds(all, &memory[0], 1) && holds(one, &memory[1], 1));
    OK(cachette_pool_end_route(one));
    OK(cachette_pool_end_route(all));
    FAILS(cachette_pool_end_route(all), CACHETTE_ERROR_POOL, "no route to this pool exists");
    memory[2] = allocate(allocator, 1000, stream);
    CHECK(holds(one, &memory[1], 1));
    OK(cachette_free(allocator, memory[0]));
    OK(cachette_free(allocator, memory[1]));
    OK(cachette_free(allocator, memory[2]));
    OK(cachette_pool_release(all));
    OK(cachette_pool_release(one));
}

struct elsewhere {
    cachette_allocator_t *allocator;
    cachette_inside_t *inside;
    cachette_pool_t *pool;
};

static void *other_thread(void *pointer) {
    struct elsewhere *given = (struct elsewhere *)pointer;
    void *memory = allocate(given->allocator, 1000, NULL);
    CHECK(holds(given->pool, NULL, 0));
    WRONG(cachette_pool_leave(given->inside), "another thread entered");
    OK(cachette_free(given->allocator, memory));
    return NULL;
}

static void threads(cachette_allocator_t *allocator) {
    struct elsewhere given = {NULL, NULL, NULL};
    pthread_t thread;
    void *memory;
    given.allocator = allocator;
    given.pool = create_pool(allocator);
    OK(cachette_pool_enter(given.pool, NULL, &given.inside));
    CHECK(pthread_create(&thread, NULL, other_thread, &given) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    memory = allocate(allocator, 1000, NULL);
    CHECK(holds(given.pool, &memory, 1));
    OK(cachette_pool_leave(given.inside));
    OK(cachette_free(allocator, memory));
    OK(cachette_pool_release(given.pool));
}

static void nulls(cachette_allocator_t *allocator) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_inside_t *none = (cachette_inside_t *)0x1;
    WRONG(cachette_pool_enter(NULL, NULL, &none), "`pool` is null");
    CHECK(none == NULL);
    WRONG(cachette_pool_enter(pool, NULL, NULL), "`out_inside` is null");
    WRONG(cachette_pool_enter_all(NULL, &none), "`pool` is null");
    WRONG(cachette_pool_enter_all(pool, NULL), "`out_inside` is null");
    OK(cachette_pool_leave(NULL));
    WRONG(cachette_pool_route_all(NULL), "`pool` is null");
    WRONG(cachette_pool_route_stream(NULL, NULL), "`pool` is null");
    WRONG(cachette_pool_end_route(NULL), "`pool` is null");
    OK(cachette_pool_release(pool));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    void *stream = create_stream(allocator);
    nested(allocator, stream);
    routes(allocator, stream);
    threads(allocator);
    nulls(allocator);
    close_clean(allocator);
    return 0;
}
