// Cachette as a class of PyTorch's own kind, in the place of the one that comes with it.
#pragma once
// First, since it refuses what PyTorch's headers would stumble over.
#include "interface.hpp"
#include "vendor.hpp"
#include <atomic>

namespace cachette {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

// Frees memory. All memory of ours has this for its deleter, and is known by it.
void release(void* memory);

inline PoolId of(const c10::MempoolId_t& id) {
  return {id.first, id.second};
}

// Takes bytes that are told, into a string.
inline void write(User string, const uint8_t* start, size_t bytes) {
  static_cast<std::string*>(string)->assign(reinterpret_cast<const char*>(start), bytes);
}

// The context that PyTorch captured for a stack; none for zero.
std::shared_ptr<c10::GatheredContext> context_of(uint32_t stack);

// Applies the settings that the program changes from now on, in C++ too.
void follow_settings();

class Allocator final : public torch_cuda::CUDAAllocator {
 public:
  // allocator.cpp
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* memory) override;
  void init(int devices) override;
  bool initialized() override;
  void enable(bool caches) override;
  bool isEnabled() const override;
  void* getBaseAllocation(void* memory, size_t* bytes) override;
  void recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex owner) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool peers) override;
  std::string name() override;

  // figures.cpp
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  std::vector<torch_cuda::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
  torch_cuda::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override;
  void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override;

  // pools.cpp
  void emptyCache(c10::MempoolId_t pool) override;
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<torch_cuda::CUDAAllocator> source) override;
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool on) override;
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                 c10::MempoolId_t pool) override;
  torch_cuda::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                     std::shared_ptr<torch_cuda::AllocatorState> state) override;

  // processes.cpp
  torch_cuda::ShareableHandle shareIpcHandle(void* memory) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // watching.cpp
  bool isHistoryEnabled() override;
  void recordHistory(bool on, torch_cuda::CreateContextFn context, size_t entries, torch_cuda::RecordContext when,
                     bool clear, const std::vector<std::string>& skip) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& words) override;
  void pushCompileContext(std::string& words) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& words) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override;
#if CACHETTE_TORCH_FROM(2, 12)
  void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override;
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* memory) override;
#endif
#if CACHETTE_TORCH_FROM(2, 13)
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override;  // allocator.cpp
#endif
#if CACHETTE_TORCH_FROM(2, 14)
  bool supportsUserMetadata() override;
  void annotateMemory(const void* memory, const std::string& words) override;
#endif

 private:
  c10::DeviceIndex current_device() const;

  // How many there are; negative until PyTorch says so.
  std::atomic<int> devices_{-1};
};

}  // namespace cachette
