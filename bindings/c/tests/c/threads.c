/* Threads use one allocator at the same time, each with its own stream or all with one. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200, HELD = 8 };

static cachette_allocator_t *allocator;
static cachette_pool_t *pool;
static pthread_barrier_t barrier;
static void *handed_over[THREADS];

static void meet(void) {
    int result = pthread_barrier_wait(&barrier);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Holds some memory at a time, and finds in it what it has put there. */
static void work(unsigned number, void *stream) {
    void *memory[HELD] = {NULL};
    size_t bytes[HELD] = {0};
    unsigned random = number * 7919 + 1;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        unsigned slot = (random >> 16) % HELD;
        if (memory[slot] != NULL) {
            CHECK(content(allocator, memory[slot], bytes[slot], stream) == (int)(number * 16 + slot));
            OK(cachette_free(allocator, memory[slot]));
        }
        bytes[slot] = (random >> 8) % 20000 + 1;
        memory[slot] = allocate(allocator, bytes[slot], stream);
        OK(cachette_fill(allocator, memory[slot], (uint8_t)(number * 16 + slot), bytes[slot], stream));
        random = random * 1103515245u + 12345u;
    }
    for (round = 0; round < HELD; round++) {
        OK(cachette_free(allocator, memory[round]));
    }
}

static void *run(void *pointer) {
    unsigned number = *(unsigned *)pointer;
    void *own = create_stream(allocator);
    void *memory = NULL;
    cachette_inside_t *inside = NULL;
    work(number, own);

    /* All hold as much at once, and free what another has allocated. */
    meet();
    if (number == 0) {
        OK(cachette_reset_peaks(allocator));
    }
    meet();
    handed_over[number] = allocate(allocator, MIB, own);
    meet();
    CHECK(allocated(allocator) == THREADS * MIB);
    meet();
    OK(cachette_free(allocator, handed_over[(number + 1) % THREADS]));
    meet();

    /* Each failure is its thread's own. */
    FAILS(cachette_allocate(allocator, GIB * 2 + number, own, &memory), CACHETTE_ERROR_OUT_OF_MEMORY, "out");
    meet();
    {
        cachette_out_of_memory_t figures;
        OK(cachette_last_out_of_memory(&figures, sizeof figures));
        CHECK(figures.requested == GIB * 2 + number);
    }

    /* Every second thread is inside the pool, which the others share a stream with. */
    if (number % 2 == 0) {
        OK(cachette_pool_enter(pool, NULL, &inside));
    }
    work(number, NULL);
    OK(cachette_pool_leave(inside));
    OK(cachette_stream_destroy(allocator, own));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    cachette_stats_t stats;
    unsigned i;
    allocator = open_host("");
    pool = create_pool(allocator);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, run, &numbers[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    OK(cachette_stats(allocator, &stats, sizeof stats));
    CHECK(stats.allocated_bytes.all.current == 0 && stats.active_bytes.all.current == 0);
    CHECK(stats.allocated_bytes.all.peak == THREADS * MIB);
    CHECK(stats.allocation.all.allocated == stats.allocation.all.freed);
    CHECK(stats.num_ooms == THREADS);
    CHECK(holds(pool, NULL, 0));
    OK(cachette_pool_release(pool));
    close_clean(allocator);
    return 0;
}
