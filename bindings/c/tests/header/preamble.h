/*
 * cachette.h: a caching allocator for GPU memory.
 *
 * A driver takes microseconds to milliseconds to hand memory out, and stops the whole device to take it back. Cachette
 * asks it seldom, for large segments, and cuts them into blocks. What is freed serves the next request that it fits.
 * One library serves NVIDIA (CUDA), AMD (ROCm/HIP) and plain host memory, and finds out when running what there is.
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
 * Memory belongs to a stream. A stream runs its work in order, so what is freed serves the next request of the same
 * stream at once, although work that uses it may not even have begun. Before memory is freed that another stream uses,
 * say so with cachette_record_stream.
 *
 * Errors. Functions return a cachette_status_t. cachette_last_error tells what happened and what to do about it. A call
 * that fails has changed nothing, unless its own text says otherwise; a handle or an address that it was to write is
 * then NULL, a number is 0. A NULL that is not allowed is CACHETTE_ERROR_INVALID_ARGUMENT.
 *
 * Ownership. What a function creates or opens has one function that gives it back, which takes NULL as well.
 * Handles are not counted and not checked: one that was given back must not be used again. Pools, captures and graphs
 * keep their allocator alive. Texts that are passed are copied.
 *
 * Threads. Every function may be called from any thread, with the same handles, at the same time; only the calls that
 * give a handle back need it to themselves. What a thread has entered (cachette_pool_enter) and the last error are the
 * thread's own. After fork() the child must not use what the parent has opened.
 *
 * Streams are the vendor's own handles: CUstream, cudaStream_t, hipStream_t. NULL is the default stream. A stream must
 * stay alive until the allocator that was told of it is closed. Device addresses are `void *` and are not for the host
 * to read.
 *
 * Structures may grow at their end; their size is passed along, so that old programs run with new libraries.
 *
 * This file is generated from bindings/c/src; change that, and run the tests of cachette-c with UPDATE_HEADER=1.
 */
#ifndef CACHETTE_H
#define CACHETTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
