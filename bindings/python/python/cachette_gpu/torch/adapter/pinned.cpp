// Pinned memory.
#include "pinned.hpp"
#include <cstring>
#include <limits>

namespace cachette {
namespace {

// The context of memory is its address, by which it is found again. Destructors call it.
void unpin(void* memory) {
  if (memory != nullptr) cachette_adapter_unpin.quietly(memory);
}

c10::CachingAllocator::Stat stat(const int64_t (&figures)[4]) {
  c10::CachingAllocator::Stat result;
  result.current = figures[0];
  result.peak = figures[1];
  result.allocated = figures[2];
  result.freed = figures[3];
  return result;
}

c10::CachingAllocator::DurationStat time(const int64_t (&figures)[4]) {
  c10::CachingAllocator::DurationStat result;
  result.total = figures[0];
  result.max = figures[1];
  result.min = figures[2];
  result.count = figures[3];
  return result;
}

// The device of the first request, after which the driver is not asked again: one that is in use, as PyTorch chooses
// it, since a context would be made on another.
C10_NOINLINE int first_device() {
  c10::DeviceIndex device = 0;
  // Without a driver Cachette says why.
  if (c10::cuda::GetDevice(&device) != cudaSuccess) return 0;
  return c10::cuda::getDeviceIndexWithPrimaryContext().value_or(device);
}

// Relaxed: a thread that sees an older value asks once more.
std::atomic<bool> is_chosen{false};

}  // namespace

c10::DataPtr HostAllocator::allocate(size_t bytes) {
  void* memory = nullptr;
  if (bytes != 0) {
    const bool chosen = is_chosen.load(std::memory_order_relaxed);
    memory = cachette_adapter_pin(bytes, C10_LIKELY(chosen) ? 0 : first_device());
    if (C10_UNLIKELY(!chosen)) is_chosen.store(true, std::memory_order_relaxed);
  }
  return {memory, memory, &unpin, c10::Device(c10::DeviceType::CPU)};
}

c10::DeleterFnPtr HostAllocator::raw_deleter() const {
  return &unpin;
}

void HostAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  std::memcpy(to, from, bytes);
}

// A view has the context of its memory, and memory that a library wraps has its address.
bool HostAllocator::record_event(void* memory, void* context, c10::Stream stream) {
  // The default stream, number 0, has no handle.
  const Stream handle = stream.id() == 0 ? nullptr : c10::cuda::CUDAStream(stream).stream();
  return cachette_adapter_pinned_record(context, stream.device_index(), handle) ||
         cachette_adapter_pinned_record(memory, stream.device_index(), handle);
}

void HostAllocator::empty_cache() {
  cachette_adapter_pinned_empty();
}

at::HostStats HostAllocator::get_stats() {
  PinnedFigures figures;
  cachette_adapter_pinned_stats(&figures);
  at::HostStats stats;
  stats.active_requests = stat(figures.stats[0]);
  stats.active_bytes = stat(figures.stats[1]);
  stats.allocations = stat(figures.stats[2]);
  stats.allocated_bytes = stat(figures.stats[3]);
  stats.host_alloc_time = time(figures.times[0]);
  stats.host_free_time = time(figures.times[1]);
  stats.num_host_alloc = figures.counts[0];
  stats.num_host_free = figures.counts[1];
  return stats;
}

void HostAllocator::reset_accumulated_stats() {
  cachette_adapter_pinned_reset(false);
}

void HostAllocator::reset_peak_stats() {
  cachette_adapter_pinned_reset(true);
}

// Memory that captured work uses belongs to the graphs of the pool that serves the capture, which PyTorch begins and
// releases by the allocator of the device. Other memory that is allocated in a capture serves everyone, as before it.
void HostAllocator::begin_allocate_to_pool(c10::MempoolId_t, std::function<bool(c10::Stream)>) {}

void HostAllocator::end_allocate_to_pool(c10::MempoolId_t) {}

void HostAllocator::release_pool(c10::MempoolId_t) {}

void install_pinned() {
  // It lives as long as the process: destructors may free tensors at its very end.
  static auto* allocator = new HostAllocator;
  at::setHostAllocator(c10::DeviceType::CUDA, allocator, std::numeric_limits<uint8_t>::max());
}

}  // namespace cachette
