// Statistics, limits and snapshots.
#include "allocator.hpp"

namespace cachette {
namespace {

c10::CachingAllocator::Stat stat(const int64_t (&figures)[4]) {
  c10::CachingAllocator::Stat result;
  result.current = figures[0];
  result.peak = figures[1];
  result.allocated = figures[2];
  result.freed = figures[3];
  return result;
}

torch_cuda::TraceEntry entry(const Event& event) {
  using Entry = torch_cuda::TraceEntry;
  Entry result(static_cast<Entry::Action>(event.action), static_cast<c10::DeviceIndex>(event.device), event.address,
               event.bytes, reinterpret_cast<void*>(event.stream), {event.pool.first, event.pool.second},
               c10::getApproximateTime(), context_of(event.stack),
               std::string(event.context.start, event.context.bytes));
  result.user_metadata_.assign(event.metadata.start, event.metadata.bytes);
  // In a snapshot it is in microseconds.
  if (event.time_us != 0) result.time_.t_ = event.time_us;
  return result;
}

void add_segment(User user, const Segment* segment) {
  torch_cuda::SegmentInfo info;
  info.device = static_cast<c10::DeviceIndex>(segment->device);
  // Ranks register the segments of a pool with NCCL in this order; a negative one would be refused.
  info.registration_counter = static_cast<int32_t>(segment->order & INT32_MAX);
  info.address = segment->address;
  info.total_size = segment->bytes;
  info.requested_size = segment->requested;
  info.allocated_size = segment->allocated;
  info.active_size = segment->active;
  info.stream = reinterpret_cast<void*>(segment->stream);
  info.is_large = segment->large;
  info.is_expandable = segment->elastic;
  info.context_when_allocated = context_of(segment->stack);
  info.owner_private_pool_id = {segment->pool.first, segment->pool.second};
  static_cast<torch_cuda::SnapshotInfo*>(user)->segments.push_back(std::move(info));
}

void add_block(User user, const Block* block) {
  torch_cuda::BlockInfo info;
  info.size = block->bytes;
  info.requested_size = block->requested;
  info.allocated = block->allocated;
  info.active = block->active;
  info.context_when_allocated = context_of(block->stack);
  static_cast<torch_cuda::SnapshotInfo*>(user)->segments.back().blocks.push_back(std::move(info));
}

void add_event(User user, const Event* event) {
  auto& traces = static_cast<torch_cuda::SnapshotInfo*>(user)->device_traces;
  if (traces.size() <= static_cast<size_t>(event->device)) traces.resize(event->device + 1);
  traces[event->device].push_back(entry(*event));
}

}  // namespace

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(c10::DeviceIndex device) {
  Figures figures;
  cachette_adapter_stats(device, &figures);
  c10::CachingDeviceAllocator::DeviceStats stats;
  c10::CachingAllocator::StatArray* const arrays[] = {
      &stats.allocation,      &stats.segment,        &stats.active,
      &stats.inactive_split,  &stats.allocated_bytes, &stats.reserved_bytes,
      &stats.active_bytes,    &stats.inactive_split_bytes, &stats.requested_bytes};
  for (size_t each = 0; each < 9; each++)
    for (size_t kind = 0; kind < 3; kind++) (*arrays[each])[kind] = stat(figures.arrays[each][kind]);
  stats.oversize_allocations = stat(figures.oversize[0]);
  stats.oversize_segments = stat(figures.oversize[1]);
  stats.num_alloc_retries = figures.counts[0];
  stats.num_ooms = figures.counts[1];
  stats.num_sync_all_streams = figures.counts[2];
  stats.num_device_alloc = figures.counts[3];
  stats.num_device_free = figures.counts[4];
  stats.max_split_size = figures.counts[5];
#if CACHETTE_TORCH_FROM(2, 12)
  stats.num_oom_rejections = figures.counts[6];
#endif
  return stats;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex device) {
  cachette_adapter_reset_totals(device);
}

void Allocator::resetPeakStats(c10::DeviceIndex device) {
  cachette_adapter_reset_peaks(device);
}

double Allocator::getMemoryFraction(c10::DeviceIndex device) {
  return cachette_adapter_memory_fraction(device);
}

void Allocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  cachette_torch_memory_fraction(fraction, device);
}

void Allocator::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  *largest = std::max<size_t>(*largest, cachette_adapter_largest(device));
}

std::vector<torch_cuda::StreamSegmentSize> Allocator::getExpandableSegmentSizes(c10::DeviceIndex device) {
  std::vector<torch_cuda::StreamSegmentSize> sizes;
  for (const auto& segment : snapshot({0, 0}, false).segments)
    if (segment.device == device && segment.is_expandable)
      sizes.emplace_back(static_cast<cudaStream_t>(segment.stream), !segment.is_large, segment.total_size);
  return sizes;
}

torch_cuda::SnapshotInfo Allocator::snapshot(c10::MempoolId_t pool, bool traces) {
  torch_cuda::SnapshotInfo result{};
  result.device_traces.resize(c10::cuda::device_count());
  Visitor visitor{add_segment, add_block, add_event, &result};
  cachette_adapter_snapshot(of(pool), traces, &visitor);
  return result;
}

void Allocator::attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) {
  // It is called as long as the process lives.
  auto tell = [](User user, const Event* event) noexcept {
    try {
      (*static_cast<torch_cuda::AllocatorTraceTracker*>(user))(entry(*event));
    } catch (...) {
      thrown::keep();
    }
  };
  cachette_adapter_track(tell, new torch_cuda::AllocatorTraceTracker(std::move(tracker)));
}

}  // namespace cachette
