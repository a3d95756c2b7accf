/* A program that says what the driver does; the first argument names a part. It says the same without the front. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096 };
#define MANY_BYTES ((size_t)1 << 40)
#define NO_STREAM ((handle)0x1234560)
#define NO_GRAPH ((handle)0x1234570)

/* Says what a call answers. */
#define SAY(call) printf("%s: %d\n", #call, call)

#ifdef HIP
/* Asks twice, first so that the answers stay. */
#define SAY_LAST                                                                             \
    (SAY(driver.peek_error()), SAY(driver.last_call()), SAY(driver.last_error()),            \
     SAY(driver.last_error()), SAY(driver.last_call()))

/* The driver's calls that the front answers, and others, in every order. */
static void last_errors(void)
{
    handle stream = new_stream();
    address memory = 0, other = 0;
    SAY_LAST;
    /* Refused by the front. */
    SAY(driver.allocate(&memory, MANY_BYTES));
    SAY_LAST;
    SAY(driver.allocate_on(&memory, BYTES, stream));
    SAY(driver.release_on(memory, stream));
    SAY(driver.release_on(memory, stream));
    SAY_LAST;
    /* Refused, then a success of the driver. */
    SAY(driver.allocate_on(&memory, MANY_BYTES, stream));
    SAY(driver.wait(stream));
    SAY_LAST;
    /* Refused, then a success of the front. */
    SAY(driver.allocate(&memory, MANY_BYTES));
    SAY(driver.allocate_on(&memory, BYTES, stream));
    SAY_LAST;
    /* Refused, then another failure. */
    SAY(driver.release(0x1234500));
    SAY(driver.destroy_ready(NO_GRAPH));
    SAY_LAST;
    /* Refused and told, then the failure of the driver that the front uses itself. */
    for (int i = 0; i < 2; i++) {
        SAY(driver.allocate(&memory, MANY_BYTES));
        SAY(i == 0 ? driver.last_error() : driver.last_call());
        SAY(i == 0 ? driver.last_call() : driver.last_error());
        SAY(driver.choose_device(-1));
        if (i == 1)
            SAY(driver.last_call());
        SAY_LAST;
    }
    /* A failure, then a success or a failure of the front. */
    SAY(driver.destroy_ready(NO_GRAPH));
    SAY(driver.release_on(memory, stream));
    SAY(driver.last_call());
    SAY_LAST;
    SAY(driver.destroy_ready(NO_GRAPH));
    SAY(driver.allocate(&memory, MANY_BYTES));
    SAY_LAST;
    /* A failure is not lost by what the front does for a request that needs the whole cache. */
    SAY(driver.allocate_on(&memory, (size_t)200 << 20, stream));
    SAY(driver.release_on(memory, stream));
    SAY(driver.wait(stream));
    SAY(driver.destroy_ready(NO_GRAPH));
    SAY(driver.allocate_on(&memory, (size_t)220 << 20, stream));
    SAY_LAST;
    SAY(driver.release_on(memory, stream));
    SAY(driver.wait(stream));
    SAY(driver.allocate(&other, MANY_BYTES));
    SAY(driver.allocate_on(&memory, (size_t)200 << 20, stream));
    SAY(driver.last_call());
    SAY_LAST;
}
#endif

/* Says how many bytes differ. */
static void say_wrong(address memory, unsigned char byte, handle stream)
{
    unsigned char found[BYTES];
    int wrong = 0;
    SAY(driver.download(found, memory, BYTES, stream));
    SAY(driver.wait(stream));
    for (int i = 0; i < BYTES; i++)
        wrong += found[i] != byte;
    printf("wrong bytes: %d\n", wrong);
}

/* A host function that waits for the main thread. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int may_go;

static void wait_to_go(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    while (!may_go)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void go(void)
{
    pthread_mutex_lock(&mutex);
    may_go = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* Work of a destroyed stream waits for work of the next one. */
static void pending_streams(void)
{
    handle first = new_stream();
    SAY(driver.release_on(new_memory(BYTES, first), first));
    SAY(driver.host(first, wait_to_go, NULL));
    SAY(driver.destroy_stream(first));
    handle second = new_stream();
    address memory = new_memory(BYTES, second);
    SAY(driver.fill(memory, 7, BYTES, second));
    say_wrong(memory, 7, second);
    go();
    SAY(driver.wait_for_all());
}

/* A handle that was destroyed is no stream. */
static void destroyed_streams(void)
{
    handle first = new_stream(), second = new_stream();
    address memory = new_memory(BYTES, first), other = 0;
    SAY(driver.destroy_stream(second));
    SAY(driver.destroy_stream(second));
    SAY(driver.allocate_on(&other, BYTES, second));
    SAY(driver.release_on(memory, second));
    SAY(driver.release_on(memory, first));
    SAY(driver.destroy_stream(first));
    SAY(driver.destroy_stream(first));
    /* The default stream cannot be destroyed. */
    memory = new_memory(BYTES, NULL);
    SAY(driver.destroy_stream(NULL));
    SAY(driver.release_on(memory, NULL));
    handle third = new_stream();
    memory = new_memory(BYTES, third);
    SAY(driver.fill(memory, 1, BYTES, third));
    say_wrong(memory, 1, third);
}

/* Streams and addresses that do not exist. */
static void odd_calls(void)
{
    handle stream = new_stream();
    address memory = new_memory(BYTES, stream), other = 0;
    size_t bytes = 0;
    SAY(driver.allocate_on(&other, BYTES, NO_STREAM));
    SAY(driver.release_on(memory, NO_STREAM));
    SAY(driver.release(memory));
    SAY(driver.release_on(memory, NO_STREAM));
    SAY(driver.range(&other, &bytes, memory));
    SAY(driver.range(&other, &bytes, 0x1234500));
    SAY(driver.release(memory));
}

/* A stream-ordered request does not wait for other streams, also after a graph with memory was destroyed. */
static void blocked_streams(void)
{
    handle stream = new_stream(), blocked = new_stream(), graph = NULL, ready = NULL;
    SAY(driver.begin_capture(stream, 2));
    address memory = new_memory(1 << 20, stream);
    SAY(driver.fill(memory, 7, 1 << 20, stream));
    SAY(driver.release_on(memory, stream));
    SAY(driver.end_capture(stream, &graph));
    SAY(driver.make_ready(&ready, graph, 0));
    SAY(driver.destroy_graph(graph));
    SAY(driver.launch(ready, stream));
    SAY(driver.wait(stream));
    SAY(driver.destroy_ready(ready));
    SAY(driver.host(blocked, wait_to_go, NULL));
    memory = new_memory(BYTES, stream);
    SAY(driver.release_on(memory, stream));
    SAY(driver.begin_capture(stream, 2));
    memory = new_memory(BYTES, stream);
    SAY(driver.release_on(memory, stream));
    SAY(driver.end_capture(stream, &graph));
    go();
    SAY(driver.wait_for_all());
}

/* What a graph allocates and does not free is freed after every launch. */
static void unfreed_memory(void)
{
    handle stream = new_stream(), graph = NULL, ready = NULL;
    SAY(driver.begin_capture(stream, 2));
    address memory = new_memory(BYTES, stream), freed = new_memory(BYTES, stream);
    SAY(driver.fill(memory, 9, BYTES, stream));
    SAY(driver.release_on(freed, stream));
    SAY(driver.end_capture(stream, &graph));
    SAY(driver.make_ready(&ready, graph, 0));
    for (int i = 0; i < 3; i++) {
        SAY(driver.launch(ready, stream));
        say_wrong(memory, 9, stream);
        SAY(i == 1 ? driver.release(memory) : driver.release_on(memory, stream));
    }
    SAY(driver.release_on(freed, stream));
    SAY(driver.destroy_ready(ready));
    SAY(driver.destroy_graph(graph));
    SAY(driver.release_on(memory, stream));
}

/* Memory from before a capture cannot be freed in it. */
static void frees_in_captures(void)
{
    handle stream = new_stream(), graph = NULL, ready = NULL;
    address memory = new_memory(BYTES, stream);
    SAY(driver.begin_capture(stream, 2));
    SAY(driver.fill(memory, 9, BYTES, stream));
    SAY(driver.release_on(memory, stream));
    SAY(driver.end_capture(stream, &graph));
    SAY(driver.make_ready(&ready, graph, 0));
    address other = new_memory(BYTES, stream);
    SAY(driver.fill(other, 1, BYTES, stream));
    SAY(driver.launch(ready, stream));
    say_wrong(other, 1, stream);
    SAY(driver.release_on(memory, stream));
}

/* exit() in a signal handler, which may have interrupted any call. */
static void leave(int number)
{
    (void)number;
    exit(3);
}

static void exits_in_handlers(void)
{
    handle stream = new_stream();
    address memory[64];
    struct itimerval soon = {{0, 0}, {0, 100 + getpid() * 37 % 5000}};
    CHECK(signal(SIGALRM, leave) != SIG_ERR && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    for (;;) {
        for (int i = 0; i < 64; i++)
            memory[i] = new_memory(1000 * (i + 1), stream);
        for (int i = 0; i < 64; i++)
            CHECK(driver.release_on(memory[i], stream) == SUCCESS);
    }
}

/* A child of a process whose other threads use the driver. */
static atomic_int is_over;

static void *churn(void *unused)
{
#ifdef CUDA
    handle context;
    CHECK(driver.retain(&context, 0) == SUCCESS && driver.push(context) == SUCCESS);
#endif
    while (!is_over) {
        handle stream = new_stream(), captured = new_stream(), graph = NULL;
        address memory = new_memory(BYTES, stream);
        CHECK(driver.begin_capture(captured, 2) == SUCCESS);
        CHECK(driver.end_capture(captured, &graph) == SUCCESS && driver.destroy_graph(graph) == SUCCESS);
        CHECK(driver.release_on(memory, stream) == SUCCESS);
        CHECK(driver.destroy_stream(stream) == SUCCESS && driver.destroy_stream(captured) == SUCCESS);
    }
    return unused;
}

static void forks(void)
{
    enum { CHILDREN = 60, SECONDS = 20 };
    pthread_t threads[2];
    handle stream = new_stream(), other = NULL;
    address memory = new_memory(BYTES, stream);
    size_t bytes, total;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS);
            int refused = driver.allocate_on(&memory, BYTES, stream) && driver.release_on(memory, stream) &&
                          driver.allocate(&memory, BYTES) && driver.release(memory) &&
                          driver.create_stream(&other, 1) && driver.destroy_stream(stream) &&
                          driver.begin_capture(stream, 2) && driver.info(&bytes, &total);
            _exit(refused ? 0 : 1);
        }
        int how;
        CHECK(waitpid(child, &how, 0) == child);
        CHECK(how == 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    SAY(driver.release_on(memory, stream));
}

#ifdef CUDA
/* A context that the program made has memory and streams of its own. */
static void contexts(void)
{
    handle context = NULL, graph = NULL;
    unsigned before = behind();
    SAY(driver.create_context(&context, 0, 0));
    handle stream = new_stream();
    address memory = new_memory(BYTES, stream), idle = 0;
    SAY(driver.allocate(&idle, BYTES));
    printf("of the driver: %u\n", behind() - before);
    SAY(driver.fill(memory, 5, BYTES, stream));
    say_wrong(memory, 5, stream);
    SAY(driver.begin_capture(stream, 2));
    SAY(driver.end_capture(stream, &graph));
    SAY(driver.release_on(memory, stream));
    SAY(driver.release(idle));
    SAY(driver.destroy_stream(stream));
    SAY(driver.destroy_stream(stream));
    handle left = new_stream();
    SAY(driver.destroy_context(context));
    SAY(driver.destroy_context(context));
    SAY(driver.wait(left));
    SAY(driver.release(new_memory(BYTES, new_stream())));
}

#endif

/* A stream has the priority that it was made with. */
static void priorities(void)
{
    int priorities[] = {0, -1, -9, 4, -1};
    for (int i = 0; i < 5; i++) {
        handle stream = NULL;
        int priority = 99;
        SAY(driver.create_urgent(&stream, 1, priorities[i]));
        SAY(driver.priority(stream, &priority));
        printf("priority: %d\n", priority);
        SAY(driver.release_on(new_memory(BYTES, stream), stream));
        SAY(driver.destroy_stream(stream));
    }
}

/* A copy of a graph keeps its memory. */
static void copies(void)
{
    handle stream = new_stream(), graph = NULL, copy = NULL, ready = NULL;
    SAY(driver.begin_capture(stream, 2));
    address memory = new_memory(BYTES, stream);
    SAY(driver.fill(memory, 9, BYTES, stream));
    SAY(driver.release_on(memory, stream));
    SAY(driver.end_capture(stream, &graph));
    SAY(driver.copy_graph(&copy, graph));
    SAY(driver.destroy_graph(graph));
    SAY(driver.make_ready(&ready, copy, 0));
    SAY(driver.destroy_graph(copy));
    for (int i = 0; i < 20; i++) {
        address other = new_memory(BYTES, stream);
        CHECK(driver.fill(other, 1, BYTES, stream) == SUCCESS && driver.launch(ready, stream) == SUCCESS);
        say_wrong(other, 1, stream);
    }
    SAY(driver.destroy_ready(ready));
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"pending-streams", pending_streams},
    {"destroyed-streams", destroyed_streams},
    {"odd-calls", odd_calls},
    {"blocked-streams", blocked_streams},
    {"unfreed-memory", unfreed_memory},
    {"frees-in-captures", frees_in_captures},
    {"exits-in-handlers", exits_in_handlers},
    {"forks", forks},
    {"priorities", priorities},
    {"copies", copies},
#ifdef CUDA
    {"contexts", contexts},
#else
    {"last-errors", last_errors},
#endif
};

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    start();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(what, parts[i].name) == 0) {
            parts[i].run();
            return 0;
        }
    }
    return 64;
}
