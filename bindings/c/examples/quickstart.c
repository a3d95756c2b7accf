/*
 * Allocates memory, uses it, frees it, and prints the statistics of the allocator.
 *
 * Without an argument it uses the first device; `quickstart cuda:0` uses that one. docs/c.md explains how to compile
 * and link it.
 */
#include <cachette.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the reason if a call fails. */
static void must(cachette_status_t status) {
    if (status != CACHETTE_OK) {
        fprintf(stderr, "quickstart: %s\n", cachette_last_error());
        exit(1);
    }
}

int main(int argc, char **argv) {
    cachette_allocator_t *allocator;
    cachette_device_info_t device;
    cachette_stats_t stats;
    float sent[256], received[256];
    void *stream, *memory;
    int round, i;

    must(cachette_open(argc > 1 ? argv[1] : NULL, NULL, &allocator));
    must(cachette_device_info(allocator, &device, sizeof device));
    printf("%s with %" PRIu64 " MiB\n", device.name, device.total_memory >> 20);

    /* A stream of the vendor's runtime works too. */
    must(cachette_stream_create(allocator, &stream));
    for (i = 0; i < 256; i++) {
        sent[i] = (float)i;
    }
    for (round = 0; round < 1000; round++) {
        must(cachette_allocate(allocator, sizeof sent, stream, &memory));
        must(cachette_upload(allocator, memory, sent, sizeof sent, stream));
        must(cachette_download(allocator, received, memory, sizeof received, stream));
        /* Free at once for the next request of this stream; the host does not wait for the copies. */
        must(cachette_free(allocator, memory));
    }
    must(cachette_stream_synchronize(allocator, stream));
    printf("the last number is %.0f\n", received[255]);

    must(cachette_stats(allocator, &stats, sizeof stats));
    printf("requests: %" PRIu64 ", of them asked of the driver: %" PRIu64 "\n",
           stats.allocation.all.allocated, stats.num_device_alloc);
    must(cachette_stream_destroy(allocator, stream));
    must(cachette_close(allocator));
    return 0;
}
