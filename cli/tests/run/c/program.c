/* Programs for the tests of `cachette run`; the first argument names one. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 100, BYTES = 4096 };

static void check_contents(address memory, size_t bytes, unsigned char byte, handle stream)
{
    unsigned char *found = malloc(bytes);
    CHECK(driver.download(found, memory, bytes, stream) == SUCCESS);
    CHECK(driver.wait(stream) == SUCCESS);
    for (size_t i = 0; i < bytes; i++)
        CHECK(found[i] == byte);
    free(found);
}

#include "captures.h"
#include "devices.h"
#include "signals.h"

/* Many live pieces of each call are one segment of the driver, and each keeps its contents. */
static void pairs(void)
{
    handle stream = new_stream(), pool;
    CHECK(driver.default_pool(&pool, 0) == SUCCESS);
    address memory[3 * MANY];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3 * MANY; i += 3) {
            CHECK(driver.allocate_on(&memory[i], BYTES, stream) == SUCCESS);
            CHECK(driver.allocate_from(&memory[i + 1], BYTES, pool, stream) == SUCCESS);
            CHECK(driver.allocate(&memory[i + 2], BYTES) == SUCCESS);
            for (int j = i; j < i + 3; j++)
                CHECK(driver.fill(memory[j], (unsigned char)(j + round), BYTES, stream) == SUCCESS);
        }
        /* One for the stream, one for memory without a stream. */
        CHECK(behind() <= 2);
        for (int i = 0; i < 3 * MANY; i++)
            check_contents(memory[i], BYTES, (unsigned char)(i + round), stream);
        for (int i = 0; i < 3 * MANY; i++)
            CHECK((i % 3 == 2 ? driver.release(memory[i]) : driver.release_on(memory[i], stream)) == SUCCESS);
    }
}

/* Memory that another stream freed is reused behind that stream's work. */
static void streams(void)
{
    handle first = new_stream(), second = new_stream();
    address memory = new_memory(BYTES, first);
    CHECK(driver.wait(first) == SUCCESS);
    for (int i = 0; i < 50; i++) {
        CHECK(driver.fill(memory, 1, BYTES, second) == SUCCESS);
        CHECK(driver.release_on(memory, second) == SUCCESS);
        address again = new_memory(BYTES, first);
        CHECK(again == memory);
        CHECK(driver.fill(again, 2, BYTES, first) == SUCCESS);
        check_contents(again, BYTES, 2, first);
    }
    /* A destroyed stream leaves its memory to the next one. */
    CHECK(driver.release_on(memory, first) == SUCCESS);
    CHECK(driver.destroy_stream(first) == SUCCESS);
    handle third = new_stream();
    CHECK(new_memory(BYTES, third) == memory);
    CHECK(driver.release(memory) == SUCCESS);
    CHECK(driver.destroy_stream(third) == SUCCESS);
    CHECK(driver.destroy_stream(second) == SUCCESS);
}

/* Wrong calls get the driver's statuses. */
static void wrong(void)
{
    handle stream = new_stream();
    address memory = new_memory(BYTES, stream), none = 1;
    CHECK(driver.release_on(memory, stream) == SUCCESS);
    CHECK(driver.release_on(memory, stream) == INVALID_VALUE);
    CHECK(driver.release(memory) == INVALID_VALUE);
    CHECK(driver.release(0x1234500) == INVALID_VALUE);
    CHECK(driver.allocate_on(NULL, BYTES, stream) == INVALID_VALUE);
#ifdef CUDA
    CHECK(driver.allocate(&none, 0) == INVALID_VALUE);
#else
    CHECK(driver.release(0) == SUCCESS);
    CHECK(driver.allocate(&none, 0) == SUCCESS && none == 0);
#endif
    memory = new_memory(BYTES, stream);
    CHECK(driver.release(memory + 512) == INVALID_VALUE);
    CHECK(driver.release(memory) == SUCCESS);
    CHECK(driver.allocate_on(&memory, (size_t)1 << 40, stream) == OUT_OF_MEMORY);
    CHECK(driver.allocate(&memory, (size_t)1 << 40) == OUT_OF_MEMORY);
}

/* Questions about memory get the answers that the program expects. */
static void questions(void)
{
    handle stream = new_stream();
    size_t free_before, free_now, total, bytes = 0;
    address memory = new_memory(1000, stream), base = 0;
    CHECK(driver.range(&base, &bytes, memory + 100) == SUCCESS);
    CHECK(base == memory && bytes == 1000);
    /* The address is in a segment of Cachette, and in no allocation. */
    CHECK(driver.range(&base, &bytes, memory + (1 << 16)) == NOT_ALLOCATED);
    CHECK(driver.info(&free_before, &total) == SUCCESS);
    address large = new_memory(32 << 20, stream);
    CHECK(driver.info(&free_now, &total) == SUCCESS);
    CHECK(free_before - free_now == 32 << 20);
    CHECK(driver.release(large) == SUCCESS);
    CHECK(driver.info(&free_now, &total) == SUCCESS);
    /* The cache holds it, and the program can have it. */
    CHECK(free_now == free_before && total > free_now);
    CHECK(driver.release(memory) == SUCCESS);
}

/* Another process can be given what is whole, and nothing else. */
static void others(void)
{
    handle stream = new_stream();
    char token[64];
    address first = new_memory(BYTES, stream), second = new_memory(BYTES, stream);
    CHECK(driver.name_for_others(token, second) == NOT_SUPPORTED);
    address large = new_memory(64 << 20, stream);
    CHECK(driver.name_for_others(token, large) == SUCCESS);
    CHECK(driver.release(first) == SUCCESS && driver.release(second) == SUCCESS && driver.release(large) == SUCCESS);
}

#ifdef HIP
/* A stream that was made in another way is not destroyed either, once it has memory. */
static void masked_streams(void)
{
    unsigned mask = ~0u;
    handle masked, stream = new_stream();
    CHECK(driver.create_masked(&masked, 1, &mask) == SUCCESS);
    CHECK(driver.release_on(new_memory(100 << 20, masked), masked) == SUCCESS);
    CHECK(driver.destroy_stream(masked) == SUCCESS && driver.destroy_stream(masked) == UNKNOWN_STREAM);
    /* The driver refuses work in a destroyed stream, or crashes. */
    address memory = new_memory(BYTES, stream);
    CHECK(driver.fill(memory, 1, BYTES, masked) == SUCCESS);
    CHECK(driver.wait(masked) == SUCCESS && driver.release_on(memory, stream) == SUCCESS);
    /* Its memory serves others. */
    CHECK(driver.release_on(new_memory(200 << 20, stream), stream) == SUCCESS);
    CHECK(new_stream() != masked);
}
#endif

static void end_late(void *is_over)
{
    usleep(100000);
    *(atomic_int *)is_over = 1;
}

#ifdef HIP
static void wait_until(void *is_over)
{
    while (!*(atomic_int *)is_over)
        usleep(1000);
}

/* What the front asks of the driver does not change the last error of the program. */
static void last_error(void)
{
    handle busy = new_stream();
    atomic_int is_over = 0;
    CHECK(driver.release_on(new_memory(BYTES, busy), busy) == SUCCESS);
    CHECK(driver.host(busy, wait_until, &is_over) == SUCCESS && driver.destroy_stream(busy) == SUCCESS);
    CHECK(driver.destroy_ready((handle)0x1234570) == INVALID_VALUE);
    CHECK(new_stream() != busy);
    CHECK(driver.last_error() == INVALID_VALUE && driver.last_error() == SUCCESS);
    is_over = 1;
    CHECK(driver.wait_for_all() == SUCCESS);
}

/* Memory without a stream is of the current device. */
static void second_device(void)
{
    address memory;
    CHECK(driver.choose_device(1) == SUCCESS && driver.allocate(&memory, BYTES) == SUCCESS);
    CHECK(driver.release(memory) == SUCCESS);
}
#endif

/* A free without a stream returns after all work of the device. */
static void free_waits(void)
{
    handle stream = new_stream();
    for (int i = 0; i < 2; i++) {
        atomic_int is_over = 0;
        address memory = new_memory(BYTES, stream), idle;
        CHECK(driver.allocate(&idle, BYTES) == SUCCESS);
        CHECK(driver.host(stream, end_late, &is_over) == SUCCESS);
        CHECK(driver.release(i == 0 ? memory : idle) == SUCCESS);
        CHECK(is_over == 1);
    }
}

enum { THREADS = 4, TURNS = 50 };
static address passed[THREADS];
static handle thread_streams[THREADS];
static pthread_barrier_t barrier;

/* Each thread fills its memory, checks it, and lets the next thread free it on another stream. */
static void *turns(void *number)
{
    int self = (int)(intptr_t)number, next = (self + 1) % THREADS;
#ifdef CUDA
    handle context;
    CHECK(driver.retain(&context, 0) == SUCCESS && driver.push(context) == SUCCESS);
#endif
    handle stream = thread_streams[self];
    for (int turn = 0; turn < TURNS; turn++) {
        address memory = new_memory(BYTES, stream), idle;
        CHECK(driver.allocate(&idle, BYTES) == SUCCESS);
        CHECK(driver.fill(memory, (unsigned char)(turn + self), BYTES, stream) == SUCCESS);
        CHECK(driver.fill(idle, (unsigned char)(turn - self), BYTES, stream) == SUCCESS);
        check_contents(memory, BYTES, (unsigned char)(turn + self), stream);
        check_contents(idle, BYTES, (unsigned char)(turn - self), stream);
        CHECK(driver.release(idle) == SUCCESS);
        passed[self] = memory;
        pthread_barrier_wait(&barrier);
        CHECK(driver.fill(passed[next], 0xee, BYTES, stream) == SUCCESS);
        CHECK(driver.release_on(passed[next], stream) == SUCCESS);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        thread_streams[i] = new_stream();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, turns, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
}

/* A forked child gets the driver's status, and its parent goes on. */
static void forks(void)
{
    handle stream = new_stream();
    address memory = new_memory(BYTES, stream);
    pid_t child = fork();
    if (child == 0) {
        address other = 0;
        int status = driver.allocate_on(&other, BYTES, stream), freed = driver.release_on(memory, stream);
        _exit(status != SUCCESS && status != OUT_OF_MEMORY && freed != SUCCESS ? 0 : 1);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && how == 0);
    CHECK(driver.release_on(memory, stream) == SUCCESS);
}

/* A child process inherits the front. */
static void children(const char *self)
{
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "pairs", (char *)NULL);
        _exit(1);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && how == 0);
}

#include "outside.h"

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "children") == 0) {
        children(arguments[0]);
        return 0;
    }
    if (strcmp(what, "code") == 0)
        return 42;
    /* Background jobs of a shell begin with an ignored SIGINT. */
    if (strcmp(what, "serve") == 0)
        signal(SIGINT, SIG_DFL);
    start();
    if (strcmp(what, "pairs") == 0)
        pairs();
    else if (strcmp(what, "streams") == 0)
        streams();
    else if (strcmp(what, "wrong") == 0)
        wrong();
    else if (strcmp(what, "questions") == 0)
        questions();
    else if (strcmp(what, "others") == 0)
        others();
    else if (strcmp(what, "captures") == 0)
        captures();
    else if (strcmp(what, "many-captures") == 0)
        many_captures();
    else if (strcmp(what, "abandoned-captures") == 0)
        abandoned_captures();
    else if (strcmp(what, "refused-ends") == 0)
        refused_ends();
    else if (strcmp(what, "free-waits") == 0)
        free_waits();
    else if (strcmp(what, "forks") == 0)
        forks();
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "serve") == 0)
        serve(count > 2 ? arguments[2] : "");
#ifdef HIP
    else if (strcmp(what, "masked-streams") == 0)
        masked_streams();
    else if (strcmp(what, "joined-captures") == 0)
        joined_captures();
    else if (strcmp(what, "last-error") == 0)
        last_error();
    else if (strcmp(what, "second-device") == 0)
        second_device();
#endif
#ifdef CUDA
    else if (strcmp(what, "pools") == 0)
        driver_pools();
    else if (strcmp(what, "current-pools") == 0)
        current_pools();
    else if (strcmp(what, "other-devices") == 0)
        other_devices();
    else if (strcmp(what, "resets") == 0)
        resets();
    else if (strcmp(what, "reset-graphs") == 0)
        reset_graphs();
#ifdef ASKED
    else if (strcmp(what, "per-thread") == 0)
        per_thread();
#endif
#endif
    else if (!outside(what, count > 2 ? arguments[2] : ""))
        return 64;
    puts("kept");
    return 0;
}
