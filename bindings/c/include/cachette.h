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

/* ---- Versions ---- */

/// The version of this header. It grows with every function or field that is added; none is ever taken away or changed
/// under the same SONAME.
#define CACHETTE_API_VERSION 2

/// The library's version, such as `0.1.0`; the text lives for ever.
const char *cachette_version(void);

/// The header's version that the library was built with: at least `CACHETTE_API_VERSION`, if the library has all that
/// this header declares.
uint32_t cachette_api_version(void);

/* ---- How a call went ---- */

/// How a call went. Numbers keep their meaning; new ones may come.
typedef enum cachette_status_t {
  /// All is well.
  CACHETTE_OK = 0,
  /// The call was wrong: a null pointer, a size, a flag, a text that is not UTF-8, a name that does not exist.
  CACHETTE_ERROR_INVALID_ARGUMENT = 1,
  /// The configuration has a mistake; the text shows where.
  CACHETTE_ERROR_INVALID_CONFIG = 2,
  /// The backend's driver is not here, too old, or not part of this build.
  CACHETTE_ERROR_NO_BACKEND = 3,
  /// The backend has no such device, or no backend has any.
  CACHETTE_ERROR_NO_DEVICE = 4,
  /// There is no memory; `cachette_last_out_of_memory` has the figures, unless it was pinned memory.
  CACHETTE_ERROR_OUT_OF_MEMORY = 5,
  /// The request is larger than any device.
  CACHETTE_ERROR_TOO_LARGE = 6,
  /// The address is not the start of live memory of this allocator.
  CACHETTE_ERROR_INVALID_POINTER = 7,
  /// The stream is not one of this allocator.
  CACHETTE_ERROR_FOREIGN_STREAM = 8,
  /// The pool cannot do that, or there is no such pool.
  CACHETTE_ERROR_POOL = 9,
  /// The source of a pool failed, or cannot be had.
  CACHETTE_ERROR_SOURCE = 10,
  /// The driver failed.
  CACHETTE_ERROR_DEVICE = 11,
  /// The device, or everything on it, is gone; stop using it.
  CACHETTE_ERROR_DEVICE_LOST = 12,
  /// The device or its driver lacks what this needs.
  CACHETTE_ERROR_UNSUPPORTED = 13,
  /// A capture is in the way, or was broken; end it and try again.
  CACHETTE_ERROR_CAPTURE = 14,
  /// The buffer is too small; how large it must be was written.
  CACHETTE_ERROR_BUFFER_TOO_SMALL = 15,
  /// What was asked for is not there.
  CACHETTE_ERROR_NOT_FOUND = 16,
  /// An invariant of the allocator does not hold; please report it.
  CACHETTE_ERROR_INCONSISTENT = 17,
  /// A failure that this version has no number for.
  CACHETTE_ERROR_OTHER = 18,
  /// The library has a fault; please report it.
  CACHETTE_ERROR_PANIC = 19,
  /// This process was forked from the one that opened the allocator; open another, or start workers by `exec`.
  CACHETTE_ERROR_FORKED = 20,
  /// A file could not be written.
  CACHETTE_ERROR_FILE = 21,
} cachette_status_t;

/// A status in a few words, which live for ever. For what happened and what to do, see `cachette_last_error`.
const char *cachette_status_text(int32_t status);

/* ---- Why it did not go better ---- */

/// Stands for a figure that the driver would not say.
#define CACHETTE_UNKNOWN UINT64_MAX

/// Stands for a bound that is not there.
#define CACHETTE_NO_LIMIT UINT64_MAX

/// A request that failed for want of memory, with the figures of that moment; all in bytes.
typedef struct cachette_out_of_memory_t {
  /// What the caller asked for.
  uint64_t requested;
  /// What was asked of the device for it.
  uint64_t segment;
  /// The device's memory, or `CACHETTE_UNKNOWN`.
  uint64_t total;
  /// What of it is free, or `CACHETTE_UNKNOWN`.
  uint64_t free;
  /// What this allocator may hold, or `CACHETTE_NO_LIMIT`.
  uint64_t limit;
  /// What callers hold.
  uint64_t allocated;
  /// What is held from the device.
  uint64_t reserved;
  /// What callers freed and other streams still use.
  uint64_t pending;
  /// The largest free block.
  uint64_t largest_free;
  /// The number of the device.
  uint32_t device;
  /// Whether the request was refused because of the limit, without asking the device.
  bool rejected;
  /// Whether the configuration forbids to wait for the device.
  bool never_block;
} cachette_out_of_memory_t;

/// What the last call that failed on this thread has to say: what happened, and what to do about it.
///
/// An empty text if none has failed. It belongs to the library and is valid until the next call that fails on this
/// thread; one that succeeds leaves it as it is.
const char *cachette_last_error(void);

/// The figures of the last request that failed on this thread for want of memory.
///
/// `CACHETTE_ERROR_NOT_FOUND` if none has. `size` is `sizeof *out`.
cachette_status_t cachette_last_out_of_memory(struct cachette_out_of_memory_t *out, size_t size);

/// Writes the report of that request in words: the figures, what every pool holds, where in the program most of it was
/// allocated if a history knows, and what could be done.
///
/// It is written with a final zero into a buffer of `capacity` bytes, and how many bytes it needs; NULL with a capacity
/// of 0 only asks. `CACHETTE_ERROR_NOT_FOUND` if there was no such request.
cachette_status_t cachette_last_out_of_memory_text(char *buffer,
                                                   size_t capacity,
                                                   size_t *out_needed);

/* ---- Allocators ---- */

/// A caching allocator for one device. Any thread may use it at any time.
typedef struct cachette_allocator_t cachette_allocator_t;

/// Opens a device and makes an allocator for it.
///
/// `device` is such as `"cuda:0"`, `"hip:1"` or `"host"`; without a number it is the first. NULL takes the first
/// device of the first backend that has one, in the order cuda, hip, host. `"host"` is host memory in the place of a
/// device: it needs no hardware and is meant for tests.
///
/// `config` is text such as `"expandable_segments:True,max_split_size_mb:64"`; an empty one is the default. NULL takes
/// that of the environment: `CACHETTE_ALLOC_CONF`, or else PyTorch's variables.
///
/// Close it with `cachette_close`.
cachette_status_t cachette_open(const char *device,
                                const char *config,
                                struct cachette_allocator_t **out_allocator);

/// Closes an allocator; NULL is nothing.
///
/// Free its memory and release its pools first. Memory that is still allocated then can never be freed. A pool, a
/// capture or a graph that is still there keeps the allocator alive, so that it stays usable itself.
cachette_status_t cachette_close(struct cachette_allocator_t *allocator);

/// Gives every unused segment back to the device, and writes how many bytes that were.
///
/// It may wait for the device, unless the configuration says `never_block:True`. Pools that somebody uses are left
/// alone.
cachette_status_t cachette_empty_cache(struct cachette_allocator_t *allocator,
                                       uint64_t *out_bytes);

/// Walks every structure of the allocator and checks every invariant, for tests. `CACHETTE_ERROR_INCONSISTENT` if one
/// does not hold; `cachette_last_error` says which.
cachette_status_t cachette_check(const struct cachette_allocator_t *allocator);

/* ---- Devices ---- */

/// Who made a device.
typedef enum cachette_vendor_t {
  /// Host memory in the place of a device.
  CACHETTE_VENDOR_HOST = 0,
  /// NVIDIA, through CUDA.
  CACHETTE_VENDOR_NVIDIA = 1,
  /// AMD, through HIP.
  CACHETTE_VENDOR_AMD = 2,
  /// One that this version has no number for.
  CACHETTE_VENDOR_OTHER = 3,
} cachette_vendor_t;

/// Facts about a device that never change.
typedef struct cachette_device_info_t {
  /// Its name, cut if it is too long.
  char name[256];
  /// Its instruction set, such as `sm_90` or `gfx942`; empty where it has none.
  char architecture[64];
  /// Its identity across processes; all zero where the driver gives none.
  uint8_t uuid[16];
  /// Bytes of its memory.
  uint64_t total_memory;
  /// Its number in the driver's list.
  uint32_t ordinal;
  /// Who made it.
  enum cachette_vendor_t vendor;
  /// Whether it shares its memory with the host.
  bool integrated;
} cachette_device_info_t;

/// Writes how many devices a backend shows: `"cuda"`, `"hip"` or `"host"`.
///
/// `CACHETTE_ERROR_NO_BACKEND` if its driver cannot be used here; `cachette_last_error` says why.
cachette_status_t cachette_device_count(const char *backend, uint32_t *out_count);

/// Writes facts about the allocator's device. `size` is `sizeof *out`.
cachette_status_t cachette_device_info(const cachette_allocator_t *allocator,
                                       struct cachette_device_info_t *out,
                                       size_t size);

/// Writes how many bytes the device has free now, for all processes together, and how many in all.
cachette_status_t cachette_memory_info(const cachette_allocator_t *allocator,
                                       uint64_t *out_free,
                                       uint64_t *out_total);

/* ---- Streams ---- */

/// Creates a stream, which does not wait for the default one. It is the vendor's own handle, a `CUstream` or a
/// `hipStream_t`, and lives until it is destroyed or the allocator is gone.
cachette_status_t cachette_stream_create(cachette_allocator_t *allocator,
                                         void **out_stream);

/// Waits for the work in a stream that `cachette_stream_create` made, and gives the stream up. NULL is nothing.
///
/// Memory that was allocated on it stays valid. The allocator keeps the stream, and may hand it out again.
cachette_status_t cachette_stream_destroy(cachette_allocator_t *allocator,
                                          void *stream);

/// Waits until everything that was queued in a stream so far has finished.
cachette_status_t cachette_stream_synchronize(cachette_allocator_t *allocator, void *stream);

/// Writes the number of the capture that a stream takes part in; 0 if it takes part in none.
///
/// `CACHETTE_ERROR_CAPTURE` if its capture is broken and must be ended.
cachette_status_t cachette_stream_capture_id(const cachette_allocator_t *allocator,
                                             void *stream,
                                             uint64_t *out_id);

/* ---- Memory ---- */

/// Allocates `bytes` bytes of device memory for work in `stream`, the vendor's own handle; NULL is the default stream.
///
/// Work that is queued in `stream` may use the memory at once. For no bytes it writes NULL. The stream must stay alive
/// until the allocator is closed.
cachette_status_t cachette_allocate(cachette_allocator_t *allocator,
                                    uint64_t bytes,
                                    void *stream,
                                    void **out_address);

/// Frees memory, of whichever pool. NULL is nothing.
///
/// The memory serves the next request of its own stream at once, since a stream runs in order. If other streams use
/// it, say so first: `cachette_record_stream`. Any thread may free it.
cachette_status_t cachette_free(cachette_allocator_t *allocator,
                                void *address);

/// Says that `stream` uses the memory too.
///
/// When it is freed, it serves no other request before the work that is in `stream` then has finished. The stream that
/// it was allocated for needs no record. NULL is nothing.
cachette_status_t cachette_record_stream(cachette_allocator_t *allocator,
                                         void *address,
                                         void *stream);

/// Writes where the segment begins that live memory lies in, and its bytes: what to name to a driver or to another
/// process.
cachette_status_t cachette_base_allocation(const cachette_allocator_t *allocator,
                                           void *address,
                                           void **out_base,
                                           uint64_t *out_bytes);

/// Writes how many bytes were asked for at an address. It looks through all live memory, so it is for tests and tools.
cachette_status_t cachette_requested_bytes(const cachette_allocator_t *allocator,
                                           void *address,
                                           uint64_t *out_bytes);

/* ---- Fills and copies, in stream order ---- */

/// Queues a fill: every one of `bytes` bytes from `address` on becomes `byte`.
cachette_status_t cachette_fill(cachette_allocator_t *allocator,
                                void *address,
                                uint8_t byte,
                                uint64_t bytes,
                                void *stream);

/// Queues a copy from device memory to device memory. The two do not overlap.
cachette_status_t cachette_copy(cachette_allocator_t *allocator,
                                void *to,
                                void *from,
                                uint64_t bytes,
                                void *stream);

/// Queues a copy from host memory, which must stay as it is until the copy has finished.
cachette_status_t cachette_upload(cachette_allocator_t *allocator,
                                  void *to,
                                  const void *from,
                                  size_t bytes,
                                  void *stream);

/// Queues a copy to host memory, which must stay valid and be left alone until the copy has finished.
cachette_status_t cachette_download(cachette_allocator_t *allocator,
                                    void *to,
                                    void *from,
                                    size_t bytes,
                                    void *stream);

/* ---- Names of pools ---- */

/// The name of a pool; no two pools of a process share one.
typedef struct cachette_pool_id_t {
  /// Not zero for a pool that was made for captures.
  uint64_t capture;
  /// Not zero for a pool that a user made.
  uint64_t user;
} cachette_pool_id_t;

/// Writes a name that no pool has yet, for one that is made later.
cachette_status_t cachette_pool_new_id(struct cachette_pool_id_t *out_id);

/* ---- How a pool is made ---- */

/// A flag of a pool: blocks are never split, so every allocation has a segment of its own.
#define CACHETTE_POOL_NO_SPLIT 1

/// A flag of a pool: its free blocks serve other requests of the same stream before those fail.
#define CACHETTE_POOL_USE_ON_OOM 2

/// Makes a segment: `bytes` bytes on a device, at a multiple of 512, for a request of `stream`. NULL means that there
/// is no memory. The segment overlaps nothing that is in use, and stays valid until it is taken back. Calls come from
/// any thread, several at once. The function must not ask a pool with a source for memory.
typedef void *(*cachette_source_allocate_fn)(void *user,
                                             uint64_t bytes,
                                             uint32_t device,
                                             void *stream);

/// Takes a segment back, which nothing uses any more. Calls come from any thread, several at once.
typedef void (*cachette_source_free_fn)(void *user,
                                        void *address,
                                        uint64_t bytes,
                                        uint32_t device,
                                        void *stream);

/// Is told, once, that the source is not needed any more and `user` may go.
typedef void (*cachette_source_close_fn)(void *user);

/// How a pool is made. Set all of it to zero first; what is zero is the default.
typedef struct cachette_pool_options_t {
  /// A name from `cachette_pool_new_id`; zero for a new one.
  cachette_pool_id_t id;
  /// `CACHETTE_POOL_NO_SPLIT` and `CACHETTE_POOL_USE_ON_OOM`, or-ed together.
  uint64_t flags;
  /// A ready-made source: `"nccl"` or `"nvshmem"` on NVIDIA's devices, `"rccl"` or `"rocshmem"` on AMD's. NULL takes
  /// segments from the device, or from the functions below. `"nvshmem"` initialises NVSHMEM for this process alone;
  /// `"nvshmem-adopted"` and `"rocshmem"` take over what the program has initialised for the same device.
  const char *source;
  /// A source of the program's own. Either both functions are set or none.
  cachette_source_allocate_fn source_allocate;
  /// See `source_allocate`.
  cachette_source_free_fn source_free;
  /// May be NULL. It is not called if the pool could not be made.
  cachette_source_close_fn source_close;
  /// Passed to the three functions.
  void *source_user;
  /// Pools with the same tag sleep and wake as one: `cachette_sleep_tagged`. NULL for none.
  const char *tag;
} cachette_pool_options_t;

/* ---- Pools: memory of their own for some requests ---- */

/// One user of a pool. Any thread may use it at any time.
typedef struct cachette_pool_t cachette_pool_t;

/// What a pool holds.
typedef struct cachette_pool_stats_t {
  /// Blocks that callers hold.
  uint64_t allocations;
  /// Their bytes.
  uint64_t allocated_bytes;
  /// Segments.
  uint64_t segments;
  /// Bytes held from the device or from the pool's source.
  uint64_t reserved_bytes;
} cachette_pool_stats_t;

/// Makes a pool, and its first user. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// Release it with `cachette_pool_release`. It keeps its allocator alive.
cachette_status_t cachette_pool_create(cachette_allocator_t *allocator,
                                       const cachette_pool_options_t *options,
                                       size_t size,
                                       struct cachette_pool_t **out_pool);

/// Becomes one more user of a pool, by its name. One that was released may be opened as long as anything lives in it.
cachette_status_t cachette_pool_open(cachette_allocator_t *allocator,
                                     cachette_pool_id_t id,
                                     struct cachette_pool_t **out_pool);

/// Is a user no more; NULL is nothing. After the last user's release unused memory goes back to the device, and live
/// memory follows when it is freed and the cache is emptied.
cachette_status_t cachette_pool_release(struct cachette_pool_t *pool);

/// Writes the pool's name.
cachette_status_t cachette_pool_id(const struct cachette_pool_t *pool, cachette_pool_id_t *out_id);

/// Writes how many users the pool has: owners, routes, captures and graphs.
cachette_status_t cachette_pool_use_count(const struct cachette_pool_t *pool, uint64_t *out_count);

/// Lets the pool's free blocks serve other requests of the same stream before those fail (1), or not (0).
cachette_status_t cachette_pool_set_use_on_oom(struct cachette_pool_t *pool,
                                               int32_t on);

/// Allocates from the pool, as `cachette_allocate` does; `cachette_free` frees it.
cachette_status_t cachette_pool_allocate(struct cachette_pool_t *pool,
                                         uint64_t bytes,
                                         void *stream,
                                         void **out_address);

/// Gives every unused segment of the pool back, and writes how many bytes that were. While graphs may use the pool's
/// memory, none is.
cachette_status_t cachette_pool_empty_cache(struct cachette_pool_t *pool,
                                            uint64_t *out_bytes);

/// Writes what the pool holds. `size` is `sizeof *out`.
cachette_status_t cachette_pool_stats(const struct cachette_pool_t *pool,
                                      struct cachette_pool_stats_t *out,
                                      size_t size);

/// Writes whether exactly these addresses are allocated in the pool, in whatever order.
cachette_status_t cachette_pool_check_live_allocations(const struct cachette_pool_t *pool,
                                                       void *const *addresses,
                                                       size_t count,
                                                       bool *out_holds);

/* ---- Which requests a pool serves ---- */

/// A thread inside a pool.
typedef struct cachette_inside_t cachette_inside_t;

/// Leads this thread's requests for a stream to the pool until `cachette_pool_leave`. The pool entered last serves.
cachette_status_t cachette_pool_enter(cachette_pool_t *pool,
                                      void *stream,
                                      struct cachette_inside_t **out_inside);

/// Leads this thread's requests for every stream to the pool until `cachette_pool_leave`.
cachette_status_t cachette_pool_enter_all(cachette_pool_t *pool,
                                          struct cachette_inside_t **out_inside);

/// Leaves a pool, on the thread that has entered it and before that thread ends. Several may be left in any order.
/// NULL is nothing.
///
/// On another thread it is `CACHETTE_ERROR_INVALID_ARGUMENT`, and changes nothing.
cachette_status_t cachette_pool_leave(struct cachette_inside_t *inside);

/// Leads requests of every thread to the pool until `cachette_pool_end_route`. A pool has one route at most.
cachette_status_t cachette_pool_route_all(cachette_pool_t *pool);

/// Leads requests of every thread for a stream to the pool until `cachette_pool_end_route`.
cachette_status_t cachette_pool_route_stream(cachette_pool_t *pool, void *stream);

/// Leads requests for all streams that take part in a capture to the pool until `cachette_pool_end_route`. The capture
/// is known by its number: see `cachette_stream_capture_id`.
cachette_status_t cachette_pool_route_capture(cachette_pool_t *pool,
                                              uint64_t capture_id);

/// Leads no more requests to the pool, but for those of threads that have entered it.
cachette_status_t cachette_pool_end_route(cachette_pool_t *pool);

/* ---- States of a pool, to be brought back later ---- */

/// What was allocated in a pool at one moment.
typedef struct cachette_checkpoint_t cachette_checkpoint_t;

/// Saves what is allocated in the pool now. It fails while a block waits for another stream.
///
/// Destroy it with `cachette_checkpoint_destroy`.
cachette_status_t cachette_pool_checkpoint(cachette_pool_t *pool,
                                           struct cachette_checkpoint_t **out_checkpoint);

/// Brings a state of the pool back: frees what is allocated, and allocates what was, at the same addresses. After a
/// failure nothing has changed. To learn what it frees, save the state before it.
cachette_status_t cachette_pool_restore(cachette_pool_t *pool,
                                        const struct cachette_checkpoint_t *checkpoint);

/// Writes the addresses that were allocated, in order, to an array with room for `capacity` of them, and how many
/// there are. NULL with a capacity of 0 only asks how many. Nothing is written to an array that is too small.
cachette_status_t cachette_checkpoint_addresses(const struct cachette_checkpoint_t *checkpoint,
                                                void **addresses,
                                                size_t capacity,
                                                size_t *out_count);

/// Destroys a saved state; NULL is nothing. The pool is not changed.
cachette_status_t cachette_checkpoint_destroy(struct cachette_checkpoint_t *checkpoint);

/* ---- Captures and graphs ---- */

/// A capture in this mode forbids calls that could wait for the device, to every thread.
#define CACHETTE_CAPTURE_GLOBAL 0

/// A capture in this mode forbids them to the thread that began it.
#define CACHETTE_CAPTURE_THREAD_LOCAL 1

/// A capture in this mode forbids nothing.
#define CACHETTE_CAPTURE_RELAXED 2

/// A capture under way.
typedef struct cachette_capture_t cachette_capture_t;

/// A captured graph. Memory that it uses stays its pool's until the last graph of the pool is gone.
typedef struct cachette_graph_t cachette_graph_t;

/// Begins to capture a stream, which is not the default one. Requests for streams that take part are served by the
/// pool. `mode` is `CACHETTE_CAPTURE_GLOBAL`, `CACHETTE_CAPTURE_THREAD_LOCAL` or `CACHETTE_CAPTURE_RELAXED`.
///
/// End it with `cachette_capture_end` or `cachette_capture_abandon`.
cachette_status_t cachette_pool_begin_capture(cachette_pool_t *pool,
                                              void *stream,
                                              uint32_t mode,
                                              struct cachette_capture_t **out_capture);

/// Ends a capture, and writes its graph, ready to launch. The capture is over and its handle gone even if this fails.
///
/// Destroy the graph with `cachette_graph_destroy`.
cachette_status_t cachette_capture_end(struct cachette_capture_t *capture,
                                       struct cachette_graph_t **out_graph);

/// Ends a capture and throws its graph away; NULL is nothing.
cachette_status_t cachette_capture_abandon(struct cachette_capture_t *capture);

/// Queues everything that the graph recorded. No other graph of the same pool runs at the same time.
cachette_status_t cachette_graph_launch(struct cachette_graph_t *graph,
                                        void *stream);

/// Destroys a graph; NULL is nothing. Launches under way run to their end.
cachette_status_t cachette_graph_destroy(struct cachette_graph_t *graph);

/* ---- Pools that sleep ---- */

/// Is told how far falling asleep or waking has come, in bytes, on the thread of the call. It must not call the
/// allocator.
typedef void (*cachette_progress_fn)(void *user, uint64_t done, uint64_t total);

/// What falling asleep did; all zero if the pool slept already.
typedef struct cachette_slept_t {
  /// Bytes that went back to the device.
  uint64_t released;
  /// Bytes that are kept in host memory.
  uint64_t saved;
} cachette_slept_t;

/// Gives all memory of the pool back to the device, and keeps every address. `size` is `sizeof *out`.
///
/// With `keep` the bytes are kept in page-locked host memory; with 0 they are lost. The memory must not be used until
/// the pool wakes, graphs that use it must not be launched, and requests to the pool fail; it may be freed. The call
/// waits for the streams of the allocator, and needs `expandable_segments:True`. `progress` may be NULL.
cachette_status_t cachette_pool_sleep(cachette_pool_t *pool,
                                      int32_t keep,
                                      cachette_progress_fn progress,
                                      void *user,
                                      struct cachette_slept_t *out,
                                      size_t size);

/// Gets memory for the pool again, at the same addresses and with the bytes that were kept, and writes how many bytes
/// that is. If there is too little, the pool sleeps on and may be woken later. `progress` may be NULL.
cachette_status_t cachette_pool_wake(cachette_pool_t *pool,
                                     cachette_progress_fn progress,
                                     void *user,
                                     uint64_t *out_bytes);

/// Writes whether the pool sleeps.
cachette_status_t cachette_pool_is_asleep(const cachette_pool_t *pool, bool *out_asleep);

/// Lets every pool that was made with this tag sleep, as `cachette_pool_sleep` does; all of them or none.
cachette_status_t cachette_sleep_tagged(cachette_allocator_t *allocator,
                                        const char *tag,
                                        int32_t keep,
                                        struct cachette_slept_t *out,
                                        size_t size);

/// Wakes every pool that was made with this tag, and writes how many bytes of memory they have.
cachette_status_t cachette_wake_tagged(cachette_allocator_t *allocator,
                                       const char *tag,
                                       uint64_t *out_bytes);

/// Gives host memory back that kept the contents of pools which are awake now, and writes its bytes. Until then it
/// serves the next sleep.
cachette_status_t cachette_release_contents(cachette_allocator_t *allocator,
                                            uint64_t *out_bytes);

/* ---- Statistics ---- */

/// One figure over time.
typedef struct cachette_stat_t {
  /// Now.
  uint64_t current;
  /// The highest since the start, or since `cachette_reset_peaks`.
  uint64_t peak;
  /// Sum of increases since the start, or since `cachette_reset_totals`.
  uint64_t allocated;
  /// Sum of decreases since then.
  uint64_t freed;
} cachette_stat_t;

/// A figure for all blocks, and apart for the two kinds of segment.
typedef struct cachette_stat_array_t {
  /// Both kinds together.
  struct cachette_stat_t all;
  /// Segments of 2 MiB, for blocks of at most 1 MiB.
  struct cachette_stat_t small_pool;
  /// All other segments.
  struct cachette_stat_t large_pool;
} cachette_stat_array_t;

/// What an allocator has done and holds.
///
/// Bytes of blocks are counted as rounded. A block that was freed while another stream still used it is active, but no
/// longer allocated.
typedef struct cachette_stats_t {
  /// Blocks held by callers.
  struct cachette_stat_array_t allocation;
  /// Segments obtained from the device.
  struct cachette_stat_array_t segment;
  /// Blocks held by callers, or waiting for other streams.
  struct cachette_stat_array_t active;
  /// Free blocks that are only part of their segment, which can therefore not be given back.
  struct cachette_stat_array_t inactive_split;
  /// Bytes of `allocation`.
  struct cachette_stat_array_t allocated_bytes;
  /// Bytes of `segment`.
  struct cachette_stat_array_t reserved_bytes;
  /// Bytes of `active`.
  struct cachette_stat_array_t active_bytes;
  /// Bytes of `inactive_split`.
  struct cachette_stat_array_t inactive_split_bytes;
  /// Bytes that callers asked for.
  struct cachette_stat_array_t requested_bytes;
  /// Allocations at least as large as the bound on splitting.
  struct cachette_stat_t oversize_allocations;
  /// Segments at least as large as the bound on splitting.
  struct cachette_stat_t oversize_segments;
  /// How often the device was asked again after memory had been given back to it.
  uint64_t num_alloc_retries;
  /// How often a request ended in out-of-memory.
  uint64_t num_ooms;
  /// How often an allocation waited for events of other streams.
  uint64_t num_sync_all_streams;
  /// Segments obtained from the device.
  uint64_t num_device_alloc;
  /// Segments given back to the device.
  uint64_t num_device_free;
  /// Requests refused because of the limit, before the device was asked.
  uint64_t num_oom_rejections;
  /// The bound on splitting when the allocator was made, or `CACHETTE_NO_LIMIT`.
  uint64_t max_split_size;
} cachette_stats_t;

/// Writes what the allocator has done and holds. `size` is `sizeof *out`.
cachette_status_t cachette_stats(const cachette_allocator_t *allocator,
                                 struct cachette_stats_t *out,
                                 size_t size);

/// Writes the same as a table for people, with a final zero, into a buffer of `capacity` bytes, and how many bytes it
/// needs. NULL with a capacity of 0 only asks.
cachette_status_t cachette_stats_text(const cachette_allocator_t *allocator,
                                      char *buffer,
                                      size_t capacity,
                                      size_t *out_needed);

/// Writes the figures in the text form that Prometheus reads, as `cachette_stats_text` does. It asks the driver how
/// much memory is free.
cachette_status_t cachette_metrics_text(const cachette_allocator_t *allocator,
                                        char *buffer,
                                        size_t capacity,
                                        size_t *out_needed);

/// Writes how many bytes of blocks callers hold now. It is much cheaper than `cachette_stats`.
cachette_status_t cachette_allocated_bytes(const cachette_allocator_t *allocator,
                                           uint64_t *out_bytes);

/// Writes how many bytes are held from the device now. It is much cheaper than `cachette_stats`.
cachette_status_t cachette_reserved_bytes(const cachette_allocator_t *allocator,
                                          uint64_t *out_bytes);

/// Makes every peak the present value.
cachette_status_t cachette_reset_peaks(cachette_allocator_t *allocator);

/// Makes every sum and count zero; what is held now, and the peaks, stay.
cachette_status_t cachette_reset_totals(cachette_allocator_t *allocator);

/* ---- Pinned host memory ---- */

/// How long calls took, in microseconds.
typedef struct cachette_time_stat_t {
  /// Together.
  uint64_t total;
  /// The longest.
  uint64_t max;
  /// The shortest.
  uint64_t min;
  /// How many there were.
  uint64_t count;
} cachette_time_stat_t;

/// What was done with pinned memory, and what is held. Sizes are those of blocks: powers of two.
typedef struct cachette_pinned_stats_t {
  /// Blocks, in use or free.
  cachette_stat_t allocations;
  /// Their bytes.
  cachette_stat_t allocated_bytes;
  /// Blocks that callers, streams or graphs use.
  cachette_stat_t active_requests;
  /// Their bytes.
  cachette_stat_t active_bytes;
  /// Time that making memory took.
  struct cachette_time_stat_t host_alloc_time;
  /// Time that giving memory back took.
  struct cachette_time_stat_t host_free_time;
  /// How often the driver was asked for memory.
  uint64_t num_host_alloc;
  /// How often memory went back to the driver.
  uint64_t num_host_free;
} cachette_pinned_stats_t;

/// Allocates `bytes` bytes of pinned host memory, rounded up to a power of two; for no bytes it writes NULL.
///
/// Copies between it and the device run asynchronously. It belongs to no stream. The host may read and write it as long
/// as no copy does.
cachette_status_t cachette_pinned_allocate(cachette_allocator_t *allocator,
                                           size_t bytes,
                                           void **out_address);

/// Frees pinned memory; NULL is nothing. It serves again once the streams that were recorded for it have come so far.
cachette_status_t cachette_pinned_free(cachette_allocator_t *allocator,
                                       void *address);

/// Says that work in `stream` uses the pinned memory. Every stream that does is recorded or waited for before the
/// memory is freed; NULL is nothing.
cachette_status_t cachette_pinned_record_stream(cachette_allocator_t *allocator,
                                                void *address,
                                                void *stream);

/// Gives every free block of pinned memory back to the driver, which waits for the whole device, and writes how many
/// bytes that were. `cachette_empty_cache` leaves pinned memory alone.
cachette_status_t cachette_pinned_empty_cache(cachette_allocator_t *allocator,
                                              uint64_t *out_bytes);

/// Writes the figures of pinned memory. `size` is `sizeof *out`.
cachette_status_t cachette_pinned_stats(const cachette_allocator_t *allocator,
                                        struct cachette_pinned_stats_t *out,
                                        size_t size);

/// Makes every peak of pinned memory the present value.
cachette_status_t cachette_pinned_reset_peaks(cachette_allocator_t *allocator);

/// Makes every sum and count of pinned memory zero; what is held now, and the peaks, stay.
cachette_status_t cachette_pinned_reset_totals(cachette_allocator_t *allocator);

/* ---- Limits ---- */

/// Bounds what the allocator may hold, in bytes; `CACHETTE_NO_LIMIT` is no bound. A bound below what is held already
/// only keeps it from growing.
cachette_status_t cachette_set_memory_limit(cachette_allocator_t *allocator,
                                            uint64_t bytes);

/// Writes what the allocator may hold, in bytes, or `CACHETTE_NO_LIMIT`.
cachette_status_t cachette_memory_limit(const cachette_allocator_t *allocator, uint64_t *out_bytes);

/// Bounds what the allocator may hold to a fraction of the device's memory, from 0 to 1; 1 is no bound.
cachette_status_t cachette_set_memory_fraction(cachette_allocator_t *allocator,
                                               double fraction);

/// Writes the bound as a fraction of the device's memory; 1 if there is none, or one beyond the device.
cachette_status_t cachette_memory_fraction(const cachette_allocator_t *allocator,
                                           double *out_fraction);

/* ---- Configuration ---- */

/// Writes the configuration as text, with a final zero, into a buffer of `capacity` bytes, and how many bytes that
/// needs. NULL with a capacity of 0 only asks. The text names what differs from the default, and can be set again.
cachette_status_t cachette_config(const cachette_allocator_t *allocator,
                                  char *buffer,
                                  size_t capacity,
                                  size_t *out_needed);

/// Behaves as the text says from now on; what it does not name becomes the default. NULL takes the configuration of
/// the environment. After a failure nothing has changed.
///
/// Bounds on memory are not part of it: see `cachette_set_memory_limit`.
cachette_status_t cachette_set_config(cachette_allocator_t *allocator,
                                      const char *config);

/* ---- Observers ---- */

/// What happened to memory.
typedef enum cachette_action_t {
  /// A caller got a block.
  CACHETTE_ACTION_ALLOC = 0,
  /// A caller gave a block back.
  CACHETTE_ACTION_FREE_REQUESTED = 1,
  /// The block is free for others; later than the request where another stream still used it.
  CACHETTE_ACTION_FREE_COMPLETED = 2,
  /// A segment was obtained from the device.
  CACHETTE_ACTION_SEGMENT_ALLOC = 3,
  /// A segment goes back to the device.
  CACHETTE_ACTION_SEGMENT_FREE = 4,
  /// Memory was mapped into an elastic segment.
  CACHETTE_ACTION_SEGMENT_MAP = 5,
  /// Memory left an elastic segment, for another place or for the device.
  CACHETTE_ACTION_SEGMENT_UNMAP = 6,
  /// A request failed.
  CACHETTE_ACTION_OUT_OF_MEMORY = 7,
  /// One that this version has no number for.
  CACHETTE_ACTION_OTHER = 8,
} cachette_action_t;

/// Is told of a request that ends in out-of-memory, before it returns. The report is valid during the call; later
/// versions may add fields at its end.
typedef void (*cachette_out_of_memory_fn)(void *user, const cachette_out_of_memory_t *report);

/// Is asked to free memory, and says whether it freed any: not 0 if it did. It may free memory of the allocator; it
/// may not allocate.
typedef int32_t (*cachette_pressure_fn)(void *user);

/// One thing that happened. Later versions may add fields at the end.
typedef struct cachette_event_t {
  /// Where; NULL for `CACHETTE_ACTION_OUT_OF_MEMORY`.
  void *address;
  /// What the caller asked for, or the size of the segment.
  uint64_t bytes;
  /// The stream of the block or segment.
  void *stream;
  /// For `CACHETTE_ACTION_OUT_OF_MEMORY`, the device's free bytes; otherwise 0.
  uint64_t device_free;
  /// What happened.
  enum cachette_action_t action;
} cachette_event_t;

/// Is told of one thing that happened. It must not call the allocator. The event is valid during the call.
typedef void (*cachette_track_fn)(void *user, const struct cachette_event_t *event);

/// Calls `callback` with the figures whenever a request ends in out-of-memory.
///
/// This and the two functions below: the callback runs on the thread of the request, several at once, and with no lock
/// held. It must return, without throwing or jumping out. It stays until the allocator is gone.
cachette_status_t cachette_on_out_of_memory(cachette_allocator_t *allocator,
                                            cachette_out_of_memory_fn callback,
                                            void *user);

/// Asks `callback` to free memory whenever no free block fits, before anything else is tried.
cachette_status_t cachette_on_pressure(cachette_allocator_t *allocator,
                                       cachette_pressure_fn callback,
                                       void *user);

/// Tells `callback` of everything that happens to memory.
cachette_status_t cachette_track(cachette_allocator_t *allocator,
                                 cachette_track_fn callback,
                                 void *user);

/* ---- What happened to memory ---- */

/// A level of a history: everything has a stack, the end of an allocation where it ended.
#define CACHETTE_HISTORY_ALL 0

/// A level of a history: every event of an allocation has the stack where it began.
#define CACHETTE_HISTORY_ALLOC 1

/// A level of a history: what is allocated has a stack, and no event does.
#define CACHETTE_HISTORY_STATE 2

/// A level of a history: nothing has a stack.
#define CACHETTE_HISTORY_NONE 3

/// A flag of a history: what was recorded before is forgotten.
#define CACHETTE_HISTORY_CLEAR 1

/// How a history is recorded. Set all of it to zero first; what is zero is the default.
typedef struct cachette_history_options_t {
  /// How many events are kept, 96 bytes each from the start; 0 for 100,000.
  uint64_t max_entries;
  /// One of the levels above.
  uint32_t level;
  /// `CACHETTE_HISTORY_CLEAR`, or 0.
  uint32_t flags;
  /// Names of actions to leave out, with commas between them, such as `"free_completed,snapshot"`; NULL for none.
  const char *skip;
} cachette_history_options_t;

/// Records what happens to memory from now on. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// What was recorded before stays, unless it is to be forgotten. Stacks are those of the native callers.
cachette_status_t cachette_record_history(cachette_allocator_t *allocator,
                                          const struct cachette_history_options_t *options,
                                          size_t size);

/// Records nothing any more, and forgets what was recorded.
cachette_status_t cachette_stop_history(cachette_allocator_t *allocator);

/// Writes whether a history is recorded.
cachette_status_t cachette_records_history(const cachette_allocator_t *allocator,
                                           bool *out_records);

/// Lets every event of this thread carry `text`, for all allocators and until it is set again; NULL is none.
///
/// Every different text is kept as long as the process, so it should name phases and not count steps.
cachette_status_t cachette_set_metadata(const char *text);

/* ---- What is held and what happened, as files ---- */

/// Writes what the allocator holds, and what happened as far as a history was recorded, to a file.
///
/// The name says the format: `.pickle` is what PyTorch's memory viewer reads, `.json` is this project's own. The file
/// is there whole or not at all.
cachette_status_t cachette_save_snapshot(const cachette_allocator_t *allocator,
                                         const char *path);

/// The same of one pool alone.
cachette_status_t cachette_pool_save_snapshot(const cachette_pool_t *pool, const char *path);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CACHETTE_H */
