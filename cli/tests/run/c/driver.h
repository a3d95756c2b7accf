/* The driver's calls under names of one vendor-neutral table.
 *
 * CUDA or HIP says whose. LINKED, OPENED or ASKED says how a program gets them: by the linker, by dlopen and dlsym, or
 * by the driver's own function for that. */
#ifndef DRIVER_H
#define DRIVER_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t address;
typedef void *handle;

/* Memory in rows and layers, as HIP describes it. */
struct pitched { address at; size_t pitch, width, height; };
struct extent { size_t width, height, depth; };

#define CHECK(promise)                                                                       \
    do {                                                                                     \
        if (!(promise)) {                                                                    \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #promise);      \
            exit(70);                                                                        \
        }                                                                                    \
    } while (0)

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NOT_ALLOCATED = 500, UNKNOWN_STREAM = 709, UNJOINED = 904, NOT_SUPPORTED = 801 };

#ifdef CUDA
#define LIBRARY "libcuda.so"
#define ASK "cuGetProcAddress_v2"
/* Our name, the symbol, the name without a version. */
#define CALLS(call)                                                                          \
    call(init, cuInit, "cuInit", (unsigned))                                                 \
    call(allocate, cuMemAlloc_v2, "cuMemAlloc", (address *, size_t))                         \
    call(release, cuMemFree_v2, "cuMemFree", (address))                                      \
    call(allocate_on, cuMemAllocAsync, "cuMemAllocAsync", (address *, size_t, handle))       \
    call(allocate_from, cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync",                  \
         (address *, size_t, handle, handle))                                                \
    call(default_pool, cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (handle *, int)) \
    call(release_on, cuMemFreeAsync, "cuMemFreeAsync", (address, handle))                    \
    call(range, cuMemGetAddressRange_v2, "cuMemGetAddressRange", (address *, size_t *, address)) \
    call(info, cuMemGetInfo_v2, "cuMemGetInfo", (size_t *, size_t *))                        \
    call(name_for_others, cuIpcGetMemHandle, "cuIpcGetMemHandle", (void *, address))         \
    call(create_stream, cuStreamCreate, "cuStreamCreate", (handle *, unsigned))              \
    call(destroy_stream, cuStreamDestroy_v2, "cuStreamDestroy", (handle))                    \
    call(wait, cuStreamSynchronize, "cuStreamSynchronize", (handle))                         \
    call(fill, cuMemsetD8Async, "cuMemsetD8Async", (address, unsigned char, size_t, handle)) \
    call(download, cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", (void *, address, size_t, handle)) \
    call(begin_capture, cuStreamBeginCapture_v2, "cuStreamBeginCapture", (handle, unsigned)) \
    call(end_capture, cuStreamEndCapture, "cuStreamEndCapture", (handle, handle *))          \
    call(make_ready, cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags",             \
         (handle *, handle, unsigned long long))                                             \
    call(launch, cuGraphLaunch, "cuGraphLaunch", (handle, handle))                           \
    call(destroy_graph, cuGraphDestroy, "cuGraphDestroy", (handle))                          \
    call(destroy_ready, cuGraphExecDestroy, "cuGraphExecDestroy", (handle))                  \
    call(create_pool, cuMemPoolCreate, "cuMemPoolCreate", (handle *, const void *))           \
    call(destroy_pool, cuMemPoolDestroy, "cuMemPoolDestroy", (handle))                       \
    call(grant, cuMemPoolSetAccess, "cuMemPoolSetAccess", (handle, const void *, size_t))    \
    call(choose_pool, cuDeviceSetMemPool, "cuDeviceSetMemPool", (int, handle))               \
    call(reset, cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", (int))                \
    call(retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (handle *, int))      \
    call(push, cuCtxPushCurrent_v2, "cuCtxPushCurrent", (handle))                            \
    call(create_context, cuCtxCreate_v2, "cuCtxCreate", (handle *, unsigned, int))           \
    call(destroy_context, cuCtxDestroy_v2, "cuCtxDestroy", (handle))                         \
    call(create_urgent, cuStreamCreateWithPriority, "cuStreamCreateWithPriority", (handle *, unsigned, int)) \
    call(priority, cuStreamGetPriority, "cuStreamGetPriority", (handle, int *))              \
    call(copy_graph, cuGraphClone, "cuGraphClone", (handle *, handle))                       \
    call(host, cuLaunchHostFunc, "cuLaunchHostFunc", (handle, void (*)(void *), void *))     \
    call(wait_for_all, cuCtxSynchronize, "cuCtxSynchronize", (void))                         \
    call(create_memory, cuMemCreate, "cuMemCreate", (uint64_t *, size_t, const void *, unsigned long long)) \
    call(release_memory, cuMemRelease, "cuMemRelease", (uint64_t))                           \
    call(map, cuMemMap, "cuMemMap", (address, size_t, size_t, uint64_t, unsigned long long)) \
    call(unmap, cuMemUnmap, "cuMemUnmap", (address, size_t))                                 \
    call(reserve, cuMemAddressReserve, "cuMemAddressReserve", (address *, size_t, size_t, address, unsigned long long)) \
    call(set_access, cuMemSetAccess, "cuMemSetAccess", (address, size_t, const void *, size_t)) \
    call(retain_memory, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", (uint64_t *, void *)) \
    call(export_memory, cuMemExportToShareableHandle, "cuMemExportToShareableHandle", (void *, uint64_t, int, unsigned long long)) \
    call(import_memory, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", (uint64_t *, void *, int)) \
    call(allocate_rows, cuMemAllocPitch_v2, "cuMemAllocPitch", (address *, size_t *, size_t, size_t, unsigned)) \
    call(allocate_managed, cuMemAllocManaged, "cuMemAllocManaged", (address *, size_t, unsigned)) \
    call(allocate_host, cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))       \
    call(allocate_plain_host, cuMemAllocHost_v2, "cuMemAllocHost", (void **, size_t))        \
    call(release_host, cuMemFreeHost, "cuMemFreeHost", (void *))                             \
    call(lock_pages, cuMemHostRegister_v2, "cuMemHostRegister", (void *, size_t, unsigned))  \
    call(unlock_pages, cuMemHostUnregister, "cuMemHostUnregister", (void *))
#else
#define LIBRARY "libamdhip64.so"
#define ASK "hipGetProcAddress"
#define CALLS(call)                                                                          \
    call(init, hipInit, NULL, (unsigned))                                                    \
    call(allocate, hipMalloc, "hipMalloc", (address *, size_t))                              \
    call(release, hipFree, "hipFree", (address))                                             \
    call(allocate_on, hipMallocAsync, "hipMallocAsync", (address *, size_t, handle))         \
    call(allocate_from, hipMallocFromPoolAsync, NULL, (address *, size_t, handle, handle))   \
    call(default_pool, hipDeviceGetDefaultMemPool, NULL, (handle *, int))                    \
    call(release_on, hipFreeAsync, "hipFreeAsync", (address, handle))                        \
    call(range, hipMemGetAddressRange, "hipMemGetAddressRange", (address *, size_t *, address)) \
    call(info, hipMemGetInfo, NULL, (size_t *, size_t *))                                    \
    call(name_for_others, hipIpcGetMemHandle, NULL, (void *, address))                       \
    call(create_stream, hipStreamCreateWithFlags, "hipStreamCreateWithFlags", (handle *, unsigned)) \
    call(destroy_stream, hipStreamDestroy, NULL, (handle))                                   \
    call(wait, hipStreamSynchronize, "hipStreamSynchronize", (handle))                       \
    call(fill, hipMemsetAsync, NULL, (address, int, size_t, handle))                         \
    call(download, hipMemcpyDtoHAsync, NULL, (void *, address, size_t, handle))              \
    call(begin_capture, hipStreamBeginCapture, NULL, (handle, int))                          \
    call(end_capture, hipStreamEndCapture, NULL, (handle, handle *))                         \
    call(make_ready, hipGraphInstantiateWithFlags, NULL, (handle *, handle, unsigned long long)) \
    call(launch, hipGraphLaunch, NULL, (handle, handle))                                     \
    call(destroy_graph, hipGraphDestroy, NULL, (handle))                                     \
    call(destroy_ready, hipGraphExecDestroy, NULL, (handle))                                 \
    call(create_urgent, hipStreamCreateWithPriority, NULL, (handle *, unsigned, int))        \
    call(create_masked, hipExtStreamCreateWithCUMask, NULL, (handle *, unsigned, const unsigned *)) \
    call(priority, hipStreamGetPriority, NULL, (handle, int *))                              \
    call(copy_graph, hipGraphClone, NULL, (handle *, handle))                                \
    call(host, hipLaunchHostFunc, NULL, (handle, void (*)(void *), void *))                  \
    call(wait_for_all, hipDeviceSynchronize, NULL, (void))                                   \
    call(choose_device, hipSetDevice, NULL, (int))                                           \
    call(create_event, hipEventCreateWithFlags, NULL, (handle *, unsigned))                  \
    call(record, hipEventRecord, NULL, (handle, handle))                                     \
    call(wait_for, hipStreamWaitEvent, NULL, (handle, handle, unsigned))                     \
    call(last_error, hipGetLastError, NULL, (void))                                          \
    call(peek_error, hipPeekAtLastError, NULL, (void))                                       \
    call(last_call, hipExtGetLastError, NULL, (void))                                        \
    call(create_memory, hipMemCreate, NULL, (uint64_t *, size_t, const void *, unsigned long long)) \
    call(release_memory, hipMemRelease, NULL, (uint64_t))                                    \
    call(map, hipMemMap, NULL, (address, size_t, size_t, uint64_t, unsigned long long))      \
    call(unmap, hipMemUnmap, NULL, (address, size_t))                                        \
    call(reserve, hipMemAddressReserve, NULL, (address *, size_t, size_t, address, unsigned long long)) \
    call(set_access, hipMemSetAccess, NULL, (address, size_t, const void *, size_t))         \
    call(retain_memory, hipMemRetainAllocationHandle, NULL, (uint64_t *, void *))            \
    call(export_memory, hipMemExportToShareableHandle, NULL, (void *, uint64_t, int, unsigned long long)) \
    call(import_memory, hipMemImportFromShareableHandle, NULL, (uint64_t *, void *, int))    \
    call(allocate_rows, hipMemAllocPitch, NULL, (address *, size_t *, size_t, size_t, unsigned)) \
    call(allocate_plain_rows, hipMallocPitch, NULL, (address *, size_t *, size_t, size_t))   \
    call(allocate_layers, hipMalloc3D, NULL, (struct pitched *, struct extent))              \
    call(allocate_flagged, hipExtMallocWithFlags, NULL, (address *, size_t, unsigned))       \
    call(allocate_managed, hipMallocManaged, NULL, (address *, size_t, unsigned))            \
    call(allocate_host, hipHostMalloc, NULL, (void **, size_t, unsigned))                    \
    call(allocate_other_host, hipHostAlloc, NULL, (void **, size_t, unsigned))               \
    call(allocate_plain_host, hipMallocHost, NULL, (void **, size_t))                        \
    call(allocate_other_plain_host, hipMemAllocHost, NULL, (void **, size_t))                \
    call(release_host, hipHostFree, NULL, (void *))                                          \
    call(release_other_host, hipFreeHost, NULL, (void *))                                    \
    call(lock_pages, hipHostRegister, NULL, (void *, size_t, unsigned))                      \
    call(unlock_pages, hipHostUnregister, NULL, (void *))
#endif

#define FIELD(name, symbol, plain, arguments) int(*name) arguments;
static struct {
    CALLS(FIELD)
} driver;

#ifdef LINKED
#define DECLARE(name, symbol, plain, arguments) extern int symbol arguments;
CALLS(DECLARE)
#define BIND(name, symbol, plain, arguments) driver.name = symbol;
#elif defined(OPENED)
#define BIND(name, symbol, plain, arguments) bind((void **)&driver.name, dlsym(library, #symbol));
#else
#define BIND(name, symbol, plain, arguments)                                                 \
    bind((void **)&driver.name, plain ? asked(plain) : dlsym(library, #symbol));
static int (*ask)(const char *, void **, int, uint64_t, void *);

static void *asked(const char *plain)
{
    void *function = NULL;
    CHECK(ask(plain, &function, 12000, 0, NULL) == SUCCESS);
    return function;
}
#endif

static inline void bind(void **place, void *function)
{
    CHECK(function != NULL);
    *place = function;
}

/* Gets every call, and a device. */
static void start(void)
{
#ifndef LINKED
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(71);
    }
#endif
#ifdef ASKED
    bind((void **)&ask, dlsym(library, ASK));
#ifdef CUDA
    /* The runtime asks for the function by itself. */
    bind((void **)&ask, asked("cuGetProcAddress"));
#endif
#endif
    CALLS(BIND)
    CHECK(driver.init(0) == SUCCESS);
#ifdef CUDA
    handle context;
    CHECK(driver.retain(&context, 0) == SUCCESS);
    CHECK(driver.push(context) == SUCCESS);
#endif
}

/* How many pieces of memory the library behind the front has given out. */
static inline unsigned behind(void)
{
    void *library = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    uint64_t (*count)(void);
    bind((void **)&count, dlsym(library, "cachette_emulated_allocations"));
    return (unsigned)count();
}

static inline handle new_stream(void)
{
    handle stream = NULL;
    CHECK(driver.create_stream(&stream, 1) == SUCCESS);
    return stream;
}

static inline address new_memory(size_t bytes, handle stream)
{
    address memory = 0;
    CHECK(driver.allocate_on(&memory, bytes, stream) == SUCCESS);
    return memory;
}

#endif
