// What the programs have in common: each stops at the first promise that is not kept.
#pragma once

#include <cachette/memory_resource.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,                     \
                         cachette_last_error());                                                                      \
            std::exit(1);                                                                                             \
        }                                                                                                             \
    } while (0)

// The expression throws `type`, and the text has `words`.
#define THROWS(expression, type, words)                                                                               \
    do {                                                                                                              \
        bool thrown = false;                                                                                          \
        try {                                                                                                         \
            (void)(expression);                                                                                       \
        } catch (type const &failed) {                                                                                \
            thrown = true;                                                                                            \
            CHECK(std::string{failed.what()}.find(words) != std::string::npos);                                       \
        }                                                                                                             \
        CHECK(thrown);                                                                                                \
    } while (0)

constexpr std::size_t MIB = std::size_t{1} << 20;

// The bytes that callers hold.
inline std::uint64_t allocated(cachette::memory_resource const &memory) {
    std::uint64_t bytes = 0;
    CHECK(cachette_allocated_bytes(memory.allocator(), &bytes) == CACHETTE_OK);
    return bytes;
}

// A stream of the host device, as containers are given it.
inline cuda::stream_ref make_stream(cachette::memory_resource const &memory) {
    void *stream = nullptr;
    CHECK(cachette_stream_create(memory.allocator(), &stream) == CACHETTE_OK);
    return cuda::stream_ref{static_cast<cudaStream_t>(stream)};
}
