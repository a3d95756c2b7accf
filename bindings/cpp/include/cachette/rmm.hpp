// Cachette as a memory resource of RMM 26.06 or newer.
//
//   rmm::mr::set_current_device_resource(cachette::rmm_resource{"cuda:0"});
//
// Failures are RMM's exceptions, which its adaptors and its users catch.
#ifndef CACHETTE_RMM_HPP
#define CACHETTE_RMM_HPP

#include <cachette/memory_resource.hpp>

#include <rmm/error.hpp>

#include <cstddef>

namespace cachette {

/// A `memory_resource` that throws `rmm::out_of_memory` and `rmm::bad_alloc`.
class rmm_resource : public memory_resource {
public:
    using memory_resource::memory_resource;

    /// With the exceptions of RMM.
    explicit rmm_resource(memory_resource resource) : memory_resource{std::move(resource)} {}

    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment) {
        return translated([&] { return memory_resource::allocate(stream, bytes, align); });
    }

    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = alignment) {
        return translated([&] { return memory_resource::allocate_sync(bytes, align); });
    }

    friend constexpr void get_property(rmm_resource const &, cuda::mr::device_accessible) noexcept {}

private:
    template <class Function> static void *translated(Function function) {
        try {
            return function();
        } catch (out_of_memory const &failed) {
            throw rmm::out_of_memory{failed.what()};
        } catch (bad_alloc const &failed) {
            throw rmm::bad_alloc{failed.what()};
        } catch (error const &failed) {
            throw rmm::bad_alloc{failed.what()};
        }
    }
};

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::synchronous_resource_with<rmm_resource, cuda::mr::device_accessible>);

} // namespace cachette

#endif
