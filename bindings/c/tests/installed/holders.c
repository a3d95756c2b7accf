/* Runs out of memory with a history, and prints the error. */
#include <cachette.h>
#include <stdio.h>

static cachette_status_t weights(cachette_allocator_t *allocator, void *stream, void **memory) {
    return cachette_allocate(allocator, 20 << 20, stream, memory);
}

int main(int argc, char **argv) {
    cachette_allocator_t *allocator;
    void *stream, *memory, *small, *large;
    if (argc != 2 || cachette_open("host", "memory_limit:64MiB", &allocator) != CACHETTE_OK ||
        cachette_record_history(allocator, NULL, 0) != CACHETTE_OK ||
        cachette_stream_create(allocator, &stream) != CACHETTE_OK ||
        weights(allocator, stream, &memory) != CACHETTE_OK ||
        cachette_allocate(allocator, 512, stream, &small) != CACHETTE_OK ||
        cachette_allocate(allocator, 60 << 20, stream, &large) != CACHETTE_ERROR_OUT_OF_MEMORY) {
        printf("%s\n", cachette_last_error());
        return 1;
    }
    printf("%s\n", cachette_last_error());
    return cachette_save_snapshot(allocator, argv[1]) != CACHETTE_OK;
}
