/* What happened is kept if that is wanted, and snapshots are files in the format of their name. */
#include "check.h"

/* What a file holds; the caller frees it. */
static char *content_of(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text;
    long length;
    CHECK(file != NULL);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    length = ftell(file);
    CHECK(length > 0 && fseek(file, 0, SEEK_SET) == 0);
    text = (char *)calloc(1, (size_t)length + 1);
    CHECK(text != NULL && fread(text, 1, (size_t)length, file) == (size_t)length);
    CHECK(fclose(file) == 0);
    return text;
}

/* Whether a snapshot as JSON has some words. */
static bool has(const char *path, const char *words) {
    char *text = content_of(path);
    bool found = strstr(text, words) != NULL;
    free(text);
    return found;
}

static void path_of(char *path, size_t capacity, const char *end) {
    const char *folder = getenv("TMPDIR");
    int length = snprintf(path, capacity, "%s/cachette-%p%s", folder != NULL ? folder : "/tmp",
                          (void *)path, end);
    CHECK(length > 0 && (size_t)length < capacity);
}

static void files(cachette_allocator_t *allocator) {
    cachette_pool_t *pool = create_pool(allocator);
    char json[256];
    char pickle[256];
    char *text;
    void *memory = NULL;
    path_of(json, sizeof json, ".json");
    path_of(pickle, sizeof pickle, ".pickle");
    OK(cachette_set_metadata("warm-up"));
    OK(cachette_pool_allocate(pool, 3 * MIB, NULL, &memory));
    OK(cachette_set_metadata(NULL));
    OK(cachette_save_snapshot(allocator, json));
    CHECK(has(json, "cachette-snapshot") && has(json, "warm-up"));
    OK(cachette_save_snapshot(allocator, pickle));
    text = content_of(pickle);
    CHECK((unsigned char)text[0] == 0x80);
    free(text);
    OK(cachette_pool_save_snapshot(pool, json));
    CHECK(has(json, "warm-up"));

    WRONG(cachette_save_snapshot(allocator, "snapshot.txt"), "end in .json or .pickle");
    WRONG(cachette_save_snapshot(allocator, NULL), "`path` is null");
    WRONG(cachette_save_snapshot(NULL, json), "`allocator` is null");
    WRONG(cachette_pool_save_snapshot(NULL, json), "`pool` is null");
    FAILS(cachette_pool_save_snapshot(pool, "/none/a.json"), CACHETTE_ERROR_FILE, "cannot write");
    OK(cachette_free(allocator, memory));
    OK(cachette_pool_release(pool));
    CHECK(remove(json) == 0 && remove(pickle) == 0);
}

static void options(cachette_allocator_t *allocator) {
    cachette_history_options_t options;
    OK(cachette_record_history(allocator, NULL, 0));
    memset(&options, 0, sizeof options);
    options.max_entries = 1000;
    options.level = CACHETTE_HISTORY_STATE;
    options.flags = CACHETTE_HISTORY_CLEAR;
    options.skip = "free_completed, snapshot";
    OK(cachette_record_history(allocator, &options, sizeof options));
    options.skip = "nonsense";
    WRONG(cachette_record_history(allocator, &options, sizeof options), "nonsense; use names of events");
    options.skip = NULL;
    options.level = 7;
    WRONG(cachette_record_history(allocator, &options, sizeof options), "not a history level");
    options.level = CACHETTE_HISTORY_NONE;
    options.flags = 8;
    WRONG(cachette_record_history(allocator, &options, sizeof options), "`flags` has 0x8");
    options.flags = 0;
    options.max_entries = UINT64_MAX;
    WRONG(cachette_record_history(allocator, &options, sizeof options), "ask for fewer");
    WRONG(cachette_record_history(NULL, NULL, 0), "`allocator` is null");
}

int main(void) {
    cachette_allocator_t *allocator = open_host("");
    options(allocator);
    OK(cachette_record_history(allocator, NULL, 0));
    files(allocator);
    OK(cachette_stop_history(allocator));
    close_clean(allocator);
    return 0;
}
