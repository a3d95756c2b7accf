/* The shared allocator of a device is one in the process, and it starts once. */
#include "check.h"

int main(void) {
    cachette_allocator_t *none = (cachette_allocator_t *)0x1;
    cachette_allocator_t *one, *two;
    void *memory;
    FAILS(cachette_open_shared(0, &none), CACHETTE_ERROR_NO_BACKEND, "loaded neither libcuda nor libamdhip64");
    CHECK(none == NULL);
    WRONG(cachette_start(NULL, ""), "`backend` is null");
    WRONG(cachette_start("vulkan", ""), "no backend named 'vulkan'");
    FAILS(cachette_start("host", "caching:no"), CACHETTE_ERROR_INVALID_CONFIG, "at byte 8");
    OK(cachette_start("host", "expandable_segments:False"));
    WRONG(cachette_start("host", ""), "started before in this process, with the backend 'host'");
    WRONG(cachette_open_shared(0, NULL), "`out_allocator` is null");
    FAILS(cachette_open_shared(7, &none), CACHETTE_ERROR_NO_DEVICE, "there is no device host:7");
    FAILS(cachette_open_shared(64, &none), CACHETTE_ERROR_NO_DEVICE, "the numbers are 0 to 63");
    OK(cachette_open_shared(0, &one));
    OK(cachette_open_shared(0, &two));
    memory = allocate(one, MIB, NULL);
    CHECK(allocated(two) == MIB);
    OK(cachette_close(one));
    CHECK(allocated(two) == MIB);
    OK(cachette_free(two, memory));
    CHECK(allocate(two, MIB, NULL) == memory);
    OK(cachette_free(two, memory));
    OK(cachette_close(two));
    /* A destroyed stream serves the next handle, with its memory. So handles may come and go. */
    uint64_t reserved = 0;
    for (int i = 0; i < 3; i++) {
        void *stream;
        uint64_t now;
        OK(cachette_open_shared(0, &one));
        OK(cachette_stream_create(one, &stream));
        memory = allocate(one, MIB, stream);
        OK(cachette_free(one, memory));
        OK(cachette_reserved_bytes(one, &now));
        CHECK(i == 0 || now == reserved);
        reserved = now;
        OK(cachette_stream_destroy(one, stream));
        OK(cachette_close(one));
    }
    return 0;
}
