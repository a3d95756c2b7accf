/* A program that says what the driver does; the first argument names a part. It says the same without the front. */
#define _GNU_SOURCE
#include "driver.h"

enum { BYTES = 4096 };
#define MANY_BYTES ((size_t)1 << 40)
#define NO_STREAM ((handle)0x1234560)

/* Says what a call answers. */
#define SAY(call) printf("%s: %d\n", #call, call)

static handle new_stream(void)
{
    handle stream = NULL;
    CHECK(driver.create_stream(&stream, 1) == SUCCESS);
    return stream;
}

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
    SAY(driver.wait(NO_STREAM));
    SAY_LAST;
    /* A failure, then a success or a failure of the front. */
    SAY(driver.wait(NO_STREAM));
    SAY(driver.release_on(memory, stream));
    SAY(driver.last_call());
    SAY_LAST;
    SAY(driver.wait(NO_STREAM));
    SAY(driver.allocate(&memory, MANY_BYTES));
    SAY_LAST;
    /* A failure is not lost by what the front does for a request that needs the whole cache. */
    SAY(driver.allocate_on(&memory, (size_t)200 << 20, stream));
    SAY(driver.release_on(memory, stream));
    SAY(driver.wait(stream));
    SAY(driver.wait(NO_STREAM));
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

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    start();
#ifdef HIP
    if (strcmp(what, "last-errors") == 0)
        last_errors();
    else
#endif
        return 64;
    return 0;
}
