/* Streams are created, waited for and destroyed; a foreign one is refused. */
#include "check.h"

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    void *one = create_stream(allocator);
    void *two = create_stream(allocator);
    void *none = (void *)0x1;
    void *memory, *other;
    CHECK(one != two);

    /* Each has its own memory; memory that was allocated on a stream outlives it. */
    memory = allocate(allocator, MIB, one);
    OK(cachette_free(allocator, memory));
    other = allocate(allocator, MIB, two);
    CHECK(other != memory);
    memory = allocate(allocator, MIB, one);
    OK(cachette_fill(allocator, memory, 3, MIB, one));
    OK(cachette_stream_destroy(allocator, one));
    CHECK(content(allocator, memory, MIB, two) == 3);
    FAILS(cachette_stream_destroy(allocator, one), CACHETTE_ERROR_FOREIGN_STREAM,
          "was not created by this allocator");

    /* The next one may be the same stream, in which the memory then is in order. */
    CHECK(create_stream(allocator) == one);
    OK(cachette_free(allocator, memory));
    OK(cachette_free(allocator, other));

    OK(cachette_stream_synchronize(allocator, NULL));
    OK(cachette_stream_destroy(allocator, NULL));
    WRONG(cachette_stream_create(allocator, NULL), "`out_stream` is null");
    WRONG(cachette_stream_create(NULL, &none), "`allocator` is null");
    CHECK(none == NULL);
    WRONG(cachette_stream_destroy(NULL, one), "`allocator` is null");
    WRONG(cachette_stream_synchronize(NULL, one), "`allocator` is null");
    close_clean(allocator);
    return 0;
}
