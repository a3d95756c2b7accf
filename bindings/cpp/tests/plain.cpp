// The header without a vendor's headers, on host memory.
#include "check.hpp"

#include <cstring>
#include <memory_resource>
#include <thread>
#include <type_traits>
#include <vector>

static_assert(std::is_nothrow_move_constructible_v<cachette::unique_memory<float>>);
static_assert(!std::is_copy_constructible_v<cachette::unique_memory<float>>);
static_assert(!std::is_copy_constructible_v<cachette::stream>);
static_assert(std::is_base_of_v<std::bad_alloc, cachette::out_of_memory>);

static std::uint64_t allocated(cachette::allocator const &gpu) {
    std::uint64_t bytes = 0;
    cachette::check(cachette_allocated_bytes(gpu.get(), &bytes));
    return bytes;
}

static void memory_goes_to_the_device_and_back() {
    cachette::allocator gpu{"host", ""};
    cachette::stream const stream{gpu};
    std::vector<float> const sent{1, 2, 3, 4};
    std::vector<float> received(4);
    cachette::unique_memory<float> memory{gpu, sent.size(), stream};
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 512 == 0 && memory.size_bytes() == 16);
    memory.upload(sent.data(), 4);
    memory.upload(sent.data(), 2, 2);
    memory.download(received.data(), 3, 1);
    stream.synchronize();
    CHECK((received == std::vector<float>{2, 1, 2, 0}));
    memory.fill(0);
    memory.download(received.data(), 4);
    stream.synchronize();
    CHECK(received == std::vector<float>(4));
}

static void memory_is_freed_by_its_last_owner() {
    cachette::allocator const gpu{"host", ""};
    cachette::stream const stream{gpu};
    cachette::unique_memory<> first{gpu, MIB, stream};
    auto const *const address = first.data();
    cachette::unique_memory<> second{std::move(first)};
    CHECK(first.empty() && first.data() == nullptr && second.data() == address && allocated(gpu) == MIB);
    first = std::move(second);
    first = cachette::unique_memory<>{gpu, 2 * MIB, stream};
    CHECK(allocated(gpu) == 2 * MIB);
    auto *const given_up = first.release();
    first = {};
    CHECK(allocated(gpu) == 2 * MIB);
    auto copy = gpu;
    copy.record_stream(given_up, stream.get());
    copy.deallocate(given_up);
    CHECK(allocated(gpu) == 0 && copy == gpu && copy.empty_cache() >= 2 * MIB);
    CHECK(gpu.stats().reserved_bytes.all.current == 0);
}

static void memory_outlives_the_names_of_its_allocator() {
    cachette::unique_memory<int> memory;
    {
        cachette::allocator const gpu{"host"};
        memory = {gpu, 100, nullptr};
    }
    memory.fill(1);
    memory.record_stream(nullptr);
}

static void errors_are_exceptions_with_advice() {
    THROWS(cachette::allocator{"gpu:0"}, cachette::error, "cuda");
    THROWS((cachette::allocator{"host", "memory_limt:1GiB"}), cachette::error, "memory_limit");
    cachette::allocator gpu{"host", "memory_limit:16MiB"};
    cachette::stream const stream{gpu};
    THROWS((cachette::unique_memory<>{gpu, 64 * MIB, stream}), cachette::out_of_memory, "limit");
    THROWS((cachette::unique_memory<double>{gpu, SIZE_MAX / 4, stream}), cachette::out_of_memory, "ask for fewer");
    cachette::unique_memory<int> memory{gpu, 10, stream};
    int host[10] = {};
    THROWS(memory.upload(host, 10, 1), std::out_of_range, "not all in memory of 10");
    THROWS(memory.download(host, SIZE_MAX, 2), std::out_of_range, "not all in memory of 10");
    int local = 0;
    THROWS(gpu.record_stream(&local, stream.get()), cachette::error, "");
    CHECK(allocated(gpu) == 512);
}

static void streams_move() {
    cachette::allocator const gpu{"host"};
    cachette::stream first{gpu};
    void *const handle = first.get();
    cachette::stream second{std::move(first)};
    CHECK(second.get() == handle && first.get() == nullptr);
    first = std::move(second);
    CHECK(first.get() == handle);
}

static void containers_of_pmr_are_pinned() {
    cachette::allocator const gpu{"host"};
    cachette::pinned_resource pinned{gpu}, same{gpu}, other{cachette::allocator{"host"}};
    CHECK(pinned == same && pinned != other && pinned != *std::pmr::new_delete_resource());
    auto active = [&gpu] {
        cachette_pinned_stats_t found{};
        cachette::check(cachette_pinned_stats(gpu.get(), &found, sizeof found));
        return found.active_requests.current;
    };
    {
        std::pmr::vector<double> staged(1000, 0.5, &pinned);
        CHECK(active() == 1);
        cachette::stream const stream{gpu};
        cachette::unique_memory<double> memory{gpu, staged.size(), stream};
        memory.upload(staged.data(), staged.size());
        std::pmr::vector<double> back(1000, &pinned);
        memory.download(back.data(), back.size());
        stream.synchronize();
        CHECK(back == staged);
    }
    CHECK(active() == 0);
    void *const nothing = pinned.allocate(0, 1);
    CHECK(nothing != nullptr);
    pinned.deallocate(nothing, 0, 1);
    THROWS(pinned.allocate(1, 4096), cachette::bad_alloc, "64 bytes");
    THROWS(pinned.allocate(SIZE_MAX / 2), std::bad_alloc, "");
}

static void threads_share_an_allocator() {
    cachette::allocator const gpu{"host", ""};
    std::vector<std::thread> threads;
    for (unsigned char mark = 1; mark <= 4; mark++) {
        threads.emplace_back([gpu, mark] {
            cachette::stream const stream{gpu};
            for (std::size_t round = 1; round <= 200; round++) {
                cachette::unique_memory<unsigned char> memory{gpu, 1000 * round, stream};
                std::vector<unsigned char> host(memory.size());
                memory.fill(mark);
                memory.download(host.data(), host.size());
                stream.synchronize();
                CHECK(host == std::vector<unsigned char>(host.size(), mark));
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(allocated(gpu) == 0);
}

int main() {
    memory_goes_to_the_device_and_back();
    memory_is_freed_by_its_last_owner();
    memory_outlives_the_names_of_its_allocator();
    errors_are_exceptions_with_advice();
    streams_move();
    containers_of_pmr_are_pinned();
    threads_share_an_allocator();
}
