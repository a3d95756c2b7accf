/* The state of a pool is saved and brought back, at the same addresses. */
#include "check.h"

static void life(cachette_allocator_t *allocator) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_checkpoint_t *saved = NULL;
    void *memory[3];
    OK(cachette_pool_allocate(pool, 1000, NULL, &memory[0]));
    OK(cachette_pool_allocate(pool, 1000, NULL, &memory[1]));
    OK(cachette_pool_checkpoint(pool, &saved));

    OK(cachette_free(allocator, memory[0]));
    OK(cachette_pool_allocate(pool, 3 * MIB, NULL, &memory[2]));
    OK(cachette_pool_restore(pool, saved));
    CHECK(holds(pool, memory, 2));
    OK(cachette_free(allocator, memory[0]));
    OK(cachette_free(allocator, memory[1]));
    FAILS(cachette_free(allocator, memory[2]), CACHETTE_ERROR_INVALID_POINTER, "freed before");
    OK(cachette_checkpoint_destroy(saved));
    OK(cachette_pool_release(pool));
}

static void refusals(cachette_allocator_t *allocator) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_pool_t *other = create_pool(allocator);
    cachette_checkpoint_t *saved = NULL;
    cachette_checkpoint_t *none = (cachette_checkpoint_t *)0x1;
    OK(cachette_pool_checkpoint(pool, &saved));
    FAILS(cachette_pool_restore(other, saved), CACHETTE_ERROR_POOL, "belongs to another pool");
    WRONG(cachette_pool_checkpoint(NULL, &none), "`pool` is null");
    CHECK(none == NULL);
    WRONG(cachette_pool_checkpoint(pool, NULL), "`out_checkpoint` is null");
    WRONG(cachette_pool_restore(NULL, saved), "`pool` is null");
    WRONG(cachette_pool_restore(pool, NULL), "`checkpoint` is null");
    OK(cachette_checkpoint_destroy(saved));
    OK(cachette_checkpoint_destroy(NULL));
    OK(cachette_pool_release(pool));
    OK(cachette_pool_release(other));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    life(allocator);
    refusals(allocator);
    close_clean(allocator);
    return 0;
}
