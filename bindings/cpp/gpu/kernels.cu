// Kernels and Thrust on memory of Cachette: temporary memory of algorithms, and frees with another stream.
#include "check.cuh"

#include <rmm/device_uvector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdint>
#include <vector>

// Waits, and then copies: what the memory holds at the end is seen.
__global__ void copy_late(int *to, int const *from, unsigned len) {
    for (int pause = 0; pause < 2000; pause++) {
        __nanosleep(100'000);
    }
    for (unsigned index = threadIdx.x; index < len; index += blockDim.x) {
        to[index] = from[index];
    }
}

static void algorithms_use_the_cache(cachette::memory_resource const &memory, cudaStream_t stream) {
    auto const before = stats(memory).allocation.all.allocated;
    rmm::device_uvector<int> values{1 << 22, stream};
    auto const policy = rmm::exec_policy(stream);
    for (int round = 0; round < 20; round++) {
        thrust::sequence(policy, values.begin(), values.end(), 1 << 22, -1);
        thrust::sort(policy, values.begin(), values.end());
        auto const sum = thrust::reduce(policy, values.begin(), values.end(), std::int64_t{0});
        CHECK(sum == (std::int64_t{1} << 21) * ((1 << 22) + 1));
    }
    std::vector<int> host(values.size());
    CUDA(cudaMemcpyAsync(host.data(), values.data(), host.size() * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (std::size_t index = 0; index < host.size(); index++) {
        CHECK(host[index] == static_cast<int>(index) + 1);
    }
    CHECK(stats(memory).allocation.all.allocated - before > 20);
}

// The memory is freed with a stream that still reads it; the stream it was allocated on writes new memory meanwhile.
static void a_free_waits_for_its_stream(cachette::memory_resource memory, cudaStream_t own, cudaStream_t other) {
    constexpr unsigned len = 1 << 18;
    constexpr std::size_t bytes = len * sizeof(int);
    auto *to = static_cast<int *>(memory.allocate_sync(bytes));
    auto *from = static_cast<int *>(memory.allocate(own, bytes));
    CUDA(cudaMemsetAsync(from, 7, bytes, own));
    CUDA(cudaStreamSynchronize(own));
    copy_late<<<1, 1024, 0, other>>>(to, from, len);
    memory.deallocate(other, from, bytes);
    for (int round = 0; round < 8; round++) {
        void *next = memory.allocate(own, bytes);
        CHECK(next != from);
        CUDA(cudaMemsetAsync(next, 9, bytes, own));
        memory.deallocate(own, next, bytes);
    }
    CUDA(cudaStreamSynchronize(own));
    CHECK(cudaStreamQuery(other) == cudaErrorNotReady);
    CUDA(cudaStreamSynchronize(other));
    std::vector<int> host(len);
    CUDA(cudaMemcpy(host.data(), to, bytes, cudaMemcpyDeviceToHost));
    for (int const value : host) {
        CHECK(value == 0x07070707);
    }
    memory.deallocate_sync(to, bytes);
}

int main() {
    cudaStream_t own = nullptr, other = nullptr;
    CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    cachette::rmm_resource memory{"cuda:0"};
    auto const before = rmm::mr::set_current_device_resource(memory);
    algorithms_use_the_cache(memory, own);
    a_free_waits_for_its_stream(memory, own, other);
    CUDA(cudaDeviceSynchronize());
    check_empty(memory);
    rmm::mr::set_current_device_resource(before);
    std::puts("kernels: every content was right");
}
