// The resource in the hands of RMM: its table of resources, its adaptors and its exceptions, on host memory.
#include "cccl.hpp"

#include <cachette/rmm.hpp>

#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

static_assert(cuda::mr::resource_with<cachette::rmm_resource, cuda::mr::device_accessible>);

static void it_is_the_resource_of_a_device() {
    cachette::rmm_resource memory{"host"};
    auto const stream = make_stream(memory);
    rmm::cuda_device_id const device{0};
    auto const before = rmm::mr::set_per_device_resource(device, memory);
    auto current = rmm::mr::get_per_device_resource_ref(device);
    void *address = current.allocate(stream, MIB, 256);
    CHECK(allocated(memory) == MIB);
    current.deallocate(stream, address, MIB, 256);
    CHECK(allocated(memory) == 0);
    auto const after = rmm::mr::set_per_device_resource(device, before);
    CHECK((after == cuda::mr::any_resource<cuda::mr::device_accessible>{memory}));
}

static void adaptors_wrap_it() {
    cachette::rmm_resource memory{"host"};
    auto const stream = make_stream(memory);
    rmm::mr::statistics_resource_adaptor counted{memory};
    rmm::mr::limiting_resource_adaptor limited{counted, 4 * MIB};
    void *address = limited.allocate(stream, 3 * MIB, 256);
    CHECK(counted.get_bytes_counter().value == static_cast<std::int64_t>(3 * MIB));
    THROWS(limited.allocate(stream, 3 * MIB, 256), rmm::out_of_memory, "");
    CHECK(allocated(memory) == 3 * MIB);
    limited.deallocate(stream, address, 3 * MIB, 256);
    CHECK(allocated(memory) == 0);
}

static void failures_are_exceptions_of_rmm() {
    cachette::rmm_resource memory{"host"};
    auto const stream = make_stream(memory);
    CHECK(cachette_set_memory_limit(memory.allocator(), 4 * MIB) == CACHETTE_OK);
    THROWS(memory.allocate(stream, 8 * MIB), rmm::out_of_memory, "limit");
    THROWS(memory.allocate_sync(8 * MIB), rmm::out_of_memory, "limit");
    THROWS(memory.allocate(stream, MIB, 4096), rmm::bad_alloc, "a power of two up to 512");
}

int main() {
    it_is_the_resource_of_a_device();
    adaptors_wrap_it();
    failures_are_exceptions_of_rmm();
}
