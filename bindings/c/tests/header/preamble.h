/*
 * cachette.h: a caching allocator for GPU memory.
 *
 * A driver takes microseconds to milliseconds to allocate memory, and synchronises the whole device to free it.
 * Cachette allocates large segments from the driver, splits them into blocks, and reuses freed blocks. One library
 * supports NVIDIA (CUDA), AMD (ROCm/HIP) and host memory, and loads the drivers at run time.
 *
 *     cachette_allocator_t *allocator;
 *     void *memory;
 *     if (cachette_open("cuda:0", NULL, &allocator) != CACHETTE_OK ||
 *         cachette_allocate(allocator, 1 << 20, stream, &memory) != CACHETTE_OK) {
 *         fprintf(stderr, "%s\n", cachette_last_error());
 *         exit(1);
 *     }
 *     ... queue work in `stream` that uses `memory` ...
 *     cachette_free(allocator, memory);
 *     cachette_close(allocator);
 *
 * Memory belongs to a stream. A stream runs its work in order, so freed memory can serve the next request of the same
 * stream at once, even before the work that uses it has run. Call cachette_record_stream before freeing memory that
 * another stream uses.
 *
 * Errors. Functions return a cachette_status_t. cachette_last_error returns what happened and what to do about it. A
 * call that fails changes nothing, unless its documentation says otherwise; it sets out-pointers to NULL or 0. A NULL
 * that is not allowed returns CACHETTE_ERROR_INVALID_ARGUMENT.
 *
 * Ownership. Every kind of handle has one function that destroys it, which ignores NULL. Handles are not counted or
 * checked: a destroyed handle must not be used. Pools, captures and graphs keep their allocator alive. Texts are
 * copied.
 *
 * Threads. Every function is thread-safe, except that no other call may use a handle while it is destroyed. The last
 * error and the entered pools (cachette_pool_enter) are per thread. After fork() the child must not use the parent's
 * handles.
 *
 * Streams are the vendor's handles: CUstream, cudaStream_t, hipStream_t. NULL is the default stream. A stream must stay
 * alive until every allocator that it was passed to is closed. Device addresses are `void *`, and the host must not
 * read them.
 *
 * Structures may grow at their end. Their size is passed with them, so that old programs run with new libraries.
 *
 * This file is generated from bindings/c/src. To update it, run the tests of cachette-c with UPDATE_HEADER=1.
 */
#ifndef CACHETTE_H
#define CACHETTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
