/* Versions and statuses are texts and numbers that any program can ask for. */
#include "check.h"

int main(void) {
    int32_t status;
    CHECK(cachette_api_version() >= CACHETTE_API_VERSION);
    CHECK(strlen(cachette_version()) >= strlen("0.0.0"));
    CHECK(strchr(cachette_version(), '.') != NULL);

    CHECK(strcmp(cachette_status_text(CACHETTE_OK), "success") == 0);
    CHECK(strcmp(cachette_status_text(CACHETTE_ERROR_OUT_OF_MEMORY), "out of memory") == 0);
    CHECK(strcmp(cachette_status_text(CACHETTE_ERROR_PANIC), "internal panic") == 0);
    for (status = CACHETTE_OK; status <= CACHETTE_ERROR_FILE; status++) {
        CHECK(strcmp(cachette_status_text(status), "unknown status") != 0);
    }
    CHECK(strcmp(cachette_status_text(-1), "unknown status") == 0);
    CHECK(strcmp(cachette_status_text(1000), "unknown status") == 0);

    /* The numbers are part of the interface. */
    CHECK(CACHETTE_ERROR_INVALID_ARGUMENT == 1 && CACHETTE_ERROR_INVALID_CONFIG == 2);
    CHECK(CACHETTE_ERROR_OUT_OF_MEMORY == 5 && CACHETTE_ERROR_INVALID_POINTER == 7);
    CHECK(CACHETTE_ERROR_PANIC == 19 && CACHETTE_ERROR_FORKED == 20 && CACHETTE_ERROR_FILE == 21);

    CHECK(strcmp(cachette_last_error(), "") == 0);
    return 0;
}
