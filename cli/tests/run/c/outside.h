/* Memory past the cache: parts of the program for the tests of `cachette run`. The limit is LIMIT where there is one. */
#ifndef OUTSIDE_H
#define OUTSIDE_H

static const size_t PAGE = 2 << 20, LIMIT = 128 << 20, MIB = 1 << 20;
static const struct { int kind, types, where, device; char rest[48]; } ON_DEVICE = {1, 0, 1, 0, {0}}, SHARED = {1, 1, 1, 0, {0}};
static const struct { int where, device, flags; } ACCESS = {1, 0, 3};

/* What the program may still take. */
static size_t left(void)
{
    size_t free, total;
    CHECK(driver.info(&free, &total) == SUCCESS);
    return free;
}

/* What the driver says that everybody holds of its device. */
static size_t used(void)
{
    static int (*info)(size_t *, size_t *);
    size_t free, total;
    if (info == NULL) {
        void *library = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL), *found;
        CHECK(library != NULL);
#ifdef CUDA
        found = dlsym(library, "cuMemGetInfo_v2");
#else
        found = dlsym(library, "hipMemGetInfo");
#endif
        bind((void **)&info, found);
    }
    CHECK(info(&free, &total) == SUCCESS);
    return total - free;
}

static uint64_t new_physical(size_t bytes)
{
    uint64_t handle;
    CHECK(driver.create_memory(&handle, bytes, &ON_DEVICE, 0) == SUCCESS);
    return handle;
}

static address new_range(size_t bytes)
{
    address at;
    CHECK(driver.reserve(&at, bytes, 0, 0, 0) == SUCCESS);
    return at;
}

/* Each call takes of what the limit allows, or of nothing, and its end gives that back. */
static void each_call(void)
{
    address at;
    size_t pitch;
    void *host, *pages = aligned_alloc(4096, 1 << 16);
    CHECK(left() == LIMIT);
    CHECK(driver.allocate_rows(&at, &pitch, 1000, 4096, 4) == SUCCESS && LIMIT - left() == pitch * 4096);
    CHECK(driver.release(at) == SUCCESS && left() == LIMIT);
    CHECK(driver.release(at) == INVALID_VALUE && left() == LIMIT);
#ifdef HIP
    struct pitched layers;
    struct extent extent = {1000, 64, 16};
    CHECK(driver.allocate_plain_rows(&at, &pitch, 1000, 4096) == SUCCESS && LIMIT - left() == pitch * 4096);
    CHECK(driver.release(at) == SUCCESS);
    CHECK(driver.allocate_layers(&layers, extent) == SUCCESS && LIMIT - left() == layers.pitch * 64 * 16);
    CHECK(driver.release(layers.at) == SUCCESS);
    CHECK(driver.allocate_flagged(&at, 5 * PAGE, 1) == SUCCESS && LIMIT - left() == 5 * PAGE);
    CHECK(driver.release(at) == SUCCESS && left() == LIMIT);
    CHECK(driver.allocate_other_host(&host, MIB, 0) == SUCCESS && driver.release_other_host(host) == SUCCESS);
    CHECK(driver.allocate_other_plain_host(&host, MIB) == SUCCESS && driver.release_host(host) == SUCCESS);
#endif
    /* The driver moves it to the host when the device is full. */
    CHECK(driver.allocate_managed(&at, 144 * MIB, 1) == SUCCESS && left() == 112 * MIB);
    CHECK(driver.release(at) == SUCCESS && left() == LIMIT);
    CHECK(driver.allocate_host(&host, 3 * MIB, 0) == SUCCESS && left() == LIMIT);
    CHECK(driver.release_host(host) == SUCCESS && driver.release_host(host) == INVALID_VALUE);
    CHECK(driver.allocate_plain_host(&host, 2 * MIB) == SUCCESS);
    CHECK(driver.lock_pages(pages, 1 << 16, 0) == SUCCESS && left() == LIMIT);
    CHECK(driver.unlock_pages(pages) == SUCCESS && driver.unlock_pages(pages) != SUCCESS);
    CHECK(driver.release_host(host) == SUCCESS);
    CHECK(used() == 0 && left() == LIMIT);
    free(pages);
}

/* Physical memory lives until its last handle is released and its last mapping has ended. */
static void references(void)
{
    uint64_t first = new_physical(2 * PAGE), again, other;
    address at = new_range(8 * PAGE);
    CHECK(LIMIT - left() == 2 * PAGE && used() == 2 * PAGE);
    CHECK(driver.map(at, 2 * PAGE, 0, first, 0) == SUCCESS);
    CHECK(driver.retain_memory(&again, (void *)(uintptr_t)(at + PAGE)) == SUCCESS);
    CHECK(driver.release_memory(first) == SUCCESS && LIMIT - left() == 2 * PAGE);
    CHECK(driver.unmap(at, 2 * PAGE) == SUCCESS && LIMIT - left() == 2 * PAGE && used() == 2 * PAGE);
    CHECK(driver.release_memory(again) == SUCCESS && left() == LIMIT && used() == 0);
    CHECK(driver.release_memory(again) != SUCCESS && left() == LIMIT);
    /* A mapping alone. */
    first = new_physical(PAGE);
    CHECK(driver.map(at, PAGE, 0, first, 0) == SUCCESS && driver.release_memory(first) == SUCCESS);
    CHECK(LIMIT - left() == PAGE && used() == PAGE);
    CHECK(driver.unmap(at, PAGE) == SUCCESS && left() == LIMIT && used() == 0);
    /* Several mappings in one range end together. */
    for (int i = 0; i < 3; i++) {
        other = new_physical(PAGE);
        CHECK(driver.map(at + i * PAGE, PAGE, 0, other, 0) == SUCCESS && driver.release_memory(other) == SUCCESS);
    }
    CHECK(LIMIT - left() == 3 * PAGE);
    CHECK(driver.unmap(at, 3 * PAGE) == SUCCESS && left() == LIMIT && used() == 0);
}

/* What a handle names that came from elsewhere is not counted. */
static void imports(void)
{
    uint64_t handle, imported;
    int descriptor;
    CHECK(driver.create_memory(&handle, PAGE, &SHARED, 0) == SUCCESS);
    CHECK(driver.export_memory(&descriptor, handle, 1, 0) == SUCCESS);
    CHECK(driver.import_memory(&imported, (void *)(intptr_t)descriptor, 1) == SUCCESS);
    CHECK(LIMIT - left() == PAGE);
    CHECK(driver.release_memory(imported) == SUCCESS && LIMIT - left() == PAGE);
    CHECK(driver.release_memory(handle) == SUCCESS && left() == LIMIT);
    close(descriptor);
}

/* The limit is for the cache and all other calls together. */
static void beyond(void)
{
    address memory, other;
    size_t pitch;
    uint64_t first, second;
    CHECK(driver.allocate(&memory, 64 * MIB) == SUCCESS && driver.release(memory) == SUCCESS);
    CHECK(used() == 64 * MIB);
    /* Idle memory of the cache makes room. */
    first = new_physical(96 * MIB);
    CHECK(used() >= 96 * MIB && used() <= LIMIT);
    /* Memory in use does not. */
    CHECK(driver.allocate(&memory, 16 * MIB) == SUCCESS && left() == 16 * MIB);
    CHECK(driver.create_memory(&second, 18 * MIB, &ON_DEVICE, 0) == OUT_OF_MEMORY);
    CHECK(driver.allocate_rows(&other, &pitch, MIB, 18, 4) == OUT_OF_MEMORY);
    CHECK(driver.allocate(&other, 18 * MIB) == OUT_OF_MEMORY);
    CHECK(left() == 16 * MIB && used() == 112 * MIB);
    second = new_physical(16 * MIB);
    CHECK(left() == 0 && used() == LIMIT);
    CHECK(driver.create_memory(&first, PAGE, &ON_DEVICE, 0) == OUT_OF_MEMORY);
    CHECK(driver.release_memory(second) == SUCCESS && driver.release_memory(first) == SUCCESS);
    CHECK(left() == 112 * MIB);
    CHECK(driver.release(memory) == SUCCESS && left() == LIMIT);
}

/* What grows as XLA's allocator does. */
static struct { int count; size_t held; uint64_t handles[64]; size_t sizes[64]; address places[64]; } grown;

/* Maps memory behind what there is, less after each refusal, until there is no more. Returns how much that was. */
static size_t grow(handle stream)
{
    static address next;
    size_t before = grown.held, step = 48 * MIB;
    if (next == 0)
        next = new_range(1 << 30);
    while (step >= PAGE) {
        uint64_t memory;
        int status = driver.create_memory(&memory, step, &ON_DEVICE, 0);
        if (status == OUT_OF_MEMORY) {
            step = step * 9 / 10 / PAGE * PAGE;
            continue;
        }
#ifdef HIP
        /* Mappings of one reservation need one size. */
        next = new_range(step);
#endif
        CHECK(status == SUCCESS && driver.map(next, step, 0, memory, 0) == SUCCESS);
        CHECK(driver.set_access(next, step, &ACCESS, 1) == SUCCESS);
        CHECK(driver.fill(next, 7, step, stream) == SUCCESS);
        grown.handles[grown.count] = memory;
        grown.sizes[grown.count] = step;
        grown.places[grown.count++] = next;
        grown.held += step;
        next += step;
        CHECK(used() <= LIMIT);
    }
    return grown.held - before;
}

static void grows(void)
{
    handle stream = new_stream();
    address memory = new_memory(20 * MIB, stream);
    CHECK(grow(stream) == LIMIT - 20 * MIB && used() == LIMIT);
    check_contents(grown.places[grown.count - 1], BYTES, 7, stream);
    /* Nothing fails for what is idle. */
    CHECK(driver.release(memory) == SUCCESS);
    CHECK(grow(stream) == 20 * MIB);
    CHECK(driver.wait(stream) == SUCCESS && driver.allocate_on(&memory, PAGE, stream) == OUT_OF_MEMORY);
    while (grown.count-- > 0) {
        CHECK(driver.unmap(grown.places[grown.count], grown.sizes[grown.count]) == SUCCESS);
        CHECK(driver.release_memory(grown.handles[grown.count]) == SUCCESS);
    }
    CHECK(left() == LIMIT && used() == 0);
    CHECK(driver.release(new_memory(100 * MIB, stream)) == SUCCESS);
}

/* Without a limit, idle memory of the cache makes room on the device. */
static void short_of_memory(void)
{
    address memory;
    CHECK(driver.allocate(&memory, 200 * MIB) == SUCCESS && driver.release(memory) == SUCCESS);
    uint64_t first = new_physical(100 * MIB), second;
    CHECK(used() >= 100 * MIB);
    CHECK(driver.create_memory(&second, 200 * MIB, &ON_DEVICE, 0) == OUT_OF_MEMORY);
    CHECK(driver.release_memory(first) == SUCCESS);
    second = new_physical(200 * MIB);
    CHECK(driver.release_memory(second) == SUCCESS && used() == 0);
}

/* Wrong calls get the driver's statuses, and change no figure. */
static void wrong_outside(void)
{
    uint64_t handle = new_physical(PAGE), none = 0;
    address at = new_range(4 * PAGE);
    struct { int kind, types, where, device; char rest[48]; } wrong = {1, 0, 1, 99, {0}};
    CHECK(driver.create_memory(&none, PAGE, &wrong, 0) != SUCCESS);
    wrong.where = 77;
    CHECK(driver.create_memory(&none, PAGE, &wrong, 0) == INVALID_VALUE);
    CHECK(driver.create_memory(&none, PAGE, NULL, 0) == INVALID_VALUE);
    CHECK(driver.create_memory(NULL, PAGE, &ON_DEVICE, 0) == INVALID_VALUE);
    CHECK(driver.create_memory(&none, PAGE, &ON_DEVICE, 5) == INVALID_VALUE);
    CHECK(driver.release_memory(0x1234560) != SUCCESS);
    CHECK(driver.map(at, PAGE, 0, 0x1234560, 0) != SUCCESS && driver.map(at, PAGE, PAGE, handle, 0) != SUCCESS);
    CHECK(driver.allocate_managed(&at, PAGE, 9) == INVALID_VALUE && driver.allocate_managed(NULL, PAGE, 1) == INVALID_VALUE);
    CHECK(driver.lock_pages(NULL, PAGE, 0) == INVALID_VALUE);
    CHECK(LIMIT - left() == PAGE && used() == PAGE);
#ifdef HIP
    CHECK(driver.last_error() == INVALID_VALUE && driver.last_error() == SUCCESS);
#endif
    CHECK(driver.release_memory(handle) == SUCCESS && left() == LIMIT);
}

#ifdef HIP
/* What is unmapped at the second try was mapped until then. CACHETTE_EMULATED_REFUSED_ENDS is 2. */
static void refused_unmaps(void)
{
    uint64_t memory = new_physical(PAGE);
    address at = new_range(PAGE);
    CHECK(driver.map(at, PAGE, 0, memory, 0) == SUCCESS && driver.release_memory(memory) == SUCCESS);
    CHECK(driver.unmap(at, PAGE) == SUCCESS && left() == LIMIT);
    memory = new_physical(PAGE);
    CHECK(driver.map(at, PAGE, 0, memory, 0) == SUCCESS && driver.release_memory(memory) == SUCCESS);
    CHECK(driver.unmap(at, PAGE) != SUCCESS && LIMIT - left() == PAGE && used() == PAGE);
    CHECK(driver.unmap(at, PAGE) == SUCCESS && left() == LIMIT && used() == 0);
}

/* Attempts that fail before one succeeds are not the program's. */
static void outside_errors(void)
{
    address memory;
    CHECK(driver.allocate(&memory, 200 * MIB) == SUCCESS && driver.release(memory) == SUCCESS);
    uint64_t first = new_physical(100 * MIB), second;
    CHECK(driver.last_error() == SUCCESS);
    CHECK(driver.create_memory(&second, 200 * MIB, &ON_DEVICE, 0) == OUT_OF_MEMORY);
    CHECK(driver.last_error() == OUT_OF_MEMORY && driver.last_error() == SUCCESS);
    CHECK(driver.release_memory(first) == SUCCESS);
}
#else
/* The driver decides the distance of rows, so that more may be needed than was foreseen. */
static void pitches(void)
{
    address at;
    size_t pitch;
    CHECK(driver.allocate_rows(&at, &pitch, 1000, 40960, 4) == OUT_OF_MEMORY);
    CHECK(left() == LIMIT && used() == 0);
    CHECK(driver.allocate_rows(&at, &pitch, 1000, 8192, 4) == SUCCESS && pitch == 4096 && LIMIT - left() == 32 * MIB);
    CHECK(driver.release(at) == SUCCESS && left() == LIMIT);
}

/* Managed memory that the driver cannot move counts as memory of the device. */
static void managed(void)
{
    address at;
    CHECK(driver.allocate_managed(&at, LIMIT + PAGE, 1) == OUT_OF_MEMORY);
    CHECK(driver.allocate_managed(&at, 5 * PAGE, 1) == SUCCESS && LIMIT - left() == 5 * PAGE);
    CHECK(driver.release(at) == SUCCESS && left() == LIMIT);
}

/* A reset takes what has an address. Physical memory is of no context. */
static void outside_resets(void)
{
    address at;
    size_t pitch;
    uint64_t memory = new_physical(5 * PAGE);
    CHECK(driver.allocate_rows(&at, &pitch, MIB, 20, 4) == SUCCESS && used() == 30 * MIB);
    CHECK(driver.reset(0) == SUCCESS && used() == 5 * PAGE);
    CHECK(driver.release(at) != SUCCESS);
    CHECK(driver.release_memory(memory) == SUCCESS && used() == 0);
}
#endif

enum { OUTSIDE_TURNS = 60 };

/* Takes and gives memory of every kind that the limit is for. */
static void *outside_turns(void *number)
{
    unsigned seed = (unsigned)(intptr_t)number + 1;
#ifdef CUDA
    handle context;
    CHECK(driver.retain(&context, 0) == SUCCESS && driver.push(context) == SUCCESS);
#endif
    address at = new_range(64 * PAGE);
    for (int turn = 0; turn < OUTSIDE_TURNS; turn++) {
        size_t bytes = (size_t)(1 + rand_r(&seed) % 24) * PAGE, pitch;
        uint64_t memory, again;
        address rows = 0, cached = 0;
        int made = driver.create_memory(&memory, bytes, &ON_DEVICE, 0);
        CHECK(made == SUCCESS || made == OUT_OF_MEMORY);
        if (made == SUCCESS)
            CHECK(driver.map(at, bytes, 0, memory, 0) == SUCCESS);
        CHECK(used() <= LIMIT);
        int rows_made = driver.allocate_rows(&rows, &pitch, MIB, 1 + rand_r(&seed) % 9, 4);
        int cached_made = driver.allocate(&cached, bytes);
        CHECK(used() <= LIMIT);
        if (made == SUCCESS) {
            CHECK(driver.retain_memory(&again, (void *)(uintptr_t)at) == SUCCESS);
            CHECK(driver.release_memory(memory) == SUCCESS && driver.unmap(at, bytes) == SUCCESS);
            CHECK(driver.release_memory(again) == SUCCESS);
        }
        CHECK(rows_made != SUCCESS || driver.release(rows) == SUCCESS);
        CHECK(cached_made != SUCCESS || driver.release(cached) == SUCCESS);
    }
    return NULL;
}

static void outside_threads(void)
{
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, outside_turns, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(left() == LIMIT);
    CHECK(driver.release_memory(new_physical(LIMIT)) == SUCCESS && used() == 0);
}

/* Holds some of every kind, and waits if it is told to. */
static void holds(const char *how)
{
    address at;
    size_t pitch;
    void *host;
    new_physical(5 * PAGE);
    CHECK(driver.allocate_rows(&at, &pitch, MIB, 4, 4) == SUCCESS);
    CHECK(driver.allocate_managed(&at, 6 * MIB, 1) == SUCCESS);
    CHECK(driver.allocate_host(&host, 3 * MIB, 0) == SUCCESS);
    if (strcmp(how, "waits") != 0)
        return;
    say("ready");
    for (;;)
        pause();
}

/* Runs a part by its name. Returns whether there is one. */
static int outside(const char *what, const char *how)
{
    static const struct { const char *name; void (*run)(void); } parts[] = {
        {"each-call", each_call}, {"references", references}, {"imports", imports}, {"beyond", beyond},
        {"grows", grows}, {"short", short_of_memory}, {"wrong-outside", wrong_outside}, {"outside-threads", outside_threads},
#ifdef HIP
        {"refused-unmaps", refused_unmaps}, {"outside-errors", outside_errors},
#else
        {"pitches", pitches}, {"managed", managed}, {"outside-resets", outside_resets},
#endif
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(what, parts[i].name) == 0)
            return parts[i].run(), 1;
    return strcmp(what, "holds") == 0 ? holds(how), 1 : 0;
}
#endif
