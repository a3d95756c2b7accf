/* Limits and the configuration are read and set while the allocator works. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

static void limits(cachette_allocator_t *allocator) {
    uint64_t bytes = 9;
    OK(cachette_memory_limit(allocator, &bytes));
    CHECK(bytes == CACHETTE_NO_LIMIT);
    OK(cachette_set_memory_limit(allocator, GIB / 2));
    OK(cachette_memory_limit(allocator, &bytes));
    CHECK(bytes == GIB / 2);
    OK(cachette_set_memory_limit(allocator, CACHETTE_NO_LIMIT));

    WRONG(cachette_set_memory_limit(NULL, 1), "`allocator` is null");
    WRONG(cachette_memory_limit(NULL, &bytes), "`allocator` is null");
    WRONG(cachette_memory_limit(allocator, NULL), "`out_bytes` is null");
    OK(cachette_memory_limit(allocator, &bytes));
    CHECK(bytes == CACHETTE_NO_LIMIT);
}

static void configurations(cachette_allocator_t *allocator) {
    char text[64];
    size_t needed = 0;
    OK(cachette_config(allocator, text, sizeof text, &needed));
    CHECK(strcmp(text, "max_split_size_mb:64") == 0 && needed == strlen(text) + 1);
    OK(cachette_set_config(allocator, "never_block:True"));
    OK(cachette_config(allocator, text, sizeof text, &needed));
    CHECK(strcmp(text, "never_block:True") == 0);

    FAILS(cachette_set_config(allocator, "never_blocks:True"), CACHETTE_ERROR_INVALID_CONFIG,
          "did you mean 'never_block'?");
    WRONG(cachette_set_config(allocator, "\xff"), "`config` is not UTF-8");
    OK(cachette_config(allocator, text, sizeof text, &needed));
    CHECK(strcmp(text, "never_block:True") == 0);

    CHECK(setenv("CACHETTE_ALLOC_CONF", "never_block:True", 1) == 0);
    OK(cachette_set_config(allocator, NULL));
    OK(cachette_config(allocator, text, sizeof text, &needed));
    CHECK(strcmp(text, "never_block:True") == 0);

    FAILS(cachette_config(allocator, text, 3, &needed), CACHETTE_ERROR_BUFFER_TOO_SMALL, "room for 3");
    CHECK(text[0] == '\0' && needed == strlen("never_block:True") + 1);
    OK(cachette_config(allocator, NULL, 0, &needed));
    FAILS(cachette_config(allocator, text, 0, &needed), CACHETTE_ERROR_BUFFER_TOO_SMALL, "room for 0");
    WRONG(cachette_config(allocator, NULL, 3, &needed), "`buffer` is null");
    WRONG(cachette_config(allocator, text, sizeof text, NULL), "`out_needed` is null");
    WRONG(cachette_config(NULL, text, sizeof text, &needed), "`allocator` is null");
    WRONG(cachette_set_config(NULL, ""), "`allocator` is null");
}

int main(void) {
    cachette_allocator_t *allocator = open_host("max_split_size_mb:64");
    limits(allocator);
    configurations(allocator);
    close_clean(allocator);
    return 0;
}
