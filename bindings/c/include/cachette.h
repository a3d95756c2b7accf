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

/* ---- Versions ---- */

/// The version of this header. It increases with every added function or field. None is removed or changed under the
/// same SONAME.
#define CACHETTE_API_VERSION 5

/// The library's version, such as `0.1.0`; a static string.
const char *cachette_version(void);

/// The header version of the library. The library has all declarations of this header if it is at least
/// `CACHETTE_API_VERSION`.
uint32_t cachette_api_version(void);

/* ---- Status codes ---- */

/// The result of a call. The numbers are stable; later versions may add some.
typedef enum cachette_status_t {
  /// Success.
  CACHETTE_OK = 0,
  /// An argument is invalid: a null pointer, a size, a flag, a text that is not UTF-8, an unknown name.
  CACHETTE_ERROR_INVALID_ARGUMENT = 1,
  /// The configuration is invalid; the text shows where.
  CACHETTE_ERROR_INVALID_CONFIG = 2,
  /// The backend's driver is missing, too old, or not part of this build.
  CACHETTE_ERROR_NO_BACKEND = 3,
  /// The backend has no such device, or no backend has a device.
  CACHETTE_ERROR_NO_DEVICE = 4,
  /// Out of memory. `cachette_last_out_of_memory` has the figures, except for pinned memory.
  CACHETTE_ERROR_OUT_OF_MEMORY = 5,
  /// The request is larger than any device.
  CACHETTE_ERROR_TOO_LARGE = 6,
  /// The address is not the start of live memory of this allocator.
  CACHETTE_ERROR_INVALID_POINTER = 7,
  /// The stream belongs to another allocator, or is unknown.
  CACHETTE_ERROR_FOREIGN_STREAM = 8,
  /// The pool does not support the call, or does not exist.
  CACHETTE_ERROR_POOL = 9,
  /// The source of a pool failed, or cannot be loaded.
  CACHETTE_ERROR_SOURCE = 10,
  /// The driver failed.
  CACHETTE_ERROR_DEVICE = 11,
  /// The device, or everything on it, is lost; stop using it.
  CACHETTE_ERROR_DEVICE_LOST = 12,
  /// The device or its driver lacks a feature.
  CACHETTE_ERROR_UNSUPPORTED = 13,
  /// A capture forbids the call, or was invalidated; end it and try again.
  CACHETTE_ERROR_CAPTURE = 14,
  /// The buffer is too small; the size it needs was written.
  CACHETTE_ERROR_BUFFER_TOO_SMALL = 15,
  /// There is no such report.
  CACHETTE_ERROR_NOT_FOUND = 16,
  /// An invariant of the allocator is violated; please report it.
  CACHETTE_ERROR_INCONSISTENT = 17,
  /// Another error.
  CACHETTE_ERROR_OTHER = 18,
  /// The library panicked; please report it.
  CACHETTE_ERROR_PANIC = 19,
  /// This process was forked from the one that opened the allocator; open another, or start workers by `exec`.
  CACHETTE_ERROR_FORKED = 20,
  /// A file could not be written or read.
  CACHETTE_ERROR_FILE = 21,
} cachette_status_t;

/// A short description of a status, as a static string. `cachette_last_error` has the details.
const char *cachette_status_text(int32_t status);

/* ---- The last error ---- */

/// A figure that the driver did not report.
#define CACHETTE_UNKNOWN UINT64_MAX

/// No limit.
#define CACHETTE_NO_LIMIT UINT64_MAX

/// An out-of-memory failure: the figures at that time, in bytes.
typedef struct cachette_out_of_memory_t {
  /// The size that the caller requested.
  uint64_t requested;
  /// The size of the segment that was requested from the device.
  uint64_t segment;
  /// The device's memory, or `CACHETTE_UNKNOWN`.
  uint64_t total;
  /// The device's free memory, or `CACHETTE_UNKNOWN`.
  uint64_t free;
  /// The limit of this allocator, or `CACHETTE_NO_LIMIT`.
  uint64_t limit;
  /// Bytes that callers hold.
  uint64_t allocated;
  /// Bytes that the allocator holds from the device.
  uint64_t reserved;
  /// Bytes that callers freed and other streams still use.
  uint64_t pending;
  /// The largest free block.
  uint64_t largest_free;
  /// The number of the device.
  uint32_t device;
  /// Whether the limit refused the request, before the device was asked.
  bool rejected;
  /// Whether the configuration has `never_block:True`.
  bool never_block;
} cachette_out_of_memory_t;

/// The text of the last call that failed on this thread: what happened, and what to do about it.
///
/// It is empty if no call has failed. The library owns it; it is valid until the next call that fails on this thread.
/// Successful calls do not change it.
const char *cachette_last_error(void);

/// The figures of the last request of this thread that ran out of memory.
///
/// Returns `CACHETTE_ERROR_NOT_FOUND` if there was none. `size` is `sizeof *out`.
cachette_status_t cachette_last_out_of_memory(struct cachette_out_of_memory_t *out, size_t size);

/// Writes the report of that request as text: the figures, the contents of every pool, the top allocation sites if a
/// history is recorded, and advice.
///
/// It is written with a final zero into a buffer of `capacity` bytes, with the number of bytes needed. Pass NULL and 0
/// to get only that number. Returns `CACHETTE_ERROR_NOT_FOUND` if there was no such request.
cachette_status_t cachette_last_out_of_memory_text(char *buffer,
                                                   size_t capacity,
                                                   size_t *out_needed);

/* ---- Allocators ---- */

/// A caching allocator for one device. It is thread-safe.
typedef struct cachette_allocator_t cachette_allocator_t;

/// Opens a device and creates an allocator for it.
///
/// `device` is for example `"cuda:0"`, `"hip:1"` or `"host"`; the number defaults to 0. NULL selects the first device
/// of the first backend that has one, in the order cuda, hip, host. `"host"` uses host memory instead of a device, for
/// tests.
///
/// `config` is for example `"expandable_segments:False,max_split_size_mb:64"`; an empty text is the default, which has
/// elastic segments. NULL reads the environment: `CACHETTE_ALLOC_CONF`, or else PyTorch's variables.
///
/// Close it with `cachette_close`.
cachette_status_t cachette_open(const char *device,
                                const char *config,
                                struct cachette_allocator_t **out_allocator);

/// Closes an allocator; NULL is ignored.
///
/// Free its memory and release its pools first. Memory that is still allocated is leaked. Remaining pools, captures and
/// graphs keep the allocator's state alive and stay usable.
cachette_status_t cachette_close(struct cachette_allocator_t *allocator);

/// Releases every unused segment to the device, and writes the number of bytes.
///
/// It may wait for the device, unless the configuration has `never_block:True`. Pools that have users keep their
/// segments.
cachette_status_t cachette_empty_cache(struct cachette_allocator_t *allocator,
                                       uint64_t *out_bytes);

/// Checks every invariant of the allocator, for tests. Returns `CACHETTE_ERROR_INCONSISTENT` if one is violated;
/// `cachette_last_error` names it.
cachette_status_t cachette_check(const struct cachette_allocator_t *allocator);

/* ---- Allocators that the process shares ---- */

/// Selects the backend (`"cuda"`, `"hip"` or `"host"`) and the configuration of the shared allocators, once in a
/// process.
///
/// The driver is not used yet. Without this call, the first `cachette_open_shared` selects the driver that the process
/// has loaded and the configuration of the environment. `config` is as for `cachette_open`.
cachette_status_t cachette_start(const char *backend,
                                 const char *config);

/// Opens the shared allocator of a device. PyTorch, CuPy and other libraries that use Cachette in this process allocate
/// from the same one.
///
/// Snapshots show the memory of this handle with the label `c`. Close the handle with `cachette_close`; the allocator
/// and its streams stay.
cachette_status_t cachette_open_shared(uint32_t device,
                                       cachette_allocator_t **out_allocator);

/* ---- Devices ---- */

/// The vendor of a device.
typedef enum cachette_vendor_t {
  /// Host memory instead of a device.
  CACHETTE_VENDOR_HOST = 0,
  /// NVIDIA, through CUDA.
  CACHETTE_VENDOR_NVIDIA = 1,
  /// AMD, through HIP.
  CACHETTE_VENDOR_AMD = 2,
  /// Unknown to this version.
  CACHETTE_VENDOR_OTHER = 3,
} cachette_vendor_t;

/// Constant properties of a device.
typedef struct cachette_device_info_t {
  /// Its name, truncated if it is too long.
  char name[256];
  /// Its instruction set, such as `sm_90` or `gfx942`; empty if it has none.
  char architecture[64];
  /// Its identity across processes; all zero if the driver reports none.
  uint8_t uuid[16];
  /// Its memory in bytes.
  uint64_t total_memory;
  /// Its ordinal in the driver's list.
  uint32_t ordinal;
  /// Its vendor.
  enum cachette_vendor_t vendor;
  /// Whether it shares its memory with the host.
  bool integrated;
} cachette_device_info_t;

/// Writes the number of visible devices of a backend: `"cuda"`, `"hip"` or `"host"`.
///
/// Returns `CACHETTE_ERROR_NO_BACKEND` if its driver cannot be used; `cachette_last_error` has the reason.
cachette_status_t cachette_device_count(const char *backend,
                                        uint32_t *out_count);

/// Writes the properties of the allocator's device. `size` is `sizeof *out`.
cachette_status_t cachette_device_info(const cachette_allocator_t *allocator,
                                       struct cachette_device_info_t *out,
                                       size_t size);

/// Writes the device's free memory, for all processes together, and its total memory, in bytes.
cachette_status_t cachette_memory_info(const cachette_allocator_t *allocator,
                                       uint64_t *out_free,
                                       uint64_t *out_total);

/* ---- Streams ---- */

/// Creates a non-blocking stream: it does not wait for the default stream. The handle is a `CUstream` or a
/// `hipStream_t`, valid until it is destroyed or the allocator is gone.
cachette_status_t cachette_stream_create(cachette_allocator_t *allocator,
                                         void **out_stream);

/// Waits for a stream of `cachette_stream_create`, and destroys it. NULL is ignored.
///
/// Memory that was allocated on it stays valid. The allocator keeps the stream for later calls of
/// `cachette_stream_create`.
cachette_status_t cachette_stream_destroy(cachette_allocator_t *allocator, void *stream);

/// Waits for the work that is queued in a stream.
cachette_status_t cachette_stream_synchronize(cachette_allocator_t *allocator, void *stream);

/* ---- Memory ---- */

/// Allocates `bytes` bytes of device memory for work in `stream`, a handle of the vendor; NULL is the default stream.
///
/// Work that is queued in `stream` may use the memory at once. For 0 bytes it writes NULL. The stream must stay alive
/// until the allocator is closed.
cachette_status_t cachette_allocate(cachette_allocator_t *allocator,
                                    uint64_t bytes,
                                    void *stream,
                                    void **out_address);

/// Frees memory of any pool. NULL is ignored.
///
/// The next request of the same stream may get the memory at once, since a stream runs in order. If other streams use
/// it, call `cachette_record_stream` first. Any thread may free it.
cachette_status_t cachette_free(cachette_allocator_t *allocator,
                                void *address);

/// Writes whether the memory behind an address never changes while it is allocated or cached, so that it may be
/// registered: in a pool with `CACHETTE_POOL_REGISTERED`, in a direct segment, or outside the cache.
cachette_status_t cachette_is_stable(const cachette_allocator_t *allocator,
                                     const void *address,
                                     bool *out_stable);

/// Records that `stream` uses the memory too.
///
/// After it is freed, it is not reused until the work that is in `stream` at that time has finished. The stream that it
/// was allocated for needs no record. A NULL address is ignored.
cachette_status_t cachette_record_stream(cachette_allocator_t *allocator,
                                         void *address,
                                         void *stream);

/// Writes the start and size of the segment that contains live memory, as drivers and other processes need them.
cachette_status_t cachette_base_allocation(const cachette_allocator_t *allocator,
                                           void *address,
                                           void **out_base,
                                           uint64_t *out_bytes);

/// Writes the requested size of the memory at an address.
cachette_status_t cachette_requested_bytes(const cachette_allocator_t *allocator,
                                           void *address,
                                           uint64_t *out_bytes);

/* ---- Fills and copies, in stream order ---- */

/// Queues a fill of `bytes` bytes at `address` with `byte`.
cachette_status_t cachette_fill(cachette_allocator_t *allocator,
                                void *address,
                                uint8_t byte,
                                uint64_t bytes,
                                void *stream);

/// Queues a copy from device memory to device memory. The ranges must not overlap.
cachette_status_t cachette_copy(cachette_allocator_t *allocator,
                                void *to,
                                void *from,
                                uint64_t bytes,
                                void *stream);

/// Queues a copy from host memory, which must stay unchanged until the copy has finished.
cachette_status_t cachette_upload(cachette_allocator_t *allocator,
                                  void *to,
                                  const void *from,
                                  size_t bytes,
                                  void *stream);

/// Queues a copy to host memory, which must stay valid and unused until the copy has finished.
cachette_status_t cachette_download(cachette_allocator_t *allocator,
                                    void *to,
                                    void *from,
                                    size_t bytes,
                                    void *stream);

/* ---- Tensors of DLPack ---- */

/// Makes a tensor of DLPack of memory from `cachette_allocate`, compact and in row-major order.
///
/// `code` and `bits` are those of `DLDataType`, such as 2 and 32 for `float`; `shape` has `ndim` lengths. With `major`
/// 1 it writes a `DLManagedTensorVersioned *`, with 0 a `DLManagedTensor *`. The tensor owns the memory: its deleter
/// frees it, also after the allocator was closed, and `cachette_free` must not be called. On failure the memory stays
/// the caller's.
///
/// `stream` is the stream of the memory and `consumer` that of the library that gets the tensor. If they differ, the
/// consumer's stream waits on the device for the work that `stream` has now. The memory is reused only after the work
/// that the consumer's stream has when it calls the deleter.
cachette_status_t cachette_dlpack_export(cachette_allocator_t *allocator,
                                         void *address,
                                         uint8_t code,
                                         uint8_t bits,
                                         const int64_t *shape,
                                         size_t ndim,
                                         void *stream,
                                         void *consumer,
                                         uint32_t major,
                                         void **out_tensor);

/// Reads a tensor of another library: a `DLManagedTensorVersioned *` with `major` 1, a `DLManagedTensor *` with 0.
///
/// It writes the address and the bytes of the elements. It fails if the tensor is not on the allocator's device, is not
/// compact in row-major order, or must not be written. The tensor stays the caller's: call its deleter when the work
/// that uses the memory has finished.
cachette_status_t cachette_dlpack_import(const cachette_allocator_t *allocator,
                                         void *tensor,
                                         uint32_t major,
                                         void **out_address,
                                         uint64_t *out_bytes);

/* ---- Pool identifiers ---- */

/// The identifier of a pool, unique in the process.
typedef struct cachette_pool_id_t {
  /// Not zero for a pool that was created for captures.
  uint64_t capture;
  /// Not zero for a pool that a user created.
  uint64_t user;
} cachette_pool_id_t;

/// Writes a new identifier, for a pool that is created later.
cachette_status_t cachette_pool_new_id(struct cachette_pool_id_t *out_id);

/* ---- Pool options ---- */

/// A pool flag: blocks are never split, so every allocation has its own segment.
#define CACHETTE_POOL_NO_SPLIT 1

/// A pool flag: other requests of the same stream may use its free blocks before they fail.
#define CACHETTE_POOL_USE_ON_OOM 2

/// A pool flag: requests may evict the pool before they fail, while it has no guard; `cachette_pool_make_resident`.
#define CACHETTE_POOL_EVICTABLE 4

/// A pool flag: the memory behind an address never changes while the pool has users, so that it may be registered with
/// network cards and collective libraries. The pool sleeps only if `before_sleep` agrees.
#define CACHETTE_POOL_REGISTERED 8

/// Allocates a segment of `bytes` bytes on a device, aligned to 512 bytes, for a request of `stream`. NULL means out of
/// memory. The segment stays valid until it is freed. The function may be called from several threads at once. It must
/// not allocate from a pool that has a source.
typedef void *(*cachette_source_allocate_fn)(void *user,
                                             uint64_t bytes,
                                             uint32_t device,
                                             void *stream);

/// Frees a segment that is no longer in use. The function may be called from several threads at once.
typedef void (*cachette_source_free_fn)(void *user,
                                        void *address,
                                        uint64_t bytes,
                                        uint32_t device,
                                        void *stream);

/// Called once, when the source is no longer needed and `user` can be destroyed.
typedef void (*cachette_source_close_fn)(void *user);

/// Called for a pool; 0 is success, and any other number a failure, which its text names. `user` is `callback_user`.
typedef int32_t (*cachette_pool_fn)(void *user, cachette_pool_id_t pool);

/// Options of a pool. Set all of it to zero first; zero is the default of every field.
typedef struct cachette_pool_options_t {
  /// An identifier from `cachette_pool_new_id`; zero for a new one.
  cachette_pool_id_t id;
  /// `CACHETTE_POOL_` constants, or-ed together.
  uint64_t flags;
  /// A built-in source: `"nccl"` or `"nvshmem"` on NVIDIA's devices, `"rccl"` or `"rocshmem"` on AMD's. NULL
  /// allocates segments from the device, or with the functions below. The program initialises NVSHMEM and rocSHMEM
  /// for the same device first.
  const char *source;
  /// A source of the program. Either both functions are set or none.
  cachette_source_allocate_fn source_allocate;
  /// See `source_allocate`.
  cachette_source_free_fn source_free;
  /// May be NULL. It is not called if the pool could not be created.
  cachette_source_close_fn source_close;
  /// Passed to the three functions.
  void *source_user;
  /// Pools with the same tag sleep and wake as one: `cachette_sleep_tagged`. NULL for none.
  const char *tag;
  /// For `CACHETTE_POOL_EVICTABLE`: pools of a lower priority are evicted first. At most `UINT32_MAX`.
  uint64_t priority;
  /// For `CACHETTE_POOL_EVICTABLE`: an eviction drops the contents, and this writes them again. It runs inside
  /// `cachette_pool_make_resident`, and must make no pool resident. NULL keeps the contents in host memory.
  cachette_pool_fn reload;
  /// Called before the pool sleeps, to end registrations of its memory. After a failure the pool stays awake.
  cachette_pool_fn before_sleep;
  /// Passed to `reload` and `before_sleep`, which may be called until the pool is gone.
  void *callback_user;
} cachette_pool_options_t;

/* ---- Pools ---- */

/// A user of a pool. It is thread-safe.
typedef struct cachette_pool_t cachette_pool_t;

/// Statistics of a pool.
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

/// Creates a pool, and its first user. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// Release it with `cachette_pool_release`. It keeps its allocator alive.
cachette_status_t cachette_pool_create(cachette_allocator_t *allocator,
                                       const cachette_pool_options_t *options,
                                       size_t size,
                                       struct cachette_pool_t **out_pool);

/// Adds a user to a pool, by its identifier. A released pool can be opened while it has live memory.
cachette_status_t cachette_pool_open(cachette_allocator_t *allocator,
                                     cachette_pool_id_t id,
                                     struct cachette_pool_t **out_pool);

/// Releases a user; NULL is ignored. After the last release unused segments go back to the device. Segments with live
/// memory follow when it is freed and the cache is emptied.
cachette_status_t cachette_pool_release(struct cachette_pool_t *pool);

/// Writes the pool's identifier.
cachette_status_t cachette_pool_id(const struct cachette_pool_t *pool, cachette_pool_id_t *out_id);

/// Writes the number of users of the pool: owners, routes, captures and graphs.
cachette_status_t cachette_pool_use_count(const struct cachette_pool_t *pool, uint64_t *out_count);

/// Allocates from the pool, as `cachette_allocate` does; `cachette_free` frees it.
cachette_status_t cachette_pool_allocate(struct cachette_pool_t *pool,
                                         uint64_t bytes,
                                         void *stream,
                                         void **out_address);

/// Releases every unused segment of the pool, and writes the number of bytes. While graphs may use the pool's memory,
/// no segment is released.
cachette_status_t cachette_pool_empty_cache(struct cachette_pool_t *pool,
                                            uint64_t *out_bytes);

/// Writes the statistics of the pool. `size` is `sizeof *out`.
cachette_status_t cachette_pool_stats(const struct cachette_pool_t *pool,
                                      struct cachette_pool_stats_t *out,
                                      size_t size);

/// Writes whether exactly these addresses are allocated in the pool, in any order.
cachette_status_t cachette_pool_check_live_allocations(const struct cachette_pool_t *pool,
                                                       void *const *addresses,
                                                       size_t count,
                                                       bool *out_holds);

/* ---- Routing of requests to pools ---- */

/// A thread's stay in a pool.
typedef struct cachette_inside_t cachette_inside_t;

/// Routes this thread's requests for a stream to the pool until `cachette_pool_leave`. The pool entered last wins.
cachette_status_t cachette_pool_enter(cachette_pool_t *pool,
                                      void *stream,
                                      struct cachette_inside_t **out_inside);

/// Routes this thread's requests for every stream to the pool until `cachette_pool_leave`.
cachette_status_t cachette_pool_enter_all(cachette_pool_t *pool,
                                          struct cachette_inside_t **out_inside);

/// Leaves a pool, on the thread that entered it and before that thread ends. Several may be left in any order. NULL is
/// ignored.
///
/// On another thread it returns `CACHETTE_ERROR_INVALID_ARGUMENT`, and changes nothing.
cachette_status_t cachette_pool_leave(struct cachette_inside_t *inside);

/// Routes the requests of every thread to the pool until `cachette_pool_end_route`. A pool has at most one route.
cachette_status_t cachette_pool_route_all(cachette_pool_t *pool);

/// Routes the requests of every thread for a stream to the pool until `cachette_pool_end_route`.
cachette_status_t cachette_pool_route_stream(cachette_pool_t *pool, void *stream);

/// Ends the route. Threads that entered the pool still use it.
cachette_status_t cachette_pool_end_route(cachette_pool_t *pool);

/* ---- Checkpoints of pools ---- */

/// The allocations of a pool at one time.
typedef struct cachette_checkpoint_t cachette_checkpoint_t;

/// Saves the current allocations of the pool. It fails while a freed block waits for another stream.
///
/// Destroy it with `cachette_checkpoint_destroy`.
cachette_status_t cachette_pool_checkpoint(cachette_pool_t *pool,
                                           struct cachette_checkpoint_t **out_checkpoint);

/// Restores a state of the pool: frees the current allocations, and allocates the saved ones at the same addresses. A
/// failure changes nothing.
cachette_status_t cachette_pool_restore(cachette_pool_t *pool,
                                        const struct cachette_checkpoint_t *checkpoint);

/// Destroys a saved state; NULL is ignored. The pool does not change.
cachette_status_t cachette_checkpoint_destroy(struct cachette_checkpoint_t *checkpoint);

/* ---- Captures and graphs ---- */

/// A capture mode: no thread may make calls that could wait for the device.
#define CACHETTE_CAPTURE_GLOBAL 0

/// A capture mode: the thread that began the capture may not make such calls.
#define CACHETTE_CAPTURE_THREAD_LOCAL 1

/// A capture mode: all calls are allowed.
#define CACHETTE_CAPTURE_RELAXED 2

/// A capture in progress.
typedef struct cachette_capture_t cachette_capture_t;

/// A captured graph. Its memory stays reserved in its pool until the last graph of the pool is destroyed.
typedef struct cachette_graph_t cachette_graph_t;

/// Begins to capture a stream other than the default one. The pool serves the requests of all streams that are part of
/// the capture. `mode` is `CACHETTE_CAPTURE_GLOBAL`, `CACHETTE_CAPTURE_THREAD_LOCAL` or `CACHETTE_CAPTURE_RELAXED`.
///
/// End it with `cachette_capture_end` or `cachette_capture_abandon`.
cachette_status_t cachette_pool_begin_capture(cachette_pool_t *pool,
                                              void *stream,
                                              uint32_t mode,
                                              struct cachette_capture_t **out_capture);

/// Ends a capture, and writes its instantiated graph. The capture handle is destroyed even if this fails.
///
/// Destroy the graph with `cachette_graph_destroy`.
cachette_status_t cachette_capture_end(struct cachette_capture_t *capture,
                                       struct cachette_graph_t **out_graph);

/// Ends a capture and discards its graph; NULL is ignored.
cachette_status_t cachette_capture_abandon(struct cachette_capture_t *capture);

/// Launches a graph in a stream. No other graph of the same pool may run at the same time.
cachette_status_t cachette_graph_launch(struct cachette_graph_t *graph, void *stream);

/// Destroys a graph; NULL is ignored. Running launches complete.
cachette_status_t cachette_graph_destroy(struct cachette_graph_t *graph);

/* ---- Addresses in files ---- */

/// Writes the addresses of the pool's memory to a file, for `cachette_restore_addresses`. The contents are not saved.
///
/// A graph that was captured in the pool can be built again in a process that has memory there.
cachette_status_t cachette_pool_save_addresses(const cachette_pool_t *pool,
                                               const char *path);

/// Creates a pool with memory at the addresses of a file, and allocates what was allocated; `cachette_free` frees it.
///
/// All memory belongs to `stream`, and its contents are undefined. A failure changes nothing. Call it before anything
/// else allocates on the device: the text of the failure names what has an address. Release the pool with
/// `cachette_pool_release`.
cachette_status_t cachette_restore_addresses(cachette_allocator_t *allocator,
                                             const char *path,
                                             void *stream,
                                             cachette_pool_t **out_pool);

/* ---- Sleep mode ---- */

/// Called with the progress of a sleep or wake, in bytes, on the thread of that call. It must not call the allocator.
typedef void (*cachette_progress_fn)(void *user, uint64_t done, uint64_t total);

/// The result of a sleep; all zero if the pool was asleep already.
typedef struct cachette_slept_t {
  /// Bytes that were released to the device.
  uint64_t released;
  /// Bytes that were saved to host memory.
  uint64_t saved;
} cachette_slept_t;

/// Releases all memory of the pool to the device, and keeps every address. `size` is `sizeof *out`.
///
/// With `keep` the contents are saved to pinned host memory; with 0 they are discarded. Until the pool wakes, the
/// memory must not be used, graphs that use it must not be launched, and requests to the pool fail. Memory may be
/// freed. The call waits for the streams of the allocator, and needs elastic segments, the default. `progress` may be
/// NULL.
cachette_status_t cachette_pool_sleep(cachette_pool_t *pool,
                                      int32_t keep,
                                      cachette_progress_fn progress,
                                      void *user,
                                      struct cachette_slept_t *out,
                                      size_t size);

/// Allocates the memory of the pool again, at the same addresses and with the saved contents, and writes the number of
/// bytes. If there is too little memory, the pool stays asleep and may be woken later. `progress` may be NULL.
cachette_status_t cachette_pool_wake(cachette_pool_t *pool,
                                     cachette_progress_fn progress,
                                     void *user,
                                     uint64_t *out_bytes);

/// Writes whether the pool is asleep.
cachette_status_t cachette_pool_is_asleep(const cachette_pool_t *pool, bool *out_asleep);

/// Puts every pool with this tag to sleep, as `cachette_pool_sleep` does; all of them or none.
cachette_status_t cachette_sleep_tagged(cachette_allocator_t *allocator,
                                        const char *tag,
                                        int32_t keep,
                                        struct cachette_slept_t *out,
                                        size_t size);

/// Wakes every pool with this tag, and writes the number of bytes.
cachette_status_t cachette_wake_tagged(cachette_allocator_t *allocator,
                                       const char *tag,
                                       uint64_t *out_bytes);

/// Frees the host memory of pools that are awake again, and writes its bytes. Otherwise the next sleep reuses it.
cachette_status_t cachette_release_contents(cachette_allocator_t *allocator,
                                            uint64_t *out_bytes);

/* ---- Eviction ---- */

/// A guard: while it lives, its pool is awake and is not evicted.
typedef struct cachette_resident_t cachette_resident_t;

/// Wakes the pool if it sleeps, and keeps it on the device until `cachette_resident_release`.
///
/// If there is too little memory, evictable pools without guards are evicted. Contents that were dropped are written
/// again by the pool's `reload` callback, before any thread gets a guard.
cachette_status_t cachette_pool_make_resident(cachette_pool_t *pool,
                                              struct cachette_resident_t **out_resident);

/// Ends a guard, on any thread; NULL is ignored. Work that was queued until now still finds its memory.
cachette_status_t cachette_resident_release(struct cachette_resident_t *resident);

/// Evicts pools without guards until they have released `bytes`, or none is left, and writes the released bytes.
///
/// Requests that lack memory do this themselves. It is for programs that give memory to others in time.
cachette_status_t cachette_evict(cachette_allocator_t *allocator,
                                 uint64_t bytes,
                                 uint64_t *out_released);

/// Writes the bytes of evictable pools that are awake and have no guard.
cachette_status_t cachette_evictable_bytes(const cachette_allocator_t *allocator,
                                           uint64_t *out_bytes);

/* ---- Growable allocations ---- */

/// Addresses whose memory the program adds and removes. It is thread-safe.
typedef struct cachette_growable_t cachette_growable_t;

/// What a growable allocation has.
typedef struct cachette_growable_info_t {
  /// The first address.
  void *address;
  /// The bytes of the addresses: those requested, in whole pages.
  uint64_t bytes;
  /// The committed bytes.
  uint64_t committed;
  /// The bytes of a page: memory is added and removed in whole pages.
  uint64_t page;
} cachette_growable_info_t;

/// Reserves addresses for up to `most_bytes`, without memory. They may be more than the device has.
///
/// Memory comes and goes in the order of `stream`. Destroy it with `cachette_growable_destroy`.
cachette_status_t cachette_growable_create(cachette_allocator_t *allocator,
                                           uint64_t most_bytes,
                                           void *stream,
                                           struct cachette_growable_t **out_growable);

/// Does the same in a pool: the memory sleeps, wakes and is evicted with it.
cachette_status_t cachette_pool_growable_create(cachette_pool_t *pool,
                                                uint64_t most_bytes,
                                                void *stream,
                                                struct cachette_growable_t **out_growable);

/// Writes the addresses and the committed bytes. `size` is `sizeof *out`.
cachette_status_t cachette_growable_info(const struct cachette_growable_t *growable,
                                         struct cachette_growable_info_t *out,
                                         size_t size);

/// Puts memory behind the bytes from `offset` on, which have none. Their contents are undefined.
///
/// Fails like a request of the same bytes if memory is short, and then changes nothing.
cachette_status_t cachette_growable_commit(struct cachette_growable_t *growable,
                                           uint64_t offset,
                                           uint64_t bytes);

/// Takes the memory behind committed bytes away, after the work that the stream has queued so far.
///
/// A page leaves once none of its bytes is committed.
cachette_status_t cachette_growable_decommit(struct cachette_growable_t *growable,
                                             uint64_t offset,
                                             uint64_t bytes);

/// Records that work in `stream` also uses the memory that is committed now. Its next use waits for that work.
cachette_status_t cachette_growable_record_stream(struct cachette_growable_t *growable,
                                                  void *stream);

/// Decommits everything and ends the addresses; NULL is ignored.
cachette_status_t cachette_growable_destroy(struct cachette_growable_t *growable);

/* ---- Statistics ---- */

/// A statistic over time.
typedef struct cachette_stat_t {
  /// The current value.
  uint64_t current;
  /// The maximum since the start, or since `cachette_reset_peaks`.
  uint64_t peak;
  /// Sum of increases since the start, or since `cachette_reset_totals`.
  uint64_t allocated;
  /// Sum of decreases since then.
  uint64_t freed;
} cachette_stat_t;

/// A statistic for all blocks, and for each of the two kinds of segment.
typedef struct cachette_stat_array_t {
  /// Both kinds together.
  struct cachette_stat_t all;
  /// Segments of 2 MiB, for blocks of at most 1 MiB.
  struct cachette_stat_t small_pool;
  /// All other segments.
  struct cachette_stat_t large_pool;
} cachette_stat_array_t;

/// Statistics of an allocator.
///
/// Bytes of blocks are counted as rounded. A block that was freed while another stream still used it is active, but no
/// longer allocated.
typedef struct cachette_stats_t {
  /// Blocks allocated now.
  struct cachette_stat_array_t allocation;
  /// Segments obtained from the device.
  struct cachette_stat_array_t segment;
  /// Blocks held by callers, or waiting for other streams.
  struct cachette_stat_array_t active;
  /// Free blocks that are only part of their segment, which can therefore not be released.
  struct cachette_stat_array_t inactive_split;
  /// Bytes of `allocation`.
  struct cachette_stat_array_t allocated_bytes;
  /// Bytes of `segment`.
  struct cachette_stat_array_t reserved_bytes;
  /// Bytes of `active`.
  struct cachette_stat_array_t active_bytes;
  /// Bytes of `inactive_split`.
  struct cachette_stat_array_t inactive_split_bytes;
  /// Bytes requested, before rounding.
  struct cachette_stat_array_t requested_bytes;
  /// Allocations of at least `max_split_size`.
  struct cachette_stat_t oversize_allocations;
  /// Segments of at least `max_split_size`.
  struct cachette_stat_t oversize_segments;
  /// Number of device allocations that were retried after cached memory was released.
  uint64_t num_alloc_retries;
  /// Number of requests that failed with out-of-memory.
  uint64_t num_ooms;
  /// Number of allocations that waited for events of other streams.
  uint64_t num_sync_all_streams;
  /// Segments obtained from the device.
  uint64_t num_device_alloc;
  /// Segments released to the device.
  uint64_t num_device_free;
  /// Requests that the limit refused, before the device was asked.
  uint64_t num_oom_rejections;
  /// The initial maximum size of blocks that are split, or `CACHETTE_NO_LIMIT`.
  uint64_t max_split_size;
  /// Pools that were evicted so that requests got their memory.
  uint64_t num_evictions;
  /// Number of times that other processes were asked for memory.
  uint64_t num_reclaims;
  /// Bytes that became free on the device while they were asked.
  uint64_t reclaimed_bytes;
  /// Bytes that were released because other processes asked.
  uint64_t given_bytes;
} cachette_stats_t;

/// Writes the statistics of the allocator. `size` is `sizeof *out`.
cachette_status_t cachette_stats(const cachette_allocator_t *allocator,
                                 struct cachette_stats_t *out,
                                 size_t size);

/// Writes the statistics as a table with a final zero into a buffer of `capacity` bytes, and the number of bytes
/// needed. Pass NULL and 0 to get only that number.
cachette_status_t cachette_stats_text(const cachette_allocator_t *allocator,
                                      char *buffer,
                                      size_t capacity,
                                      size_t *out_needed);

/// Writes the statistics in Prometheus' text format, as `cachette_stats_text` does. It asks the driver for the free
/// memory.
cachette_status_t cachette_metrics_text(const cachette_allocator_t *allocator,
                                        char *buffer,
                                        size_t capacity,
                                        size_t *out_needed);

/// Writes the bytes of the blocks that callers hold. It is much cheaper than `cachette_stats`.
cachette_status_t cachette_allocated_bytes(const cachette_allocator_t *allocator,
                                           uint64_t *out_bytes);

/// Writes the bytes that are held from the device. It is much cheaper than `cachette_stats`.
cachette_status_t cachette_reserved_bytes(const cachette_allocator_t *allocator,
                                          uint64_t *out_bytes);

/// Resets every peak to the current value.
cachette_status_t cachette_reset_peaks(cachette_allocator_t *allocator);

/// Resets every sum and count to zero; current values and peaks stay.
cachette_status_t cachette_reset_totals(cachette_allocator_t *allocator);

/* ---- Pinned host memory ---- */

/// Durations of calls, in microseconds.
typedef struct cachette_time_stat_t {
  /// The sum.
  uint64_t total;
  /// The longest.
  uint64_t max;
  /// The shortest.
  uint64_t min;
  /// The number of calls.
  uint64_t count;
} cachette_time_stat_t;

/// Statistics of pinned memory.
typedef struct cachette_pinned_stats_t {
  /// Segments from the driver.
  cachette_stat_t allocations;
  /// Their bytes.
  cachette_stat_t allocated_bytes;
  /// Blocks that callers, streams or graphs use.
  cachette_stat_t active_requests;
  /// Their bytes.
  cachette_stat_t active_bytes;
  /// Duration of driver allocations.
  struct cachette_time_stat_t host_alloc_time;
  /// Duration of driver frees.
  struct cachette_time_stat_t host_free_time;
  /// Number of driver allocations.
  uint64_t num_host_alloc;
  /// Number of driver frees.
  uint64_t num_host_free;
} cachette_pinned_stats_t;

/// Allocates `bytes` bytes of pinned host memory, rounded up to 512 bytes, or above 1 MiB to 4 KiB. For 0 bytes it
/// writes NULL.
///
/// Copies between it and the device run asynchronously. It belongs to no stream. The host may read and write it while
/// no copy does.
cachette_status_t cachette_pinned_allocate(cachette_allocator_t *allocator,
                                           size_t bytes,
                                           void **out_address);

/// Frees pinned memory; NULL is ignored. It is reused once the recorded streams have finished their work so far.
cachette_status_t cachette_pinned_free(cachette_allocator_t *allocator,
                                       void *address);

/// Records that work in `stream` uses the pinned memory. Record or synchronise every such stream before the memory is
/// freed. A NULL address is ignored.
cachette_status_t cachette_pinned_record_stream(cachette_allocator_t *allocator,
                                                void *address,
                                                void *stream);

/// Releases every free block of pinned memory to the driver, which waits for the whole device, and writes the number of
/// bytes. `cachette_empty_cache` does not release pinned memory.
cachette_status_t cachette_pinned_empty_cache(cachette_allocator_t *allocator,
                                              uint64_t *out_bytes);

/// Writes the statistics of pinned memory. `size` is `sizeof *out`.
cachette_status_t cachette_pinned_stats(const cachette_allocator_t *allocator,
                                        struct cachette_pinned_stats_t *out,
                                        size_t size);

/* ---- Limits ---- */

/// Limits the bytes that the allocator holds; `CACHETTE_NO_LIMIT` removes the limit. A limit below what is held already
/// only prevents growth.
cachette_status_t cachette_set_memory_limit(cachette_allocator_t *allocator,
                                            uint64_t bytes);

/// Writes the limit in bytes, or `CACHETTE_NO_LIMIT`.
cachette_status_t cachette_memory_limit(const cachette_allocator_t *allocator, uint64_t *out_bytes);

/* ---- Configuration ---- */

/// Writes the configuration as text with a final zero into a buffer of `capacity` bytes, and the number of bytes
/// needed. Pass NULL and 0 to get only that number. The text has the settings that differ from the default, and can be
/// passed to `cachette_set_config`.
cachette_status_t cachette_config(const cachette_allocator_t *allocator,
                                  char *buffer,
                                  size_t capacity,
                                  size_t *out_needed);

/// Replaces the configuration. Settings that the text does not name get their defaults. NULL reads the environment. A
/// failure changes nothing.
///
/// Memory limits are not part of it: see `cachette_set_memory_limit`.
cachette_status_t cachette_set_config(cachette_allocator_t *allocator,
                                      const char *config);

/* ---- Callbacks ---- */

/// What happened to memory.
typedef enum cachette_action_t {
  /// A block was allocated.
  CACHETTE_ACTION_ALLOC = 0,
  /// A caller freed a block.
  CACHETTE_ACTION_FREE_REQUESTED = 1,
  /// The block can be reused; later than the request if another stream still used it.
  CACHETTE_ACTION_FREE_COMPLETED = 2,
  /// A segment was obtained from the device.
  CACHETTE_ACTION_SEGMENT_ALLOC = 3,
  /// A segment was released to the device.
  CACHETTE_ACTION_SEGMENT_FREE = 4,
  /// Memory was mapped into an elastic segment.
  CACHETTE_ACTION_SEGMENT_MAP = 5,
  /// Memory was unmapped from an elastic segment.
  CACHETTE_ACTION_SEGMENT_UNMAP = 6,
  /// A request failed.
  CACHETTE_ACTION_OUT_OF_MEMORY = 7,
  /// Unknown to this version.
  CACHETTE_ACTION_OTHER = 8,
} cachette_action_t;

/// Called when a request fails with out-of-memory, before it returns. The report is valid during the call; later
/// versions may add fields at its end.
typedef void (*cachette_out_of_memory_fn)(void *user, const cachette_out_of_memory_t *report);

/// Called to free memory; returns not 0 if it freed any. It may free memory of the allocator, and must not allocate.
typedef int32_t (*cachette_pressure_fn)(void *user);

/// An event. Later versions may add fields at the end.
typedef struct cachette_event_t {
  /// The address; NULL for `CACHETTE_ACTION_OUT_OF_MEMORY`.
  void *address;
  /// The requested size, or the size of the segment.
  uint64_t bytes;
  /// The stream of the block or segment.
  void *stream;
  /// For `CACHETTE_ACTION_OUT_OF_MEMORY`, the device's free bytes; otherwise 0.
  uint64_t device_free;
  /// What happened.
  enum cachette_action_t action;
} cachette_event_t;

/// Called for every event. It must not call the allocator. The event is valid during the call.
typedef void (*cachette_track_fn)(void *user, const struct cachette_event_t *event);

/// Called when memory was put behind `bytes` bytes of addresses, or is about to leave them.
typedef void (*cachette_range_fn)(void *user, void *address, uint64_t bytes);

/// Registers a callback for requests that fail with out-of-memory.
///
/// For this and the next two functions: the callback runs on the thread of the request, with no lock held, and on
/// several threads at once. It must return normally, without an exception or `longjmp`. It stays registered until the
/// allocator is gone.
cachette_status_t cachette_on_out_of_memory(cachette_allocator_t *allocator,
                                            cachette_out_of_memory_fn callback,
                                            void *user);

/// Registers a callback that is asked to free memory when no free block fits, before anything else is tried.
cachette_status_t cachette_on_pressure(cachette_allocator_t *allocator,
                                       cachette_pressure_fn callback,
                                       void *user);

/// Registers a callback for every event.
cachette_status_t cachette_track(cachette_allocator_t *allocator,
                                 cachette_track_fn callback,
                                 void *user);

/// Registers callbacks for ranges of addresses that get memory, and that are about to lose it; one of them may be NULL.
///
/// NCCL, UCX or NIXL can register memory in `mapped`, and end the registration in `unmapping`, which returns before the
/// memory leaves. They may be called inside any call that allocates or releases memory, and must not call the
/// allocator.
cachette_status_t cachette_on_ranges(cachette_allocator_t *allocator,
                                     cachette_range_fn mapped,
                                     cachette_range_fn unmapping,
                                     void *user);

/* ---- History ---- */

/// A history level: every event has a stack; a free has the stack of the free.
#define CACHETTE_HISTORY_ALL 0

/// A history level: every event of an allocation has the stack of its allocation.
#define CACHETTE_HISTORY_ALLOC 1

/// A history level: live allocations have a stack, events have none.
#define CACHETTE_HISTORY_STATE 2

/// A history level: no stacks.
#define CACHETTE_HISTORY_NONE 3

/// A history flag: earlier events are deleted.
#define CACHETTE_HISTORY_CLEAR 1

/// Options of a history. Set all of it to zero first; zero is the default of every field.
typedef struct cachette_history_options_t {
  /// How many events are kept; 96 bytes each are allocated at once. 0 is 100,000.
  uint64_t max_entries;
  /// One of the levels above.
  uint32_t level;
  /// `CACHETTE_HISTORY_CLEAR`, or 0.
  uint32_t flags;
  /// Names of actions that are not recorded, separated by commas, such as `"free_completed,snapshot"`; NULL for none.
  const char *skip;
} cachette_history_options_t;

/// Starts to record events. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// Earlier events stay unless `CACHETTE_HISTORY_CLEAR` is set. Stacks are native ones.
cachette_status_t cachette_record_history(cachette_allocator_t *allocator,
                                          const struct cachette_history_options_t *options,
                                          size_t size);

/// Stops recording, and deletes the recorded events.
cachette_status_t cachette_stop_history(cachette_allocator_t *allocator);

/// Adds `text` to every event of this thread, for all allocators and until it is set again; NULL is an empty text.
///
/// Every distinct text is kept until the process ends, so use names of phases and not step numbers.
cachette_status_t cachette_set_metadata(const char *text);

/* ---- Snapshots ---- */

/// Writes a snapshot to a file: the segments, and the recorded history.
///
/// The extension selects the format: `.pickle` for PyTorch's memory viewer, `.json` for Cachette's own. The file is
/// written completely or not at all.
cachette_status_t cachette_save_snapshot(const cachette_allocator_t *allocator,
                                         const char *path);

/// Writes a snapshot of one pool.
cachette_status_t cachette_pool_save_snapshot(const cachette_pool_t *pool, const char *path);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CACHETTE_H */
