// Cachette in C++17: an allocator, streams, memory with an owner, and pinned memory for `std::pmr`.
//
//   cachette::allocator gpu{"cuda:0"};
//   cachette::stream stream{gpu};
//   std::vector<float> host(1 << 20, 1.0f);
//   cachette::unique_memory<float> memory{gpu, host.size(), stream};
//   memory.upload(host.data(), host.size());
//   kernel<<<blocks, threads, 0, cudaStream_t(stream.get())>>>(memory.data(), memory.size());
//   memory.download(host.data(), host.size());
//   stream.synchronize();
//
// Needs C++17 and libcachette, and no header of a vendor. A stream is a `void *`, to which `cudaStream_t` and
// `hipStream_t` convert; NULL is the default stream. Failures are exceptions, and their texts say what to do.
// `get()` returns the handle for every other call of `cachette.h`.
#ifndef CACHETTE_HPP
#define CACHETTE_HPP

#include <cachette.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
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

/// Throws `error` if a call of `cachette.h` failed.
inline void check(cachette_status_t status) {
    if (status != CACHETTE_OK) {
        throw error{status, cachette_last_error()};
    }
}

namespace detail {

/// Throws the exception of a request for memory that failed.
inline void check_request(cachette_status_t status) {
    switch (status) {
    case CACHETTE_OK:
        return;
    case CACHETTE_ERROR_OUT_OF_MEMORY:
    case CACHETTE_ERROR_TOO_LARGE:
        throw out_of_memory{cachette_last_error()};
    default:
        throw bad_alloc{cachette_last_error()};
    }
}

/// A free cannot throw. What fails here is an error of the program, such as a second free.
inline void report(cachette_status_t status) noexcept {
    if (status != CACHETTE_OK) {
        std::fprintf(stderr, "cachette: %s\n", cachette_last_error());
    }
}

} // namespace detail

/// A caching allocator for one device.
///
/// Copies share the allocator, which is closed with the last of them. All functions are thread-safe.
class allocator {
public:
    /// Opens a device and creates an allocator for it. The arguments are those of `cachette_open`.
    explicit allocator(char const *device = nullptr, char const *config = nullptr) {
        cachette_allocator_t *opened = nullptr;
        check(cachette_open(device, config, &opened));
        handle_.reset(opened, cachette_close);
    }

    /// Uses an allocator that the caller closes after the last copy of this one is gone.
    [[nodiscard]] static allocator borrow(cachette_allocator_t *handle) {
        return allocator{std::shared_ptr<cachette_allocator_t>{handle, [](cachette_allocator_t *) {}}};
    }

    /// Uses the allocator of a device that PyTorch, CuPy and other libraries of this process share.
    [[nodiscard]] static allocator shared(std::uint32_t device) {
        cachette_allocator_t *opened = nullptr;
        check(cachette_open_shared(device, &opened));
        return allocator{std::shared_ptr<cachette_allocator_t>{opened, cachette_close}};
    }

    /// Allocates memory for work in `stream`. Throws `out_of_memory`, or `bad_alloc` for another reason.
    [[nodiscard]] void *allocate(std::size_t bytes, void *stream) {
        void *address = nullptr;
        detail::check_request(cachette_allocate(get(), bytes, stream, &address));
        return address;
    }

    /// Frees memory. The next request of its stream may get it at once.
    void deallocate(void *address) noexcept { detail::report(cachette_free(get(), address)); }

    /// Records that work in `stream` uses the memory too, so that it is reused only after that work.
    void record_stream(void *address, void *stream) { check(cachette_record_stream(get(), address, stream)); }

    /// Releases every unused segment to the device, and returns their bytes.
    std::uint64_t empty_cache() {
        std::uint64_t bytes = 0;
        check(cachette_empty_cache(get(), &bytes));
        return bytes;
    }

    [[nodiscard]] cachette_stats_t stats() const {
        cachette_stats_t found{};
        check(cachette_stats(get(), &found, sizeof found));
        return found;
    }

    /// The handle, for the other calls of `cachette.h`.
    [[nodiscard]] cachette_allocator_t *get() const noexcept { return handle_.get(); }

    /// Whether memory of one can be freed by the other.
    [[nodiscard]] bool operator==(allocator const &other) const noexcept { return get() == other.get(); }
    [[nodiscard]] bool operator!=(allocator const &other) const noexcept { return !(*this == other); }

private:
    explicit allocator(std::shared_ptr<cachette_allocator_t> handle) : handle_{std::move(handle)} {}

    std::shared_ptr<cachette_allocator_t> handle_;
};

/// A stream that does not wait for the default stream. The destructor waits for its work.
class stream {
public:
    explicit stream(allocator gpu) : allocator_{std::move(gpu)} {
        check(cachette_stream_create(allocator_.get(), &handle_));
    }
    stream(stream &&other) noexcept
        : allocator_{other.allocator_}, handle_{std::exchange(other.handle_, nullptr)} {}
    stream &operator=(stream &&other) noexcept {
        std::swap(allocator_, other.allocator_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~stream() { detail::report(cachette_stream_destroy(allocator_.get(), handle_)); }

    /// Waits for the work that is queued.
    void synchronize() const { check(cachette_stream_synchronize(allocator_.get(), handle_)); }

    /// The vendor's handle: a `CUstream`, `cudaStream_t` or `hipStream_t`.
    [[nodiscard]] void *get() const noexcept { return handle_; }

private:
    allocator allocator_;
    void *handle_ = nullptr;
};

/// Device memory with one owner: `size` elements of `T`, in the order of one stream.
///
/// The destructor frees it, and the next request of its stream may get it at once. Elements are not initialised.
template <class T = std::byte> class unique_memory {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds types that can be copied byte by byte");

public:
    /// Memory of no element.
    unique_memory() noexcept = default;

    /// Allocates memory for work in `stream`, which lives as long as the allocator.
    unique_memory(allocator gpu, std::size_t size, void *stream)
        : gpu_{std::move(gpu)}, stream_{stream}, size_{size} {
        if (size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw out_of_memory{std::to_string(size) + " elements of " + std::to_string(sizeof(T)) +
                                " bytes are more than any device has; ask for fewer"};
        }
        data_ = static_cast<T *>(gpu_->allocate(size_bytes(), stream));
    }
    unique_memory(allocator gpu, std::size_t size, cachette::stream const &stream)
        : unique_memory{std::move(gpu), size, stream.get()} {}

    unique_memory(unique_memory &&other) noexcept { swap(other); }
    unique_memory &operator=(unique_memory &&other) noexcept {
        unique_memory{std::move(other)}.swap(*this);
        return *this;
    }
    ~unique_memory() {
        if (data_ != nullptr) {
            gpu_->deallocate(data_);
        }
    }

    /// The address on the device, which the host must not read.
    [[nodiscard]] T *data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    /// Records that work in `stream` uses the memory too, so that it is reused only after that work.
    void record_stream(void *stream) {
        if (data_ != nullptr) {
            gpu_->record_stream(data_, stream);
        }
    }

    /// Queues a copy of `count` elements from the host to `first` and those after it. The host's elements must stay
    /// unchanged until the stream has passed the copy.
    void upload(T const *from, std::size_t count, std::size_t first = 0) {
        if (must_copy(count, first)) {
            check(cachette_upload(gpu_->get(), data_ + first, from, count * sizeof(T), stream_));
        }
    }

    /// Queues a copy of `count` elements, from `first` on, to the host. The host's elements must not be used until the
    /// stream has passed the copy.
    void download(T *to, std::size_t count, std::size_t first = 0) const {
        if (must_copy(count, first)) {
            check(cachette_download(gpu_->get(), to, data_ + first, count * sizeof(T), stream_));
        }
    }

    /// Queues a fill of all bytes.
    void fill(std::uint8_t byte) {
        if (must_copy(size_, 0)) {
            check(cachette_fill(gpu_->get(), data_, byte, size_bytes(), stream_));
        }
    }

    /// Gives the memory up: the caller frees the address with `allocator::deallocate`.
    [[nodiscard]] T *release() noexcept {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

    void swap(unique_memory &other) noexcept {
        std::swap(gpu_, other.gpu_);
        std::swap(stream_, other.stream_);
        std::swap(size_, other.size_);
        std::swap(data_, other.data_);
    }

private:
    /// Whether there is something to copy; throws if it is not all inside the memory.
    [[nodiscard]] bool must_copy(std::size_t count, std::size_t first) const {
        if (first > size_ || count > size_ - first) {
            throw std::out_of_range{"elements " + std::to_string(first) + " to " + std::to_string(first) + " + " +
                                    std::to_string(count) + " are not all in memory of " + std::to_string(size_)};
        }
        return count != 0;
    }

    std::optional<allocator> gpu_;
    void *stream_ = nullptr;
    std::size_t size_ = 0;
    T *data_ = nullptr;
};

/// Pinned host memory for containers of `std::pmr`. Copies between it and the device run asynchronously.
///
/// A container must not be destroyed or grow while a copy uses its memory: wait for the stream first.
class pinned_resource final : public std::pmr::memory_resource {
public:
    /// Blocks are aligned to this, and larger alignments are refused.
    static constexpr std::size_t alignment = 64;

    explicit pinned_resource(allocator gpu) noexcept : allocator_{std::move(gpu)} {}

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        if (align > alignment) {
            throw bad_alloc{"pinned memory has an alignment of 64 bytes, and " + std::to_string(align) +
                            " were asked for; ask for less"};
        }
        void *address = nullptr;
        // A request for no byte has an address too.
        detail::check_request(cachette_pinned_allocate(allocator_.get(), bytes == 0 ? 1 : bytes, &address));
        return address;
    }

    void do_deallocate(void *address, std::size_t /*bytes*/, std::size_t /*align*/) override {
        detail::report(cachette_pinned_free(allocator_.get(), address));
    }

    [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const &other) const noexcept override {
        auto const *same = dynamic_cast<pinned_resource const *>(&other);
        return same != nullptr && same->allocator_ == allocator_;
    }

    allocator allocator_;
};

} // namespace cachette

#endif
