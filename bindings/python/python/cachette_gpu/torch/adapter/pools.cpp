// Pools of users and of captures, and their saved states.
#include "allocator.hpp"

namespace cachette {
namespace {

using Source = std::shared_ptr<torch_cuda::CUDAAllocator>;

void* source_allocate(User user, uint64_t bytes, int device, Stream stream) noexcept {
  try {
    c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    return (*static_cast<Source*>(user))->raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  } catch (...) {
    return nullptr;
  }
}

void source_free(User user, void* memory) noexcept {
  try {
    (*static_cast<Source*>(user))->raw_delete(memory);
  } catch (...) {
    // The error cannot be returned; the segment is lost.
  }
}

void source_close(User user) noexcept {
  delete static_cast<Source*>(user);
}

// What PyTorch holds for a saved state.
struct State final : torch_cuda::AllocatorState {
  explicit State(Checkpoint* saved) : checkpoint(saved) {}
  ~State() override { cachette_adapter_drop_checkpoint.quietly(checkpoint); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  Checkpoint* checkpoint;
};

// What restoring a state has changed so far.
struct Changes {
  torch_cuda::CheckpointDelta delta;
  c10::Device device;
};

}  // namespace

void Allocator::emptyCache(c10::MempoolId_t pool) {
  if (pool.first == 0 && pool.second == 0)
    cachette_torch_reset();
  else
    cachette_adapter_empty_pool(of(pool));
}

void Allocator::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                    std::function<bool(cudaStream_t)> filter) {
  std::function<bool(Stream)> leads;
  if (filter)
    leads = [filter = std::move(filter)](Stream stream) {
      try {
        return filter(static_cast<cudaStream_t>(stream));
      } catch (...) {
        thrown::keep();
        return false;
      }
    };
  cachette_torch_begin_allocate_to_pool(device, of(pool), &leads);
}

void Allocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  cachette_torch_end_allocate_to_pool(device, of(pool));
}

void Allocator::releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  cachette_torch_release_pool.quietly(device, of(pool));
}

int Allocator::getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return static_cast<int>(cachette_adapter_pool_uses(device, of(pool)));
}

void Allocator::createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                   std::shared_ptr<torch_cuda::CUDAAllocator> allocator) {
  if (!allocator) return cachette_adapter_use_pool(device, of(pool), nullptr);
  PoolSource source{source_allocate, source_free, source_close, new Source(std::move(allocator))};
  cachette_adapter_use_pool(device, of(pool), &source);
}

void Allocator::setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool on) {
  cachette_adapter_set_use_on_oom(device, of(pool), on);
}

void Allocator::setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) {
  cachette_adapter_set_no_split(device, of(pool));
}

bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                         const std::unordered_set<void*>& expected) {
  std::vector<uint64_t> addresses;
  for (void* memory : expected) addresses.push_back(reinterpret_cast<uint64_t>(memory));
  return cachette_adapter_pool_holds(device, of(pool), addresses.data(), addresses.size());
}

std::shared_ptr<torch_cuda::AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex device,
                                                                          c10::MempoolId_t pool) {
  return std::make_shared<State>(cachette_adapter_checkpoint(device, of(pool)));
}

torch_cuda::CheckpointDelta Allocator::setCheckpointPoolState(c10::DeviceIndex device,
                                                              std::shared_ptr<torch_cuda::AllocatorState> saved) {
  auto state = std::dynamic_pointer_cast<State>(saved);
  TORCH_CHECK(state, "this state was saved by another allocator than Cachette");
  Changes changes{{}, c10::Device(c10::DeviceType::CUDA, device)};
  auto freed = [](User user, void* memory) { static_cast<Changes*>(user)->delta.ptrs_freed.push_back(memory); };
  auto allocated = [](User user, void* memory) {
    auto* changes = static_cast<Changes*>(user);
    changes->delta.dataptrs_allocd.emplace_back(memory, memory, &release, changes->device);
  };
  cachette_adapter_restore(device, state->checkpoint, freed, allocated, &changes);
  return std::move(changes.delta);
}

}  // namespace cachette
