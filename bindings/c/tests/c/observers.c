/* Observers are told of exhaustion, asked for memory, and told of everything that happens to it. */
#include "check.h"

struct seen {
    cachette_allocator_t *allocator;
    void *spare;
    int asked;
    int exhausted;
    uint64_t requested;
    int actions[CACHETTE_ACTION_OTHER + 1];
    cachette_event_t last_alloc;
    uint64_t device_free;
};

static void exhausted(void *user, const cachette_out_of_memory_t *report) {
    struct seen *seen = (struct seen *)user;
    seen->exhausted++;
    seen->requested = report->requested;
}

/* Frees what the program can do without. */
static int32_t relieve(void *user) {
    struct seen *seen = (struct seen *)user;
    seen->asked++;
    if (seen->spare == NULL) {
        return 0;
    }
    OK(cachette_free(seen->allocator, seen->spare));
    seen->spare = NULL;
    return 1;
}

static void happened(void *user, const cachette_event_t *event) {
    struct seen *seen = (struct seen *)user;
    seen->actions[event->action]++;
    if (event->action == CACHETTE_ACTION_ALLOC) {
        seen->last_alloc = *event;
    }
    if (event->action == CACHETTE_ACTION_OUT_OF_MEMORY) {
        CHECK(event->address == NULL);
        seen->device_free = event->device_free;
    }
}

int main(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    struct seen seen;
    void *memory = NULL;
    uint64_t bytes = 0;
    memset(&seen, 0, sizeof seen);
    seen.allocator = allocator;
    OK(cachette_on_out_of_memory(allocator, exhausted, &seen));
    OK(cachette_on_pressure(allocator, relieve, &seen));
    OK(cachette_track(allocator, happened, &seen));

    seen.spare = allocate(allocator, 30 * MIB, NULL);
    CHECK(seen.actions[CACHETTE_ACTION_ALLOC] == 1 && seen.actions[CACHETTE_ACTION_SEGMENT_ALLOC] == 1);
    CHECK(seen.last_alloc.address == seen.spare && seen.last_alloc.bytes == 30 * MIB);
    CHECK(seen.last_alloc.stream == NULL && seen.last_alloc.device_free == 0);

    /* The helper frees enough, so nothing fails. */
    OK(cachette_set_memory_limit(allocator, 40 * MIB));
    memory = seen.spare;
    seen.asked = 0;
    CHECK(seen.spare != NULL);
    CHECK(allocate(allocator, 30 * MIB, NULL) == memory);
    CHECK(seen.asked == 1 && seen.spare == NULL && seen.exhausted == 0);
    CHECK(seen.actions[CACHETTE_ACTION_FREE_REQUESTED] == 1);
    CHECK(seen.actions[CACHETTE_ACTION_FREE_COMPLETED] == 1);

    CHECK(cachette_allocate(allocator, 50 * MIB, NULL, &memory) == CACHETTE_ERROR_OUT_OF_MEMORY);
    CHECK(seen.exhausted == 1 && seen.requested == 50 * MIB);
    CHECK(seen.actions[CACHETTE_ACTION_OUT_OF_MEMORY] == 1 && seen.device_free == GIB - 30 * MIB);
    OK(cachette_free(allocator, seen.last_alloc.address));
    OK(cachette_empty_cache(allocator, &bytes));
    CHECK(seen.actions[CACHETTE_ACTION_SEGMENT_FREE] == 1);

    WRONG(cachette_on_out_of_memory(allocator, NULL, &seen), "`callback` is null");
    WRONG(cachette_on_out_of_memory(NULL, exhausted, &seen), "`allocator` is null");
    WRONG(cachette_on_pressure(allocator, NULL, &seen), "`callback` is null");
    WRONG(cachette_on_pressure(NULL, relieve, &seen), "`allocator` is null");
    WRONG(cachette_track(allocator, NULL, &seen), "`callback` is null");
    WRONG(cachette_track(NULL, happened, &seen), "`allocator` is null");
    close_clean(allocator);
    return 0;
}
