/* Memory leaves as tensors of DLPack and comes back; the deleter frees it once. */
#include "check.h"

/* The structures of dlpack.h. */
typedef struct {
    int32_t type, id;
} device;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} data_type;
typedef struct {
    void *data;
    device where;
    int32_t ndim;
    data_type dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;
typedef struct unversioned {
    tensor inner;
    void *context;
    void (*deleter)(struct unversioned *);
} unversioned;
typedef struct versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct versioned *);
    uint64_t flags;
    tensor inner;
} versioned;

static const int64_t SHAPE[2] = {2, 3};

static void *export_as(cachette_allocator_t *allocator, void *stream, void *consumer, uint32_t major, void **memory) {
    void *made = NULL;
    *memory = allocate(allocator, 24, stream);
    OK(cachette_dlpack_export(allocator, *memory, 2, 32, SHAPE, 2, stream, consumer, major, &made));
    return made;
}

static void both_versions(cachette_allocator_t *allocator, void *stream) {
    void *memory, *address;
    uint64_t bytes;
    versioned *one = (versioned *)export_as(allocator, stream, stream, 1, &memory);
    unversioned *zero;
    CHECK(one->major == 1 && one->flags == 0);
    CHECK(one->inner.data == memory && one->inner.where.type == 1 && one->inner.where.id == 0);
    CHECK(one->inner.ndim == 2 && one->inner.shape[1] == 3 && one->inner.strides[0] == 3);
    CHECK(one->inner.dtype.code == 2 && one->inner.dtype.bits == 32 && one->inner.dtype.lanes == 1);
    OK(cachette_dlpack_import(allocator, one, 1, &address, &bytes));
    CHECK(address == memory && bytes == 24);
    CHECK(allocated(allocator) == 512);
    one->deleter(one);
    CHECK(allocated(allocator) == 0);

    zero = (unversioned *)export_as(allocator, stream, stream, 0, &memory);
    OK(cachette_dlpack_import(allocator, zero, 0, &address, &bytes));
    CHECK(address == memory && bytes == 24);
    zero->deleter(zero);
    CHECK(allocated(allocator) == 0);
}

static void refusals(cachette_allocator_t *allocator, void *stream) {
    void *memory = allocate(allocator, 24, stream);
    void *address = (void *)0x1, *made = (void *)0x1;
    uint64_t bytes = 9;
    const int64_t large[2] = {1000, 1000}, negative[1] = {-1};
    int64_t turned[2] = {1, 2};
    versioned *one;
    WRONG(cachette_dlpack_export(allocator, memory, 2, 32, large, 2, stream, stream, 1, &made), "pass a shape that fits");
    CHECK(made == NULL);
    WRONG(cachette_dlpack_export(allocator, memory, 2, 32, negative, 1, stream, stream, 1, &made), "is no shape");
    WRONG(cachette_dlpack_export(allocator, memory, 2, 32, NULL, 2, stream, stream, 1, &made), "`shape` is null");
    WRONG(cachette_dlpack_export(allocator, memory, 2, 32, SHAPE, 2, stream, stream, 2, &made), "pass 0 or 1");
    WRONG(cachette_dlpack_export(allocator, memory, 2, 32, SHAPE, 2, stream, stream, 1, NULL), "`out_tensor` is null");
    WRONG(cachette_dlpack_export(NULL, memory, 2, 32, SHAPE, 2, stream, stream, 1, &made), "`allocator` is null");
    FAILS(cachette_dlpack_export(allocator, &memory, 2, 32, SHAPE, 2, stream, stream, 1, &made),
          CACHETTE_ERROR_INVALID_POINTER, "not allocated by this allocator");
    CHECK(allocated(allocator) == 512); /* the memory stayed the caller's */
    OK(cachette_dlpack_export(allocator, memory, 2, 32, SHAPE, 2, stream, stream, 1, &made));
    one = (versioned *)made;

    WRONG(cachette_dlpack_import(allocator, NULL, 1, &address, &bytes), "`tensor` is null");
    CHECK(address == NULL && bytes == 0);
    WRONG(cachette_dlpack_import(allocator, one, 2, &address, &bytes), "pass 0 or 1");
    WRONG(cachette_dlpack_import(allocator, one, 1, NULL, &bytes), "`out_address` is null");
    WRONG(cachette_dlpack_import(allocator, one, 1, &address, NULL), "`out_bytes` is null");
    WRONG(cachette_dlpack_import(NULL, one, 1, &address, &bytes), "`allocator` is null");
    one->inner.where.type = 2;
    WRONG(cachette_dlpack_import(allocator, one, 1, &address, &bytes), "copy it there first");
    one->inner.where.type = 1;
    one->flags = 1;
    WRONG(cachette_dlpack_import(allocator, one, 1, &address, &bytes), "must not be written");
    one->flags = 0;
    one->inner.strides = turned;
    WRONG(cachette_dlpack_import(allocator, one, 1, &address, &bytes), "make a compact copy");
    one->major = 7;
    WRONG(cachette_dlpack_import(allocator, one, 1, &address, &bytes), "has version 7 of DLPack");
    one->deleter(one);
    CHECK(allocated(allocator) == 0);
}

static void another_stream(cachette_allocator_t *allocator, void *stream) {
    void *consumer = create_stream(allocator);
    void *memory;
    versioned *one = (versioned *)export_as(allocator, stream, consumer, 1, &memory);
    one->deleter(one);
    OK(cachette_stream_synchronize(allocator, consumer));
    CHECK(allocated(allocator) == 0);
    CHECK(allocate(allocator, 24, stream) == memory); /* behind the consumer's work */
    OK(cachette_free(allocator, memory));
    OK(cachette_stream_destroy(allocator, consumer));
}

static void no_bytes(cachette_allocator_t *allocator) {
    const int64_t none[1] = {0};
    void *made = NULL, *address = (void *)0x1;
    uint64_t bytes = 9;
    versioned *one;
    OK(cachette_dlpack_export(allocator, NULL, 1, 8, none, 1, NULL, NULL, 1, &made));
    one = (versioned *)made;
    OK(cachette_dlpack_import(allocator, one, 1, &address, &bytes));
    CHECK(address == NULL && bytes == 0);
    one->deleter(one);
}

int main(void) {
    cachette_allocator_t *allocator = open_host(NULL);
    void *memory;
    versioned *last;
    both_versions(allocator, NULL);
    refusals(allocator, NULL);
    another_stream(allocator, NULL);
    no_bytes(allocator);
    /* A tensor outlives the allocator that its memory is of. */
    last = (versioned *)export_as(allocator, NULL, NULL, 1, &memory);
    OK(cachette_close(allocator));
    memset(last->inner.data, 7, 24);
    last->deleter(last);
    return 0;
}
