/* Imitates every library that a source calls, in host memory, and counts what it is asked.
 *
 * Environment: FAKE_SHIFT=n returns addresses n bytes off; FAKE_FULL=1 has no memory; FAKE_STUCK=1 fails to free. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int live, total;
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

/* NCCL and RCCL. */
int ncclMemAlloc(void **at, size_t bytes) {
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
static int shmem_status;

int nvshmemx_init_status(void) { return shmem_status; }
int fake_start(void) { return shmem_status = 2; }
int fake_end(void) { return shmem_status = 0; }
void *nvshmem_malloc(size_t bytes) {
    if (shmem_status != 2) abort();
    return make(bytes, knob("FAKE_SHIFT"));
}
void *nvshmem_align(size_t alignment, size_t bytes) {
    (void)alignment;
    return make(bytes, 0);
}
void nvshmem_free(void *at) {
    if (shmem_status != 2) abort();
    unmake(at);
}

/* rocSHMEM, by its C++ names. */
void *_ZN8rocshmem15rocshmem_mallocEm(size_t bytes) {
    return make(bytes, knob("FAKE_SHIFT"));
}
void _ZN8rocshmem13rocshmem_freeEPv(void *at) { unmake(at); }
