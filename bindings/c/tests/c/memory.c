/* Memory is allocated, used, and freed by its address; what is no memory is refused with the reason. */
#include "check.h"

static void life(cachette_allocator_t *allocator, void *stream) {
    void *first = allocate(allocator, 1000, stream);
    void *second = allocate(allocator, 1000, stream);
    void *base = NULL;
    void *nothing = (void *)0x1;
    uint64_t bytes = 0;
    CHECK(first != second && allocated(allocator) == 2048);
    OK(cachette_base_allocation(allocator, second, &base, &bytes));
    CHECK(base == first && bytes == 2 * MIB);
    OK(cachette_requested_bytes(allocator, second, &bytes));
    CHECK(bytes == 1000);
    OK(cachette_free(allocator, second));
    CHECK(allocate(allocator, 600, stream) == second);
    OK(cachette_free(allocator, second));
    OK(cachette_free(allocator, first));
    OK(cachette_free(allocator, NULL));
    OK(cachette_allocate(allocator, 0, stream, &nothing));
    CHECK(nothing == NULL);
    WRONG(cachette_allocate(allocator, 1, stream, NULL), "`out_address` is null");
    WRONG(cachette_allocate(NULL, 1, stream, &nothing), "`allocator` is null");
    WRONG(cachette_free(NULL, NULL), "`allocator` is null");
}

static void bad_addresses(cachette_allocator_t *allocator, void *stream) {
    char *memory = (char *)allocate(allocator, 4096, stream);
    void *own = &memory;
    void *base = (void *)0x1;
    uint64_t bytes = 9;
    FAILS(cachette_free(allocator, memory + 512), CACHETTE_ERROR_INVALID_POINTER,
          "512 bytes inside the allocation");
    FAILS(cachette_free(allocator, own), CACHETTE_ERROR_INVALID_POINTER, "not allocated by this allocator");
    FAILS(cachette_base_allocation(allocator, own, &base, &bytes), CACHETTE_ERROR_INVALID_POINTER,
          "not allocated by this allocator");
    CHECK(base == NULL && bytes == 0);
    FAILS(cachette_requested_bytes(allocator, memory + 512, &bytes), CACHETTE_ERROR_INVALID_POINTER,
          "inside the allocation");
    FAILS(cachette_record_stream(allocator, own, stream), CACHETTE_ERROR_INVALID_POINTER,
          "not allocated by this allocator");
    WRONG(cachette_base_allocation(allocator, memory, NULL, &bytes), "`out_base` is null");
    WRONG(cachette_base_allocation(allocator, memory, &base, NULL), "`out_bytes` is null");
    WRONG(cachette_base_allocation(NULL, memory, &base, &bytes), "`allocator` is null");
    WRONG(cachette_requested_bytes(allocator, memory, NULL), "`out_bytes` is null");
    WRONG(cachette_requested_bytes(NULL, memory, &bytes), "`allocator` is null");
    OK(cachette_free(allocator, memory));
    FAILS(cachette_free(allocator, memory), CACHETTE_ERROR_INVALID_POINTER, "freed before");
    FAILS(cachette_requested_bytes(allocator, memory, &bytes), CACHETTE_ERROR_INVALID_POINTER, "freed");
}

static void contents(cachette_allocator_t *allocator, void *stream) {
    unsigned char sent[3000], received[3000];
    void *one = allocate(allocator, sizeof sent, stream);
    void *two = allocate(allocator, sizeof sent, stream);
    size_t i;
    for (i = 0; i < sizeof sent; i++) {
        sent[i] = (unsigned char)(i * 7);
    }
    OK(cachette_upload(allocator, one, sent, sizeof sent, stream));
    OK(cachette_copy(allocator, two, one, sizeof sent, stream));
    OK(cachette_fill(allocator, one, 0x5a, sizeof sent, stream));
    OK(cachette_download(allocator, received, two, sizeof received, stream));
    OK(cachette_stream_synchronize(allocator, stream));
    CHECK(memcmp(sent, received, sizeof sent) == 0);
    CHECK(content(allocator, one, sizeof sent, stream) == 0x5a);

    WRONG(cachette_upload(allocator, NULL, sent, 1, stream), "`to` is null");
    WRONG(cachette_upload(allocator, one, NULL, 1, stream), "`from` is null");
    WRONG(cachette_upload(NULL, one, sent, 1, stream), "`allocator` is null");
    WRONG(cachette_upload(allocator, one, sent, 0, stream), "invalid value");
    WRONG(cachette_download(allocator, NULL, one, 1, stream), "`to` is null");
    WRONG(cachette_download(allocator, received, NULL, 1, stream), "`from` is null");
    WRONG(cachette_download(NULL, received, one, 1, stream), "`allocator` is null");
    WRONG(cachette_copy(allocator, NULL, one, 1, stream), "`to` is null");
    WRONG(cachette_copy(allocator, two, NULL, 1, stream), "`from` is null");
    WRONG(cachette_copy(NULL, two, one, 1, stream), "`allocator` is null");
    WRONG(cachette_fill(allocator, NULL, 0, 1, stream), "`address` is null");
    WRONG(cachette_fill(NULL, one, 0, 1, stream), "`allocator` is null");
    OK(cachette_free(allocator, one));
    OK(cachette_free(allocator, two));
}

/* Memory that another stream uses is free when that stream is past it. */
static void uses(cachette_allocator_t *allocator, void *stream) {
    void *other = create_stream(allocator);
    void *memory = allocate(allocator, 4 * MIB, stream);
    OK(cachette_fill(allocator, memory, 1, 4 * MIB, other));
    OK(cachette_record_stream(allocator, memory, other));
    OK(cachette_record_stream(allocator, NULL, other));
    OK(cachette_free(allocator, memory));
    CHECK(allocated(allocator) == 0);
    OK(cachette_stream_synchronize(allocator, other));
    CHECK(allocate(allocator, 4 * MIB, stream) == memory);
    OK(cachette_free(allocator, memory));
    WRONG(cachette_record_stream(NULL, memory, other), "`allocator` is null");
    OK(cachette_stream_destroy(allocator, other));
}

int main(void) {
    const char *configs[] = {DIRECT, "", "caching:False"};
    size_t i;
    for (i = 0; i < sizeof configs / sizeof *configs; i++) {
        cachette_allocator_t *allocator = open_host(configs[i]);
        void *stream = create_stream(allocator);
        if (i == 0) {
            life(allocator, stream);
            life(allocator, NULL);
            bad_addresses(allocator, stream);
            uses(allocator, stream);
        }
        contents(allocator, stream);
        contents(allocator, NULL);
        close_clean(allocator);
    }
    return 0;
}
