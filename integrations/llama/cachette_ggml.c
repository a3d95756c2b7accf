// Lets the CUDA and HIP backends of ggml, with `device-allocator.patch`, allocate device memory from Cachette.
//
// Link it and call `cachette_ggml_install` before the first model is loaded. Or name the library in `GGML_BACKEND_PATH`:
// then every program that calls `ggml_backend_load_all`, such as llama-server, does that by itself.
#include "cachette.h"
#include "ggml-backend-impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 64 };

// Memory for every stream comes from a stream of its own: ggml frees it when the device no longer uses it, so this
// stream never has work, and the next request may get the memory at once. The default stream could have work of others.
static struct device {
    cachette_allocator_t *allocator;
    void *stream;
} devices[MOST_DEVICES];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static void report(const char *what) { fprintf(stderr, "cachette: %s: %s\n", what, cachette_last_error()); }

static struct device *opened(int number) {
    if (number < 0 || number >= MOST_DEVICES) {
        return NULL;
    }
    struct device *device = &devices[number];
    pthread_mutex_lock(&opening);
    if (device->stream == NULL) {
        if ((device->allocator == NULL && cachette_open_shared((uint32_t)number, &device->allocator) != CACHETTE_OK) ||
            cachette_stream_create(device->allocator, &device->stream) != CACHETTE_OK) {
            report("ggml has no device memory");
            device = NULL;
        }
    }
    pthread_mutex_unlock(&opening);
    return device;
}

static void *allocate(int number, size_t size, void *user) {
    (void)user;
    struct device *device = opened(number);
    void *address = NULL;
    // ggml takes NULL for a failure, and Cachette writes it for 0 bytes.
    if (device != NULL && cachette_allocate(device->allocator, size > 0 ? size : 1, device->stream, &address) != CACHETTE_OK) {
        report("ggml has no device memory");
    }
    return address;
}

static void release(int number, void *address, size_t size, void *user) {
    (void)size, (void)user;
    struct device *device = opened(number);
    if (device != NULL && cachette_free(device->allocator, address) != CACHETTE_OK) {
        report("ggml freed other memory");
    }
}

/// Whether a backend of ggml allocates from Cachette now.
__attribute__((visibility("default"))) bool cachette_ggml_install(void) {
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        ggml_backend_reg_t backend = ggml_backend_reg_get(i);
        ggml_backend_set_allocator_t set =
            (ggml_backend_set_allocator_t)ggml_backend_reg_get_proc_address(backend, "ggml_backend_set_allocator");
        if (set == NULL) {
            continue;
        }
        // The shared allocators of a process have one backend.
        bool hip = strcmp(ggml_backend_reg_name(backend), "ROCm") == 0;
        if (cachette_start(hip ? "hip" : "cuda", NULL) != CACHETTE_OK) {
            report("the allocators of this process are not changed");
        }
        return set(allocate, release, NULL);
    }
    return false;
}

// A backend without devices, for GGML_BACKEND_PATH.
static const char *backend_name(ggml_backend_reg_t backend) {
    (void)backend;
    return "Cachette";
}

static size_t no_devices(ggml_backend_reg_t backend) {
    (void)backend;
    return 0;
}

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    static struct ggml_backend_reg backend = {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = backend_name, .get_device_count = no_devices},
    };
    if (!cachette_ggml_install()) {
        fprintf(stderr, "cachette: no backend of ggml takes an allocator; apply device-allocator.patch to it\n");
        return NULL;
    }
    return &backend;
}
