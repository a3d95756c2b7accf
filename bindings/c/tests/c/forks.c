/* In a forked child the parent's allocator answers with an error, and freeing does nothing. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void in_child(cachette_allocator_t *allocator, void *held) {
    uint64_t bytes = 1;
    void *address = held;
    FAILS(cachette_allocate(allocator, MIB, NULL, &address), CACHETTE_ERROR_FORKED,
          "start workers by spawn or exec");
    CHECK(address == NULL);
    FAILS(cachette_empty_cache(allocator, &bytes), CACHETTE_ERROR_FORKED, "forked");
    OK(cachette_free(allocator, held));
    OK(cachette_close(allocator));

    allocator = open_host("");
    held = allocate(allocator, MIB, NULL);
    OK(cachette_free(allocator, held));
    close_clean(allocator);
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    void *held = allocate(allocator, MIB, NULL);
    int status = 1;
    pid_t child;

    CHECK(strstr(cachette_status_text(CACHETTE_ERROR_FORKED), "parent") != NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        in_child(allocator, held);
        return 0;
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(cachette_free(allocator, held));
    close_clean(allocator);
    return 0;
}
