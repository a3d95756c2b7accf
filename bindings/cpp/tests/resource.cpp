// The resource in the hands of CCCL, on host memory.
#include "cccl.hpp"

#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;
using resource_ref = cuda::mr::resource_ref<cuda::mr::device_accessible>;

static_assert(std::is_copy_constructible_v<cachette::memory_resource>);
static_assert(std::is_nothrow_move_constructible_v<cachette::memory_resource>);
static_assert(noexcept(std::declval<cachette::memory_resource &>().deallocate(std::declval<cuda::stream_ref>(), nullptr, 0, 1)));
static_assert(noexcept(std::declval<cachette::memory_resource &>().deallocate_sync(nullptr, 0, 1)));
static_assert(cuda::has_property<cachette::memory_resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<cachette::memory_resource, cuda::mr::host_accessible>);
static_assert(std::is_base_of_v<std::bad_alloc, cachette::out_of_memory>);

static void fill(cachette::memory_resource const &memory, void *address, int byte, std::size_t bytes,
                 cuda::stream_ref stream) {
    auto const value = static_cast<std::uint8_t>(byte);
    CHECK(cachette_fill(memory.allocator(), address, value, bytes, stream.get()) == CACHETTE_OK);
}

static bool holds(cachette::memory_resource const &memory, void *address, int byte, std::size_t bytes,
                  cuda::stream_ref stream) {
    std::vector<std::uint8_t> host(bytes);
    CHECK(cachette_download(memory.allocator(), host.data(), address, bytes, stream.get()) == CACHETTE_OK);
    CHECK(cachette_stream_synchronize(memory.allocator(), stream.get()) == CACHETTE_OK);
    for (auto const found : host) {
        if (found != byte) {
            return false;
        }
    }
    return true;
}

static void memory_is_reused_on_its_stream() {
    cachette::memory_resource memory{"host", ""};
    auto const stream = make_stream(memory);
    void *first = memory.allocate(stream, MIB, 256);
    CHECK(reinterpret_cast<std::uintptr_t>(first) % 512 == 0);
    CHECK(allocated(memory) == MIB);
    memory.deallocate(stream, first, MIB, 256);
    CHECK(allocated(memory) == 0);
    CHECK(memory.allocate(stream, MIB, 256) == first);
    memory.deallocate(stream, first, MIB, 256);
}

static void copies_are_equal_and_share_the_allocator() {
    cachette::memory_resource memory{"host"};
    auto const stream = make_stream(memory);
    cachette::memory_resource copy = memory;
    cachette::memory_resource other{"host"};
    CHECK(copy == memory && !(copy != memory) && copy != other);
    void *address = memory.allocate(stream, 100);
    copy.deallocate(stream, address, 100);
    CHECK(allocated(memory) == 0);
    copy = other;
    CHECK(copy != memory && copy == other);
}

static void any_resource_keeps_it_alive() {
    cachette_allocator_t *allocator = nullptr;
    any_resource any = [&allocator] {
        cachette::memory_resource memory{"host"};
        allocator = memory.allocator();
        return any_resource{memory};
    }();
    auto const memory = cachette::memory_resource::borrow(allocator);
    auto const stream = make_stream(memory);
    void *address = any.allocate(stream, 3 * MIB, 256);
    CHECK(allocated(memory) == 3 * MIB);
    resource_ref reference{any};
    reference.deallocate(stream, address, 3 * MIB, 256);
    void *sync = reference.allocate_sync(MIB, 64);
    any.deallocate_sync(sync, MIB, 64);
    CHECK(allocated(memory) == 0);
    any_resource const same = any;
    CHECK(same == any);
}

static void memory_without_a_stream_is_for_all() {
    cachette::memory_resource memory{"host"};
    auto const left = make_stream(memory), right = make_stream(memory);
    void *address = memory.allocate_sync(MIB);
    fill(memory, address, 5, MIB / 2, left);
    fill(memory, static_cast<char *>(address) + MIB / 2, 5, MIB / 2, right);
    CHECK(holds(memory, address, 5, MIB / 2, left));
    CHECK(holds(memory, static_cast<char *>(address) + MIB / 2, 5, MIB / 2, right));
    memory.deallocate_sync(address, MIB);
    CHECK(memory.allocate_sync(MIB) == address);
    memory.deallocate(left, address, MIB);
    CHECK(allocated(memory) == 0);
}

static void nothing_is_asked_for_and_nothing_freed() {
    cachette::memory_resource memory{"host"};
    auto const stream = make_stream(memory);
    CHECK(memory.allocate(stream, 0, 1) == nullptr);
    CHECK(memory.allocate_sync(0, 1) == nullptr);
    memory.deallocate(stream, nullptr, 0, 1);
    memory.deallocate_sync(nullptr, 0, 1);
}

static void refusals_say_what_to_do() {
    cachette::memory_resource memory{"host"};
    auto const stream = make_stream(memory);
    CHECK(cachette_set_memory_limit(memory.allocator(), 4 * MIB) == CACHETTE_OK);
    THROWS(memory.allocate(stream, 8 * MIB), cachette::out_of_memory, "8.00 MiB");
    THROWS(memory.allocate(stream, 8 * MIB), std::bad_alloc, "limit");
    THROWS(memory.allocate_sync(8 * MIB), cachette::out_of_memory, "limit");
    THROWS(memory.allocate(stream, SIZE_MAX), cachette::out_of_memory, "no device has");
    THROWS(memory.allocate(stream, MIB, 1024), cachette::bad_alloc, "a power of two up to 512");
    THROWS(memory.allocate(stream, MIB, 3), cachette::bad_alloc, "a power of two up to 512");
    THROWS(memory.allocate(stream, MIB, 0), cachette::bad_alloc, "a power of two up to 512");
    CHECK(allocated(memory) == 0);
    THROWS(cachette::memory_resource{"host:7"}, cachette::error, "7");
    THROWS((cachette::memory_resource{"host", "no_such_key:1"}), cachette::error, "no_such_key");
}

static void a_second_free_is_reported() {
    cachette::memory_resource memory{"host"};
    auto const stream = make_stream(memory);
    void *address = memory.allocate(stream, MIB);
    memory.deallocate(stream, address, MIB);
    char const *file = "second_free.txt";
    CHECK(std::freopen(file, "w", stderr) != nullptr);
    memory.deallocate(stream, address, MIB);
    CHECK(std::fflush(stderr) == 0);
    char text[200] = "";
    std::FILE *read = std::fopen(file, "r");
    CHECK(read != nullptr && std::fread(text, 1, sizeof text - 1, read) > 0);
    std::fclose(read);
    std::remove(file);
    CHECK(std::string{text}.find("cachette: invalid device pointer") == 0);
    CHECK(allocated(memory) == 0);
}

static void a_borrowed_allocator_stays_open() {
    cachette_allocator_t *allocator = nullptr;
    CHECK(cachette_open("host", "", &allocator) == CACHETTE_OK);
    {
        auto memory = cachette::memory_resource::borrow(allocator);
        memory.deallocate_sync(memory.allocate_sync(MIB), MIB);
    }
    std::uint64_t bytes = 1;
    CHECK(cachette_allocated_bytes(allocator, &bytes) == CACHETTE_OK && bytes == 0);
    CHECK(cachette_close(allocator) == CACHETTE_OK);
}

static void the_shared_allocator_serves_several_resources() {
    CHECK(cachette_start("host", "") == CACHETTE_OK);
    auto left = cachette::memory_resource::shared(0), right = cachette::memory_resource::shared(0);
    auto const stream = make_stream(left);
    void *address = left.allocate(stream, MIB);
    CHECK(allocated(right) == MIB);
    left.deallocate(stream, address, MIB);
    CHECK(right.allocate(stream, MIB) == address);
    right.deallocate(stream, address, MIB);
    THROWS(cachette::memory_resource::shared(7), cachette::error, "7");
}

static void threads_share_a_resource() {
    cachette::memory_resource memory{"host"};
    std::vector<std::thread> threads;
    for (int number = 1; number <= 4; number++) {
        threads.emplace_back([number, memory]() mutable {
            auto const stream = make_stream(memory);
            for (std::size_t round = 1; round <= 100; round++) {
                std::size_t const bytes = round * 997;
                void *own = memory.allocate(stream, bytes);
                void *sync = memory.allocate_sync(bytes);
                fill(memory, own, number, bytes, stream);
                fill(memory, sync, number + 100, bytes, stream);
                CHECK(holds(memory, own, number, bytes, stream));
                CHECK(holds(memory, sync, number + 100, bytes, stream));
                memory.deallocate(stream, own, bytes);
                memory.deallocate_sync(sync, bytes);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(allocated(memory) == 0);
    CHECK(cachette_check(memory.allocator()) == CACHETTE_OK);
}

int main() {
    memory_is_reused_on_its_stream();
    copies_are_equal_and_share_the_allocator();
    any_resource_keeps_it_alive();
    memory_without_a_stream_is_for_all();
    nothing_is_asked_for_and_nothing_freed();
    refusals_say_what_to_do();
    a_borrowed_allocator_stays_open();
    the_shared_allocator_serves_several_resources();
    threads_share_a_resource();
    a_second_free_is_reported();
}
