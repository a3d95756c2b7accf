// Cachette as a memory resource of CCCL (`cuda::mr`), for containers of CCCL, Thrust and RMM.
//
//   cachette::memory_resource memory{"cuda:0"};
//   cuda::mr::any_resource<cuda::mr::device_accessible> any{memory};
//
// Needs C++17, CCCL 3.2 or newer, and libcachette. `cachette/rmm.hpp` has the form with RMM's exceptions.
//
// Streams: an allocation belongs to the stream that is passed. A free with another stream takes effect after the work
// that is in that stream. A stream must live until the last copy of the resource is gone.
#ifndef CACHETTE_MEMORY_RESOURCE_HPP
#define CACHETTE_MEMORY_RESOURCE_HPP

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#if !defined(CCCL_VERSION) || CCCL_VERSION < 3002000
#error "cachette/memory_resource.hpp needs CCCL 3.2, which comes with CUDA 13.2; put newer headers before the toolkit's"
#endif

#include <cachette.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace cachette {

/// A memory resource over an allocator of Cachette.
///
/// Copies share the allocator, which is closed with the last of them. All functions are thread-safe.
class memory_resource {
public:
    /// Every allocation has this alignment, and larger ones are refused.
    static constexpr std::size_t alignment = 512;

    /// Opens a device and creates an allocator for it. The arguments are those of `cachette_open`.
    explicit memory_resource(char const *device = nullptr, char const *config = nullptr)
        : memory_resource{cachette::allocator{device, config}} {}

    /// Uses an allocator together with other parts of the program.
    explicit memory_resource(cachette::allocator gpu) : state_{std::make_shared<state>(std::move(gpu))} {}

    /// Uses an allocator that the caller closes after the last copy of this resource is gone.
    [[nodiscard]] static memory_resource borrow(cachette_allocator_t *handle) {
        return memory_resource{cachette::allocator::borrow(handle)};
    }

    /// Uses the allocator of a device that PyTorch, CuPy and other libraries of this process share.
    [[nodiscard]] static memory_resource shared(std::uint32_t device) {
        return memory_resource{cachette::allocator::shared(device)};
    }

    /// Allocates memory for work in `stream`. Throws `out_of_memory`, or `bad_alloc` for another reason.
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment) {
        return allocate_on(stream.get(), bytes, align);
    }

    /// Frees memory after the work that is in `stream`.
    void deallocate(cuda::stream_ref stream, void *address, std::size_t /*bytes*/,
                    std::size_t /*align*/ = alignment) noexcept {
        // Nothing is recorded if the memory was allocated for this stream.
        detail::report(cachette_record_stream(allocator(), address, stream.get()));
        state_->gpu.deallocate(address);
    }

    /// Allocates memory that every stream may use at once.
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = alignment) {
        // Only such memory is in this stream's heap, and the wait is short: no work is queued there.
        void *address = allocate_on(state_->sync.get(), bytes, align);
        try {
            state_->sync.synchronize();
        } catch (error const &) {
            state_->gpu.deallocate(address);
            throw;
        }
        return address;
    }

    /// Frees memory that no stream uses any more.
    void deallocate_sync(void *address, std::size_t /*bytes*/, std::size_t /*align*/ = alignment) noexcept {
        state_->gpu.deallocate(address);
    }

    /// The allocator beneath, for statistics, limits, snapshots and the other calls of `cachette.h`.
    [[nodiscard]] cachette_allocator_t *allocator() const noexcept { return state_->gpu.get(); }

    /// Whether memory of one can be freed by the other.
    [[nodiscard]] bool operator==(memory_resource const &other) const noexcept {
        return allocator() == other.allocator();
    }
    [[nodiscard]] bool operator!=(memory_resource const &other) const noexcept { return !(*this == other); }

    friend constexpr void get_property(memory_resource const &, cuda::mr::device_accessible) noexcept {}

private:
    struct state {
        explicit state(cachette::allocator given) : gpu{std::move(given)}, sync{gpu} {}

        cachette::allocator gpu;
        /// For memory without a stream.
        stream sync;
    };

    void *allocate_on(void *stream, std::size_t bytes, std::size_t align) {
        if (align == 0 || (align & (align - 1)) != 0 || align > alignment) {
            throw bad_alloc{"memory has an alignment of 512 bytes, and " + std::to_string(align) +
                            " were asked for; ask for a power of two up to 512"};
        }
        return state_->gpu.allocate(bytes, stream);
    }

    std::shared_ptr<state> state_;
};

static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::synchronous_resource_with<memory_resource, cuda::mr::device_accessible>);

} // namespace cachette

#endif
