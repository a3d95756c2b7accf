// Memory that several processes use.
#include "allocator.hpp"

namespace cachette {

torch_cuda::ShareableHandle Allocator::shareIpcHandle(void* memory) {
  torch_cuda::ShareableHandle result{0, {}};
  cachette_adapter_share(memory, write, &result.handle);
  return result;
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  void* memory = nullptr;
  const auto* bytes = reinterpret_cast<const uint8_t*>(handle.data());
  Opened* opened = cachette_adapter_open_shared(current_device(), bytes, handle.size(), &memory);
  return {memory, [opened](void*) { cachette_adapter_close_shared.quietly(opened); }};
}

}  // namespace cachette
