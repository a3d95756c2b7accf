// Cachette's pinned memory as PyTorch's host allocator.
#pragma once
#include "allocator.hpp"
#include <ATen/core/CachingHostAllocator.h>

namespace cachette {

class HostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  bool record_event(void* memory, void* context, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;
  void begin_allocate_to_pool(c10::MempoolId_t pool, std::function<bool(c10::Stream)> filter) override;
  void end_allocate_to_pool(c10::MempoolId_t pool) override;
  void release_pool(c10::MempoolId_t pool) override;
};

// Puts it in the place of PyTorch's own.
void install_pinned();

}  // namespace cachette
