/* The time of an allocation and a free through libcuda, alone or behind `cachette run`.
 *
 *     cc -O2 pair.c -o pair -ldl
 *     ./pair                      the driver
 *     cachette run -- ./pair      the front
 *     ./pair libcachette_c.so     Cachette's own, through its C interface
 *
 * One line of JSON for each call and size: the median and the best of the batches, in nanoseconds a pair. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 301 };

typedef uint64_t address;
typedef void *handle;

static int (*allocate)(address *, size_t), (*release)(address);
static int (*allocate_on)(address *, size_t, handle), (*release_on)(address, handle);
static int (*own_allocate)(handle, uint64_t, handle, handle *), (*own_release)(handle, handle);
static handle stream, allocator;

static void must(int status, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "%s: status %d\n", what, status);
        exit(1);
    }
}

static void find(handle library, const char *name, void **function)
{
    *function = dlsym(library, name);
    if (*function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}

static handle open_library(const char *name)
{
    handle library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void pair_async(size_t bytes)
{
    address memory;
    must(allocate_on(&memory, bytes, stream), "cuMemAllocAsync");
    must(release_on(memory, stream), "cuMemFreeAsync");
}

static void pair_sync(size_t bytes)
{
    address memory;
    must(allocate(&memory, bytes), "cuMemAlloc");
    must(release(memory), "cuMemFree");
}

static void pair_own(size_t bytes)
{
    handle memory;
    must(own_allocate(allocator, bytes, stream, &memory), "cachette_allocate");
    must(own_release(allocator, memory), "cachette_free");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void measure(const char *call, void (*pair)(size_t), size_t bytes, int pairs)
{
    double times[BATCHES];
    for (int i = 0; i < pairs; i++)
        pair(bytes);
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (int i = 0; i < pairs; i++)
            pair(bytes);
        times[batch] = (now() - start) / pairs;
    }
    qsort(times, BATCHES, sizeof *times, by_size);
    printf("{\"call\": \"%s\", \"bytes\": %zu, \"median_ns\": %.1f, \"best_ns\": %.1f, \"pairs\": %d}\n", call, bytes,
           times[BATCHES / 2], times[0], BATCHES * pairs);
    fflush(stdout);
}

/* The first device, current on this thread. */
static void open_driver(void)
{
    handle library = open_library("libcuda.so.1"), context;
    int (*init)(unsigned), (*retain)(handle *, int), (*push)(handle), (*create)(handle *, unsigned);
    find(library, "cuInit", (void **)&init);
    find(library, "cuDevicePrimaryCtxRetain", (void **)&retain);
    find(library, "cuCtxPushCurrent_v2", (void **)&push);
    find(library, "cuStreamCreate", (void **)&create);
    find(library, "cuMemAlloc_v2", (void **)&allocate);
    find(library, "cuMemFree_v2", (void **)&release);
    find(library, "cuMemAllocAsync", (void **)&allocate_on);
    find(library, "cuMemFreeAsync", (void **)&release_on);
    must(init(0), "cuInit");
    must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(push(context), "cuCtxPushCurrent");
    must(create(&stream, 1), "cuStreamCreate");
}

/* The first device through Cachette's C interface. */
static void open_own(const char *name)
{
    handle library = open_library(name);
    int (*open)(const char *, const char *, handle *), (*create)(handle, handle *);
    find(library, "cachette_open", (void **)&open);
    find(library, "cachette_stream_create", (void **)&create);
    find(library, "cachette_allocate", (void **)&own_allocate);
    find(library, "cachette_free", (void **)&own_release);
    must(open("cuda", NULL, &allocator), "cachette_open");
    must(create(allocator, &stream), "cachette_stream_create");
}

int main(int count, char **arguments)
{
    static const size_t sizes[] = {4 << 10, 1 << 20, 64 << 20};
    if (count > 1)
        open_own(arguments[1]);
    else
        open_driver();
    for (int i = 0; i < 3; i++) {
        if (count > 1) {
            measure("own", pair_own, sizes[i], 1000);
        } else {
            measure("async", pair_async, sizes[i], 1000);
            measure("sync", pair_sync, sizes[i], 20);
        }
    }
    return 0;
}
