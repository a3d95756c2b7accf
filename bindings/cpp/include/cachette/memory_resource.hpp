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

#include <cachette.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace cachette {

/// A call of the library failed. `what` says what happened, and what to do about it.
class error : public std::runtime_error {
public:
    error(cachette_status_t status, char const *text) : std::runtime_error{text}, status_{status} {}

    [[nodiscard]] cachette_status_t status() const noexcept { return status_; }

private:
    cachette_status_t status_;
};

/// Memory cannot be allocated. `what` says why.
class bad_alloc : public std::bad_alloc {
public:
    // The text is shared, so that a copy of the exception does not throw.
    explicit bad_alloc(std::string text) : text_{std::make_shared<std::string>(std::move(text))} {}

    [[nodiscard]] char const *what() const noexcept override { return text_->c_str(); }

private:
    std::shared_ptr<std::string const> text_;
};

/// The device, or the limit of the allocator, has no more memory. `what` is the whole report.
class out_of_memory : public bad_alloc {
public:
    using bad_alloc::bad_alloc;
};

/// A memory resource over an allocator of Cachette.
///
/// Copies share the allocator, which is closed with the last of them. All functions are thread-safe.
class memory_resource {
public:
    /// Every allocation has this alignment, and larger ones are refused.
    static constexpr std::size_t alignment = 512;

    /// Opens a device and creates an allocator for it. The arguments are those of `cachette_open`.
    explicit memory_resource(char const *device = nullptr, char const *config = nullptr)
        : memory_resource{open(device, config), true} {}

    /// Uses an allocator that the caller closes after the last copy of this resource is gone.
    [[nodiscard]] static memory_resource borrow(cachette_allocator_t *allocator) {
        return memory_resource{allocator, false};
    }

    /// Uses the allocator of a device that PyTorch, CuPy and other libraries of this process share.
    [[nodiscard]] static memory_resource shared(std::uint32_t device) {
        cachette_allocator_t *allocator = nullptr;
        if (auto const status = cachette_open_shared(device, &allocator)) {
            throw error{status, cachette_last_error()};
        }
        return memory_resource{allocator, true};
    }

    /// Allocates memory for work in `stream`. Throws `out_of_memory`, or `bad_alloc` for another reason.
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment) {
        return allocate_on(stream.get(), bytes, align);
    }

    /// Frees memory after the work that is in `stream`.
    void deallocate(cuda::stream_ref stream, void *address, std::size_t /*bytes*/,
                    std::size_t /*align*/ = alignment) noexcept {
        // Nothing is recorded if the memory was allocated for this stream.
        report(cachette_record_stream(state_->allocator, address, stream.get()));
        report(cachette_free(state_->allocator, address));
    }

    /// Allocates memory that every stream may use at once.
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t align = alignment) {
        // Only such memory is in this stream's heap, and the wait is short: no work is queued there.
        void *address = allocate_on(state_->stream, bytes, align);
        if (auto const status = cachette_stream_synchronize(state_->allocator, state_->stream)) {
            error failed{status, cachette_last_error()};
            report(cachette_free(state_->allocator, address));
            throw failed;
        }
        return address;
    }

    /// Frees memory that no stream uses any more.
    void deallocate_sync(void *address, std::size_t /*bytes*/, std::size_t /*align*/ = alignment) noexcept {
        report(cachette_free(state_->allocator, address));
    }

    /// The allocator beneath, for statistics, limits, snapshots and the other calls of `cachette.h`.
    [[nodiscard]] cachette_allocator_t *allocator() const noexcept { return state_->allocator; }

    /// Whether memory of one can be freed by the other.
    [[nodiscard]] bool operator==(memory_resource const &other) const noexcept {
        return allocator() == other.allocator();
    }
    [[nodiscard]] bool operator!=(memory_resource const &other) const noexcept { return !(*this == other); }

    friend constexpr void get_property(memory_resource const &, cuda::mr::device_accessible) noexcept {}

private:
    struct state {
        cachette_allocator_t *allocator;
        /// For memory without a stream.
        void *stream = nullptr;
        bool owned;

        state(cachette_allocator_t *given, bool is_owned) : allocator{given}, owned{is_owned} {
            if (auto const status = cachette_stream_create(allocator, &stream)) {
                error failed{status, cachette_last_error()};
                if (owned) {
                    cachette_close(allocator);
                }
                throw failed;
            }
        }
        state(state const &) = delete;
        state &operator=(state const &) = delete;
        ~state() {
            cachette_stream_destroy(allocator, stream);
            if (owned) {
                cachette_close(allocator);
            }
        }
    };

    memory_resource(cachette_allocator_t *allocator, bool owned)
        : state_{std::make_shared<state>(allocator, owned)} {}

    static cachette_allocator_t *open(char const *device, char const *config) {
        cachette_allocator_t *allocator = nullptr;
        if (auto const status = cachette_open(device, config, &allocator)) {
            throw error{status, cachette_last_error()};
        }
        return allocator;
    }

    void *allocate_on(void *stream, std::size_t bytes, std::size_t align) {
        if (align == 0 || (align & (align - 1)) != 0 || align > alignment) {
            throw bad_alloc{"memory has an alignment of 512 bytes, and " + std::to_string(align) +
                            " were asked for; ask for a power of two up to 512"};
        }
        void *address = nullptr;
        switch (cachette_allocate(state_->allocator, bytes, stream, &address)) {
        case CACHETTE_OK:
            return address;
        case CACHETTE_ERROR_OUT_OF_MEMORY:
        case CACHETTE_ERROR_TOO_LARGE:
            throw out_of_memory{cachette_last_error()};
        default:
            throw bad_alloc{cachette_last_error()};
        }
    }

    /// A free cannot throw. What fails here is an error of the program, such as a second free.
    static void report(cachette_status_t status) noexcept {
        if (status != CACHETTE_OK) {
            std::fprintf(stderr, "cachette: %s\n", cachette_last_error());
        }
    }

    std::shared_ptr<state> state_;
};

static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::synchronous_resource_with<memory_resource, cuda::mr::device_accessible>);

} // namespace cachette

#endif
