// What the programs with CCCL have in common.
#pragma once

#include "check.hpp"

#include <cachette/memory_resource.hpp>

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
