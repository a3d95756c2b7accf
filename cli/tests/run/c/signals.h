/* Programs that run until a signal comes. */
#include <signal.h>

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

static void own_handler(int signal)
{
    if (signal == SIGTERM)
        _exit(3);
    if (write(STDOUT_FILENO, "own\n", 4) != 4)
        _exit(4);
}

static void never_ends(void *unused)
{
    (void)unused;
    for (;;)
        pause();
}

/* Has memory, and waits. `how` says where and with which handlers. */
static void serve(const char *how)
{
    handle stream = new_stream();
    if (strcmp(how, "handles-before") == 0) {
        signal(SIGTERM, own_handler);
        signal(SIGUSR1, own_handler);
    }
    address memory = new_memory(BYTES, stream);
    if (strcmp(how, "handles-later") == 0) {
        signal(SIGTERM, own_handler);
        signal(SIGUSR1, own_handler);
    } else if (strcmp(how, "forks") == 0) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        int status;
        CHECK(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        return;
    } else if (strcmp(how, "blocks") == 0) {
        CHECK(driver.host(stream, never_ends, NULL) == SUCCESS);
        say("ready");
        CHECK(driver.release(memory) == SUCCESS);
    } else if (strcmp(how, "returns") == 0) {
        /* A program that takes the end of its sleep for the end of its work. */
        say("ready");
        sleep(60);
        exit(5);
    }
    say("ready");
    for (;;)
        pause();
}
