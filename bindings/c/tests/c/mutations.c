/* Structures of every size, and texts with every kind of damage, are taken or refused; nothing else changes. */
#include "check.h"

enum { ROUNDS = 400, ROOM = 4096, CANARY = 0xA5 };

/* Numbers that are the same in every run. */
static uint64_t state = 88172645463325252u;

static uint64_t next(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static unsigned char room[ROOM];

/* Whether the bytes from one on to another, which is left out, are all of one value. */
static bool are_all(size_t from, size_t to, int value) {
    size_t i;
    for (i = from; i < to; i++) {
        if (room[i] != value) {
            return false;
        }
    }
    return true;
}

/* A size from the past, of this version, from the future, or of no version at all. */
static size_t any_size(size_t own) {
    static const size_t garbage[] = {0, 1, 7, (size_t)1 << 17, (size_t)1 << 32, SIZE_MAX / 2, SIZE_MAX - 7, SIZE_MAX};
    switch (next(4)) {
    case 0:
        return (size_t)next(own + 1);
    case 1:
        return own + (size_t)next(ROOM - own);
    case 2:
        return own;
    default:
        return garbage[next(sizeof garbage / sizeof *garbage)];
    }
}

typedef cachette_status_t (*writer)(cachette_allocator_t *, cachette_pool_t *, void *, size_t);

static cachette_status_t write_stats(cachette_allocator_t *a, cachette_pool_t *p, void *out, size_t size) {
    (void)p;
    return cachette_stats(a, (cachette_stats_t *)out, size);
}

static cachette_status_t write_device(cachette_allocator_t *a, cachette_pool_t *p, void *out, size_t size) {
    (void)p;
    return cachette_device_info(a, (cachette_device_info_t *)out, size);
}

static cachette_status_t write_pinned(cachette_allocator_t *a, cachette_pool_t *p, void *out, size_t size) {
    (void)p;
    return cachette_pinned_stats(a, (cachette_pinned_stats_t *)out, size);
}

static cachette_status_t write_pool(cachette_allocator_t *a, cachette_pool_t *p, void *out, size_t size) {
    (void)a;
    return cachette_pool_stats(p, (cachette_pool_stats_t *)out, size);
}

static cachette_status_t write_slept(cachette_allocator_t *a, cachette_pool_t *p, void *out, size_t size) {
    (void)a;
    return cachette_pool_sleep(p, 1, NULL, NULL, (cachette_slept_t *)out, size);
}

static cachette_status_t write_exhaustion(cachette_allocator_t *a, cachette_pool_t *p, void *out, size_t size) {
    (void)a;
    (void)p;
    return cachette_last_out_of_memory((cachette_out_of_memory_t *)out, size);
}

/* Nothing is written beyond the size, nothing at all by a call that fails, and zeros beyond what is known. */
static void writes_within_its_size(cachette_allocator_t *allocator, cachette_pool_t *pool, writer write, size_t own) {
    int round;
    for (round = 0; round < ROUNDS; round++) {
        size_t size = any_size(own);
        cachette_status_t status;
        memset(room, CANARY, sizeof room);
        status = write(allocator, pool, room, size);
        if (status == CACHETTE_OK) {
            CHECK(size <= ROOM && are_all(size, ROOM, CANARY));
            CHECK(size <= own || are_all(own, size, 0));
        } else {
            CHECK(status == CACHETTE_ERROR_INVALID_ARGUMENT && (size < own || size > ROOM || size % 8 != 0));
            CHECK(strstr(cachette_last_error(), "pass its `sizeof`") != NULL);
            CHECK(are_all(0, ROOM, CANARY));
        }
    }
}

/* Puts a structure into the room, with some of its first bytes changed and perhaps something beyond it. */
static size_t place(const void *structure, size_t own, size_t changeable) {
    size_t size = any_size(own);
    uint64_t changes = next(4);
    memset(room, 0, sizeof room);
    memcpy(room, structure, own);
    while (changes-- > 0) {
        room[next(changeable)] = (unsigned char)next(256);
    }
    if (next(4) == 0 && size > own && size <= ROOM) {
        room[own + next(size - own)] = 1;
    }
    return size;
}

/* A text of one of the words, with bytes changed, left out, doubled, or put in. */
static const char *damage(const char *const *words, size_t count) {
    static char text[256];
    const char *word = words[next(count)];
    size_t length = strlen(word);
    uint64_t changes = next(4);
    CHECK(length < sizeof text / 2);
    memset(text, 0, sizeof text);
    memcpy(text, word, length);
    while (changes-- > 0) {
        size_t at = length == 0 ? 0 : (size_t)next(length);
        switch (next(4)) {
        case 0:
            text[at] = (char)(1 + next(255));
            break;
        case 1:
            memmove(text + at, text + at + 1, sizeof text - at - 1);
            break;
        case 2:
            memcpy(text + length, word, next(strlen(word) + 1));
            break;
        default:
            text[at] = "0:,-[]. "[next(8)];
        }
        length = strlen(text);
        if (length >= sizeof text / 2) {
            break;
        }
    }
    return text;
}

static void reads_histories(cachette_allocator_t *allocator) {
    static const char *const words[] = {"", "alloc", "free_completed,snapshot", "segment_alloc"};
    int round;
    for (round = 0; round < ROUNDS; round++) {
        cachette_history_options_t options;
        cachette_status_t status;
        size_t size;
        memset(&options, 0, sizeof options);
        options.max_entries = next(2) == 0 ? next(1000) : UINT64_MAX - next(1000);
        options.level = (uint32_t)next(5);
        options.flags = (uint32_t)next(3);
        options.skip = next(2) == 0 ? NULL : damage(words, 4);
        size = place(&options, sizeof options, 16);
        /* No more than a few places, however the bytes fell. */
        room[2] = room[3] = 0;
        status = cachette_record_history(allocator, (const cachette_history_options_t *)room, size);
        CHECK(status == CACHETTE_OK || status == CACHETTE_ERROR_INVALID_ARGUMENT);
        CHECK(status != CACHETTE_OK || (size >= sizeof options && size <= ROOM && size % 8 == 0));
    }
    OK(cachette_stop_history(allocator));
}

static void reads_pools(cachette_allocator_t *allocator) {
    static const char *const words[] = {"", "weights", "nccl", "a tag with \xc3\xa4"};
    int round;
    for (round = 0; round < ROUNDS; round++) {
        cachette_pool_options_t options;
        cachette_pool_t *pool;
        cachette_status_t status;
        size_t size;
        memset(&options, 0, sizeof options);
        options.flags = next(32);
        options.id.capture = next(2);
        options.id.user = next(3);
        options.tag = next(2) == 0 ? NULL : damage(words, 4);
        options.source = next(4) == 0 ? damage(words, 4) : NULL;
        size = place(&options, sizeof options, offsetof(cachette_pool_options_t, source));
        status = cachette_pool_create(allocator, (const cachette_pool_options_t *)room, size, &pool);
        CHECK((status == CACHETTE_OK) == (pool != NULL));
        CHECK(status == CACHETTE_OK || status == CACHETTE_ERROR_INVALID_ARGUMENT || status == CACHETTE_ERROR_POOL ||
              status == CACHETTE_ERROR_SOURCE || status == CACHETTE_ERROR_UNSUPPORTED);
        OK(cachette_pool_release(pool));
    }
}

static void reads_configurations(cachette_allocator_t *allocator) {
    static const char *const words[] = {"", "expandable_segments:True", "max_split_size_mb:64,memory_limit:1G",
                                        "roundup_power2_divisions:[256:1,512:2,>:8]",
                                        "garbage_collection_threshold:0.8"};
    char before[1024], after[1024];
    size_t needed;
    int round;
    for (round = 0; round < 4 * ROUNDS; round++) {
        cachette_status_t status;
        OK(cachette_config(allocator, before, sizeof before, &needed));
        status = cachette_set_config(allocator, damage(words, 5));
        OK(cachette_config(allocator, after, sizeof after, &needed));
        if (status != CACHETTE_OK) {
            CHECK(status == CACHETTE_ERROR_INVALID_CONFIG || status == CACHETTE_ERROR_INVALID_ARGUMENT);
            CHECK(strcmp(before, after) == 0 && strlen(cachette_last_error()) > 0);
        } else {
            /* What it is said to be is a configuration, and the same. */
            OK(cachette_set_config(allocator, after));
            OK(cachette_config(allocator, before, sizeof before, &needed));
            CHECK(strcmp(before, after) == 0);
        }
    }
    OK(cachette_set_config(allocator, ""));
}

static void reads_names(cachette_allocator_t *allocator) {
    static const char *const devices[] = {"host", "host:0", "cuda:0", "hip:1", "host:4294967296"};
    static const char *const others[] = {"weights", "", "a tag with \xc3\xa4"};
    int round;
    for (round = 0; round < ROUNDS; round++) {
        cachette_allocator_t *opened;
        cachette_status_t status = cachette_open(damage(devices, 5), "", &opened);
        uint64_t bytes = 1;
        CHECK((status == CACHETTE_OK) == (opened != NULL));
        CHECK(status == CACHETTE_OK || status == CACHETTE_ERROR_INVALID_ARGUMENT ||
              status == CACHETTE_ERROR_NO_BACKEND || status == CACHETTE_ERROR_NO_DEVICE);
        OK(cachette_close(opened));
        status = cachette_wake_tagged(allocator, damage(others, 3), &bytes);
        CHECK((status == CACHETTE_ERROR_POOL || status == CACHETTE_ERROR_INVALID_ARGUMENT) && bytes == 0);
        status = cachette_set_metadata(damage(others, 3));
        CHECK(status == CACHETTE_OK || status == CACHETTE_ERROR_INVALID_ARGUMENT);
    }
    OK(cachette_set_metadata(""));
}

int main(void) {
    cachette_allocator_t *allocator = open_host("expandable_segments:True");
    cachette_pool_t *pool = create_pool(allocator);
    void *address;

    CHECK(cachette_allocate(allocator, (uint64_t)1 << 60, NULL, &address) != CACHETTE_OK);
    CHECK(cachette_allocate(allocator, (uint64_t)1 << 45, NULL, &address) == CACHETTE_ERROR_OUT_OF_MEMORY);
    writes_within_its_size(allocator, pool, write_stats, sizeof(cachette_stats_t));
    writes_within_its_size(allocator, pool, write_device, sizeof(cachette_device_info_t));
    writes_within_its_size(allocator, pool, write_pinned, sizeof(cachette_pinned_stats_t));
    writes_within_its_size(allocator, pool, write_pool, sizeof(cachette_pool_stats_t));
    writes_within_its_size(allocator, pool, write_slept, sizeof(cachette_slept_t));
    writes_within_its_size(allocator, pool, write_exhaustion, sizeof(cachette_out_of_memory_t));
    OK(cachette_pool_release(pool));
    reads_histories(allocator);
    reads_pools(allocator);
    reads_configurations(allocator);
    reads_names(allocator);
    close_clean(allocator);
    return 0;
}
