/* Segments of a pool come from two functions of the program, or from a library that is named. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

struct account {
    uint64_t live_bytes;
    int made;
    int taken;
    int closed;
    bool empty;
    size_t shift;
};

static void *make(void *user, uint64_t bytes, uint32_t device, void *stream) {
    struct account *account = (struct account *)user;
    void *memory = NULL;
    CHECK(device == 0 && stream == NULL && bytes % MIB == 0);
    if (account->empty) {
        return NULL;
    }
    CHECK(posix_memalign(&memory, 4096, bytes + 4096) == 0);
    account->live_bytes += bytes;
    account->made++;
    return (char *)memory + account->shift;
}

static void take_back(void *user, void *address, uint64_t bytes, uint32_t device, void *stream) {
    struct account *account = (struct account *)user;
    CHECK(device == 0 && stream == NULL);
    account->live_bytes -= bytes;
    account->taken++;
    free((char *)address - account->shift);
}

static void end(void *user) {
    ((struct account *)user)->closed++;
}

static cachette_pool_options_t options_of(struct account *account) {
    cachette_pool_options_t options;
    memset(account, 0, sizeof *account);
    memset(&options, 0, sizeof options);
    options.source_allocate = make;
    options.source_free = take_back;
    options.source_close = end;
    options.source_user = account;
    return options;
}

static void life(cachette_allocator_t *allocator) {
    struct account account;
    cachette_pool_options_t options = options_of(&account);
    cachette_pool_t *pool = NULL;
    void *memory = NULL;
    void *more = NULL;
    uint64_t bytes = 0;
    OK(cachette_pool_create(allocator, &options, sizeof options, &pool));
    CHECK(account.made == 0);
    OK(cachette_pool_allocate(pool, 1000, NULL, &memory));
    CHECK(account.made == 1 && account.live_bytes == 2 * MIB);
    OK(cachette_pool_allocate(pool, 1000, NULL, &more));
    CHECK(account.made == 1);
    OK(cachette_free(allocator, more));
    OK(cachette_free(allocator, memory));
    CHECK(account.taken == 0);
    OK(cachette_pool_empty_cache(pool, &bytes));
    CHECK(bytes == 2 * MIB && account.taken == 1 && account.live_bytes == 0);

    account.empty = true;
    FAILS(cachette_pool_allocate(pool, 1000, NULL, &memory), CACHETTE_ERROR_OUT_OF_MEMORY, "out of memory");
    account.empty = false;
    account.shift = 16;
    FAILS(cachette_pool_allocate(pool, 1000, NULL, &memory), CACHETTE_ERROR_SOURCE, "512");
    CHECK(account.live_bytes == 0);
    account.shift = 0;
    CHECK(account.closed == 0);
    OK(cachette_pool_release(pool));
    CHECK(account.closed == 1);
}

static void refusals(cachette_allocator_t *allocator) {
    struct account account;
    cachette_pool_options_t options = options_of(&account);
    cachette_pool_t *pool = NULL;
    cachette_pool_t *first = NULL;
    OK(cachette_pool_new_id(&options.id));
    OK(cachette_pool_create(allocator, &options, sizeof options, &first));
    /* A pool that is not made does not close its source. */
    FAILS(cachette_pool_create(allocator, &options, sizeof options, &pool), CACHETTE_ERROR_POOL, "a pool with this id exists");
    CHECK(account.closed == 0);
    OK(cachette_pool_release(first));
    CHECK(account.closed == 1);

    memset(&options.id, 0, sizeof options.id);
    options.source_free = NULL;
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "together; set one of these");
    options.source_free = take_back;
    options.source = "nccl";
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "together; set one of these");
    options.source_allocate = NULL;
    options.source_free = NULL;
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "is for NVIDIA devices");
    options.source = "rocshmem";
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "is for AMD devices");
    options.source = "mpi";
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "choose one of nccl");
    CHECK(pool == NULL && account.closed == 1);
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    life(allocator);
    refusals(allocator);
    close_clean(allocator);
    return 0;
}
