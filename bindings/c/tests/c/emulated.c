/* A vendor's device is found by its driver's library; a source whose library is not there says so. */
#include "check.h"

int main(void) {
    cachette_allocator_t *allocator = NULL;
    cachette_device_info_t info;
    cachette_pool_options_t options;
    cachette_pool_t *pool = NULL;
    void *stream, *memory;
    uint32_t count = 0;
    OK(cachette_device_count("cuda", &count));
    CHECK(count >= 1);
    OK(cachette_open("cuda:0", "", &allocator));
    OK(cachette_device_info(allocator, &info, sizeof info));
    CHECK(info.vendor == CACHETTE_VENDOR_NVIDIA);
    stream = create_stream(allocator);
    memory = allocate(allocator, MIB, stream);
    OK(cachette_fill(allocator, memory, 9, MIB, stream));
    CHECK(content(allocator, memory, MIB, stream) == 9);
    OK(cachette_free(allocator, memory));

    memset(&options, 0, sizeof options);
    options.source = "nccl";
    FAILS(cachette_pool_create(allocator, &options, sizeof options, &pool), CACHETTE_ERROR_SOURCE, "NCCL");
    options.source = "rccl";
    WRONG(cachette_pool_create(allocator, &options, sizeof options, &pool), "is for AMD devices");
    CHECK(pool == NULL);
    OK(cachette_stream_destroy(allocator, stream));
    close_clean(allocator);
    return 0;
}
