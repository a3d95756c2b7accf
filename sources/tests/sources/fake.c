/* Imitates every library that a source calls, in host memory, and counts what it is asked.
 *
 * Environment: FAKE_SHIFT=n returns addresses n bytes off; FAKE_FULL=1 has no memory; FAKE_STUCK=1 fails to free;
 * FAKE_DEVICE=n is the device that `fake_start` initialises NVSHMEM for. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static int live, total;
static _Thread_local uintptr_t contexts[16];
static _Thread_local int depth, hip_device;
static int retained, made_on;
static char last[128];

static long knob(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static void *make(size_t bytes, size_t shift) {
    char *at;
    if (knob("FAKE_FULL")) return NULL;
    at = aligned_alloc(4096, (bytes + shift + 4095) / 4096 * 4096);
    if (!at) return NULL;
    live++;
    total++;
    return at + shift;
}

static void unmake(void *at) {
    live--;
    free((void *)((uintptr_t)at & ~(uintptr_t)4095));
}

int fake_live(void) { return live; }
int fake_total(void) { return total; }
int fake_depth(void) { return depth; }
int fake_retained(void) { return retained; }
int fake_made_on(void) { return made_on; }

/* Functions of a user's own. */
void *my_alloc(ssize_t bytes, int device, void *stream) {
    (void)device, (void)stream;
    return make(bytes, knob("FAKE_SHIFT"));
}
void my_free(void *at, ssize_t bytes, int device, void *stream) {
    (void)bytes, (void)device, (void)stream;
    unmake(at);
}

/* libcuda; the context of device n is n + 1. */
int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int ordinal) {
    if (ordinal > 1) return 101;
    *device = ordinal;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    retained++;
    *context = (void *)(uintptr_t)(device + 1);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    retained--;
    return 0;
}
int cuCtxPushCurrent_v2(void *context) {
    contexts[depth++] = (uintptr_t)context;
    return 0;
}
int cuCtxPopCurrent_v2(void **context) {
    *context = (void *)contexts[--depth];
    return 0;
}
static int cuda_device(void) { return depth ? (int)contexts[depth - 1] - 1 : -1; }

/* libamdhip64. */
int hipGetDevice(int *device) {
    *device = hip_device;
    return 0;
}
int hipSetDevice(int device) {
    if (device > 1) return 101;
    hip_device = device;
    return 0;
}
int fake_hip_device(void) { return hip_device; }

/* NCCL and RCCL. */
int ncclMemAlloc(void **at, size_t bytes) {
    made_on = cuda_device() >= 0 ? cuda_device() : hip_device;
    *at = make(bytes, knob("FAKE_SHIFT"));
    if (*at) return 0;
    strcpy(last, "Cuda failure 2 'out of memory'");
    return 1;
}
int ncclMemFree(void *at) {
    if (knob("FAKE_STUCK")) {
        strcpy(last, "the memory is registered");
        return 5;
    }
    unmake(at);
    return 0;
}
int ncclGetVersion(int *version) {
    *version = 22705;
    return 0;
}
const char *ncclGetErrorString(int status) {
    return status == 1 ? "unhandled cuda error" : "invalid usage";
}
const char *ncclGetLastError(void *communicator) {
    (void)communicator;
    return last;
}

/* NVSHMEM, which the tests initialise by `fake_start` and finalise by `fake_end`. */
static int shmem_status, shmem_device = -1;

int nvshmemx_init_status(void) { return shmem_status; }
int fake_start(void) {
    shmem_device = (int)knob("FAKE_DEVICE");
    return shmem_status = 2;
}
int fake_end(void) { return shmem_status = 0; }
void *nvshmem_malloc(size_t bytes) {
    if (shmem_status != 2 || cuda_device() != shmem_device) abort();
    made_on = cuda_device();
    return make(bytes, knob("FAKE_SHIFT"));
}
void *nvshmem_align(size_t alignment, size_t bytes) {
    (void)alignment;
    return make(bytes, 0);
}
void nvshmem_free(void *at) {
    if (shmem_status != 2 || cuda_device() != shmem_device) abort();
    unmake(at);
}

/* rocSHMEM, by its C++ names. */
void *_ZN8rocshmem15rocshmem_mallocEm(size_t bytes) {
    made_on = hip_device;
    return make(bytes, knob("FAKE_SHIFT"));
}
void _ZN8rocshmem13rocshmem_freeEPv(void *at) { unmake(at); }
