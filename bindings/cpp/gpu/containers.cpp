// RMM's own containers, pools and adaptors over Cachette, in several threads, on a GPU.
#include "check.cuh"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

using clock_type = std::chrono::steady_clock;

static std::vector<int> numbers(std::size_t len, int start) {
    std::vector<int> made(len);
    std::iota(made.begin(), made.end(), start);
    return made;
}

static rmm::device_uvector<int> upload(std::vector<int> const &from, cuda::stream_ref stream) {
    rmm::device_uvector<int> made{from.size(), stream};
    CUDA(cudaMemcpyAsync(made.data(), from.data(), from.size() * sizeof(int), cudaMemcpyHostToDevice, stream.get()));
    return made;
}

static std::vector<int> download(rmm::device_uvector<int> const &from, cuda::stream_ref stream) {
    std::vector<int> made(from.size());
    CUDA(cudaMemcpyAsync(made.data(), from.data(), made.size() * sizeof(int), cudaMemcpyDeviceToHost, stream.get()));
    CUDA(cudaStreamSynchronize(stream.get()));
    return made;
}

static void contents_survive_growth_and_copies(cuda::stream_ref stream) {
    auto first = upload(numbers(100'000, 7), stream);
    rmm::device_uvector<int> copy{first, stream};
    first.resize(1'000'000, stream);
    CUDA(cudaMemsetAsync(first.data(), 0, first.size() * sizeof(int), stream.get()));
    CHECK(download(copy, stream) == numbers(100'000, 7));
    copy.resize(50'000, stream);
    copy.shrink_to_fit(stream);
    CHECK(download(copy, stream) == numbers(50'000, 7));
}

static void threads_keep_their_contents(std::vector<rmm::cuda_stream> const &streams) {
    std::vector<std::thread> threads;
    for (std::size_t number = 0; number < streams.size(); number++) {
        threads.emplace_back([number, stream = cuda::stream_ref{streams[number]}] {
            std::vector<rmm::device_uvector<int>> held;
            for (std::size_t round = 0; round < 300; round++) {
                std::size_t const len = 1 + (round * 7919 + number * 104'729) % 300'000;
                held.push_back(upload(numbers(len, static_cast<int>(number * 1000 + round)), stream));
                if (held.size() > 8) {
                    auto const &oldest = held.front();
                    int const start = static_cast<int>(number * 1000 + round - 8);
                    CHECK(download(oldest, stream) == numbers(oldest.size(), start));
                    held.erase(held.begin());
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

// The median time of an allocation and its free, in nanoseconds.
template <class Resource> static double pair_time(Resource memory, cuda::stream_ref stream) {
    std::vector<double> times;
    for (int batch = 0; batch < 51; batch++) {
        auto const begun = clock_type::now();
        for (int pair = 0; pair < 2000; pair++) {
            void *address = memory.allocate(stream, 1 << 20, 256);
            memory.deallocate(stream, address, 1 << 20, 256);
        }
        times.push_back(std::chrono::duration<double, std::nano>(clock_type::now() - begun).count() / 2000);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

int main() {
    // The streams outlive the resource.
    std::vector<rmm::cuda_stream> streams(8);
    cuda::stream_ref const stream = streams[0];
    cachette::rmm_resource memory{"cuda:0"};
    auto const before = rmm::mr::set_current_device_resource(memory);

    contents_survive_growth_and_copies(stream);
    threads_keep_their_contents(streams);
    CUDA(cudaDeviceSynchronize());
    check_empty(memory);
    auto const found = stats(memory);
    CHECK(found.num_device_alloc < 200);
    std::printf("containers: %llu requests, %llu reached the driver\n",
                static_cast<unsigned long long>(found.allocation.all.allocated),
                static_cast<unsigned long long>(found.num_device_alloc));

    {
        rmm::mr::statistics_resource_adaptor counted{memory};
        rmm::mr::pool_memory_resource pool{counted, std::size_t{64} << 20};
        auto const whole = rmm::mr::set_current_device_resource(pool);
        contents_survive_growth_and_copies(stream);
        CHECK(counted.get_allocations_counter().total < 5);
        rmm::mr::set_current_device_resource(whole);
    }
    CUDA(cudaDeviceSynchronize());
    check_empty(memory);

    bool refused = false;
    try {
        rmm::device_uvector<char> huge{std::size_t{1} << 45, stream};
    } catch (rmm::out_of_memory const &) {
        refused = true;
    }
    CHECK(refused);

    rmm::mr::pool_memory_resource const pool{before, std::size_t{64} << 20};
    std::printf("1 MiB, allocated and freed: Cachette %.0f ns, RMM's pool %.0f ns (medians)\n",
                pair_time(memory, stream), pair_time(pool, stream));
    rmm::mr::set_current_device_resource(before);
    std::puts("containers: every content was right");
}
