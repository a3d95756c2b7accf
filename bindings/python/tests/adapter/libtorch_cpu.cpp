// What PyTorch's library of that name does with host allocators.
#include <ATen/core/CachingHostAllocator.h>

namespace at {

static HostAllocator* allocator = nullptr;
static uint8_t highest = 0;

void setHostAllocator(DeviceType, HostAllocator* another, uint8_t priority) {
  if (priority < highest) return;
  allocator = another;
  highest = priority;
}

HostAllocator* getHostAllocator(DeviceType) {
  return allocator;
}

}  // namespace at
