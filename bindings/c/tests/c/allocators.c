/* An allocator is opened by name, says what its device is, and closes; what is wrong is said in words. */
#include "check.h"

static void bad_names(void) {
    cachette_allocator_t *none = (cachette_allocator_t *)0x1;
    WRONG(cachette_open("host", "", NULL), "`out_allocator` is null");
    WRONG(cachette_open("vulkan", "", &none), "choose one of cuda, hip, host");
    CHECK(none == NULL);
    WRONG(cachette_open("host:first", "", &none), "is not a device number");
    WRONG(cachette_open("ho\xffst", "", &none), "`device` is not UTF-8 from its byte 2 on");
    WRONG(cachette_open("host", "\xc3", &none), "`config` is not UTF-8");
    FAILS(cachette_open("host:7", "", &none), CACHETTE_ERROR_NO_DEVICE, "there is no device host:7");
    FAILS(cachette_open("host", "caching:no", &none), CACHETTE_ERROR_INVALID_CONFIG, "at byte 8");
    FAILS(cachette_open("hip:0", "", &none), CACHETTE_ERROR_NO_BACKEND, "hip");
    CHECK(none == NULL);
}

static void counts(void) {
    uint32_t count = 9;
    OK(cachette_device_count("host", &count));
    CHECK(count == 1);
    WRONG(cachette_device_count("vulkan", &count), "no backend named 'vulkan'");
    CHECK(count == 0);
    WRONG(cachette_device_count(NULL, &count), "`backend` is null");
    WRONG(cachette_device_count("host", NULL), "`out_count` is null");
    FAILS(cachette_device_count("hip", &count), CACHETTE_ERROR_NO_BACKEND, "cannot be used here");
}

static void facts(const cachette_allocator_t *allocator) {
    struct {
        cachette_device_info_t known;
        unsigned char later[16];
    } newer;
    cachette_device_info_t info;
    uint64_t available, total;
    OK(cachette_device_info(allocator, &info, sizeof info));
    CHECK(info.vendor == CACHETTE_VENDOR_HOST && info.ordinal == 0);
    CHECK(strlen(info.name) > 0 && strlen(info.architecture) < sizeof info.architecture);
    CHECK(info.total_memory == GIB);

    /* A program of a newer header finds zero in what this library does not know. */
    memset(&newer, 0xff, sizeof newer);
    OK(cachette_device_info(allocator, &newer.known, sizeof newer));
    CHECK(newer.known.total_memory == GIB && newer.later[0] == 0 && newer.later[15] == 0);

    WRONG(cachette_device_info(allocator, &info, 8), "pass its `sizeof`");
    WRONG(cachette_device_info(allocator, NULL, sizeof info), "`out` is null");
    WRONG(cachette_device_info(NULL, &info, sizeof info), "`allocator` is null");

    OK(cachette_memory_info(allocator, &available, &total));
    CHECK(total == GIB && available == GIB);
    WRONG(cachette_memory_info(allocator, NULL, &total), "`out_free` is null");
    WRONG(cachette_memory_info(allocator, &available, NULL), "`out_total` is null");
    WRONG(cachette_memory_info(NULL, &available, &total), "`allocator` is null");
    CHECK(available == 0 && total == 0);
}

static void caches(void) {
    cachette_allocator_t *allocator = open_host(DIRECT);
    uint64_t bytes = 9;
    cachette_free(allocator, allocate(allocator, 3 * MIB, NULL));
    CHECK(reserved(allocator) == 20 * MIB);
    OK(cachette_empty_cache(allocator, &bytes));
    CHECK(bytes == 20 * MIB && reserved(allocator) == 0);
    OK(cachette_empty_cache(allocator, &bytes));
    CHECK(bytes == 0);
    WRONG(cachette_empty_cache(allocator, NULL), "`out_bytes` is null");
    WRONG(cachette_empty_cache(NULL, &bytes), "`allocator` is null");
    OK(cachette_check(allocator));
    WRONG(cachette_check(NULL), "`allocator` is null");
    close_clean(allocator);
}

int main(void) {
    cachette_allocator_t *allocator = NULL;
    bad_names();
    counts();
    /* Without a name it is whatever answers, and the environment configures it. */
    OK(cachette_open(NULL, NULL, &allocator));
    OK(cachette_close(allocator));
    allocator = open_host("");
    facts(allocator);
    close_clean(allocator);
    caches();
    OK(cachette_close(NULL));
    return 0;
}
