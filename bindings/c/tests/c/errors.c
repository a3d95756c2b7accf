/* A failure is the thread's own, says what to do, and has its figures if memory has run out. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

static void *elsewhere(void *unused) {
    cachette_out_of_memory_t figures;
    CHECK(unused == NULL);
    CHECK(strcmp(cachette_last_error(), "") == 0);
    FAILS(cachette_last_out_of_memory(&figures, sizeof figures), CACHETTE_ERROR_NOT_FOUND,
          "no request of this thread");
    return NULL;
}

int main(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    cachette_out_of_memory_t figures;
    void *address = (void *)0x1;
    char report[4096];
    size_t needed = 0;
    pthread_t thread;

    FAILS(cachette_last_out_of_memory_text(report, sizeof report, &needed),
          CACHETTE_ERROR_NOT_FOUND, "no request of this thread");
    FAILS(cachette_last_out_of_memory(&figures, sizeof figures), CACHETTE_ERROR_NOT_FOUND,
          "ask after CACHETTE_ERROR_OUT_OF_MEMORY");

    OK(cachette_set_memory_limit(allocator, 30 * MIB));
    void *held = allocate(allocator, 3 * MIB, NULL);
    FAILS(cachette_allocate(allocator, 40 * MIB, NULL, &address), CACHETTE_ERROR_OUT_OF_MEMORY,
          "the memory limit was reached");
    CHECK(address == NULL);
    OK(cachette_last_out_of_memory(&figures, sizeof figures));
    CHECK(figures.requested == 40 * MIB && figures.segment == 40 * MIB);
    CHECK(figures.total == GIB && figures.limit == 30 * MIB && figures.device == 0);
    CHECK(figures.allocated == 3 * MIB && figures.reserved == 20 * MIB && figures.pending == 0);
    CHECK(figures.free == GIB - 20 * MIB && figures.largest_free == 17 * MIB);
    CHECK(!figures.rejected && !figures.never_block);
    OK(cachette_set_config(allocator, "throw_on_cudamalloc_oom:True,never_block:True"));
    FAILS(cachette_allocate(allocator, 40 * MIB, NULL, &address), CACHETTE_ERROR_OUT_OF_MEMORY,
          "never_block:True prevents waiting");
    OK(cachette_last_out_of_memory(&figures, sizeof figures));
    CHECK(figures.rejected && figures.never_block);
    OK(cachette_set_config(allocator, ""));
    WRONG(cachette_last_out_of_memory(NULL, sizeof figures), "`out` is null");
    WRONG(cachette_last_out_of_memory(&figures, sizeof figures - 1), "pass its `sizeof`");

    /* A success leaves the text, and other threads have their own. */
    cachette_free(allocator, held);
    CHECK(strstr(cachette_last_error(), "pass its `sizeof`") != NULL);
    CHECK(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strstr(cachette_last_error(), "pass its `sizeof`") != NULL);

    OK(cachette_set_memory_limit(allocator, CACHETTE_NO_LIMIT));
    FAILS(cachette_allocate(allocator, UINT64_MAX, NULL, &address), CACHETTE_ERROR_TOO_LARGE,
          "no device has 1 EiB");
    FAILS(cachette_allocate(allocator, 2 * GIB, NULL, &address), CACHETTE_ERROR_OUT_OF_MEMORY,
          "free memory, or allocate less");
    OK(cachette_last_out_of_memory(&figures, sizeof figures));
    OK(cachette_last_out_of_memory_text(report, sizeof report, &needed));
    CHECK(strstr(report, "tried to allocate 2.00 GiB") != NULL && needed == strlen(report) + 1);
    FAILS(cachette_last_out_of_memory_text(report, 5, &needed), CACHETTE_ERROR_BUFFER_TOO_SMALL,
          "pass a larger one");
    OK(cachette_last_out_of_memory_text(NULL, 0, &needed));
    CHECK(needed > 100);
    CHECK(figures.requested == 2 * GIB && figures.limit == CACHETTE_NO_LIMIT && !figures.rejected);
    close_clean(allocator);
    return 0;
}
