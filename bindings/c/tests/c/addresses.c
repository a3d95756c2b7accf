/* The addresses of a pool are saved, and restored after it is gone. */
#include "check.h"

static const uint64_t SIZES[3] = {3 * MIB, 1000, 9 * MIB};

/* The addresses are taken while the pool lives, and its memory is where it was once it is gone. */
static void life(cachette_allocator_t *allocator, void *stream, const char *path) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_pool_t *restored = (cachette_pool_t *)0x1;
    void *memory[3];
    int i;
    for (i = 0; i < 3; i++) OK(cachette_pool_allocate(pool, SIZES[i], stream, &memory[i]));
    OK(cachette_pool_save_addresses(pool, path));
    FAILS(cachette_restore_addresses(allocator, path, stream, &restored), CACHETTE_ERROR_POOL, "are taken by");
    CHECK(restored == NULL);
    for (i = 0; i < 3; i++) OK(cachette_free(allocator, memory[i]));
    OK(cachette_pool_release(pool));

    OK(cachette_restore_addresses(allocator, path, stream, &restored));
    CHECK(holds(restored, memory, 3));
    OK(cachette_fill(allocator, memory[2], 7, 9 * MIB, stream));
    CHECK(content(allocator, memory[2], 9 * MIB, stream) == 7);
    for (i = 0; i < 3; i++) OK(cachette_free(allocator, memory[i]));
    OK(cachette_pool_release(restored));
}

/* A file that is no such file, or none, is an error. */
static void refusals(cachette_allocator_t *allocator, void *stream, const char *path) {
    cachette_pool_t *pool = create_pool(allocator);
    cachette_pool_t *none = NULL;
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fputs("cachette addresses 1\nvendor host\n", file) >= 0 && fclose(file) == 0);
    WRONG(cachette_restore_addresses(allocator, path, stream, &none), "was cut or changed");
    CHECK(remove(path) == 0);
    FAILS(cachette_restore_addresses(allocator, path, stream, &none), CACHETTE_ERROR_FILE, "entity not found");
    FAILS(cachette_pool_save_addresses(pool, "/no/such/folder/file"), CACHETTE_ERROR_FILE, "check that its folder exists");
    WRONG(cachette_pool_save_addresses(NULL, path), "`pool` is null");
    WRONG(cachette_pool_save_addresses(pool, NULL), "`path` is null");
    WRONG(cachette_restore_addresses(NULL, path, stream, &none), "`allocator` is null");
    WRONG(cachette_restore_addresses(allocator, path, stream, NULL), "`out_pool` is null");
    OK(cachette_pool_release(pool));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    void *stream = create_stream(allocator);
    const char *folder = getenv("TMPDIR");
    char path[256];
    int length = snprintf(path, sizeof path, "%s/cachette-%p.addresses", folder != NULL ? folder : "/tmp", (void *)path);
    CHECK(length > 0 && (size_t)length < sizeof path);
    life(allocator, stream, path);
    refusals(allocator, stream, path);
    OK(cachette_stream_destroy(allocator, stream));
    close_clean(allocator);
    return 0;
}
