/* A program that opens the driver in a namespace of the loader. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#define CALL(name, kinds, ...)                                                               \
    do {                                                                                     \
        int(*call) kinds;                                                                    \
        *(void **)&call = dlsym(library, #name);                                             \
        if (call == NULL || call(__VA_ARGS__) != 0) {                                        \
            fprintf(stderr, #name " fails\n");                                               \
            return 70;                                                                       \
        }                                                                                    \
    } while (0)

int main(void)
{
    void *library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW), *context = NULL;
    uint64_t memory = 0;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 71;
    }
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemAlloc_v2, (uint64_t *, size_t), &memory, 4096);
    CALL(cuMemFree_v2, (uint64_t), memory);
    puts("kept");
    return 0;
}
