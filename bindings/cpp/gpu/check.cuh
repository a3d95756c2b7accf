// What the programs have in common: each stops at the first promise that is not kept.
#pragma once

#include <cachette/rmm.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,                     \
                         cachette_last_error());                                                                      \
            std::exit(1);                                                                                             \
        }                                                                                                             \
    } while (0)

#define CUDA(call) CHECK((call) == cudaSuccess)

inline cachette_stats_t stats(cachette::memory_resource const &memory) {
    cachette_stats_t found{};
    CHECK(cachette_stats(memory.allocator(), &found, sizeof found) == CACHETTE_OK);
    return found;
}

// Everything was given back, and the structures are whole.
inline void check_empty(cachette::memory_resource const &memory) {
    std::uint64_t bytes = 1;
    CHECK(cachette_allocated_bytes(memory.allocator(), &bytes) == CACHETTE_OK && bytes == 0);
    CHECK(cachette_check(memory.allocator()) == CACHETTE_OK);
}
