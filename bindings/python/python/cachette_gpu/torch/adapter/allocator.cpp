// Memory, and the installation.
#include "pinned.hpp"
#include <c10/core/impl/GPUTrace.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <atomic>
#include <limits>

namespace cachette {

#define CACHETTE_DEFINE(returns, name, arguments) Function<returns arguments> name;
CACHETTE_FUNCTIONS(CACHETTE_DEFINE)
#undef CACHETTE_DEFINE

namespace {

// Whether the profiler ever listened when memory was got; relaxed, since it stays so. Until then it is not asked when
// memory is freed: asking takes a quarter of the time of freeing.
std::atomic<bool> profiled{false};

// Tells the profiler that memory came (a positive number of bytes) or went.
void report(void* memory, int64_t bytes, int device) {
  Figures figures;
  cachette_adapter_stats(device, &figures);
  c10::reportMemoryUsageToProfiler(memory, bytes, figures.arrays[4][0][0], figures.arrays[5][0][0],
                                   c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
}

C10_NOINLINE void report_gain(void* memory) {
  if (!c10::memoryProfilingEnabled()) return;
  profiled.store(true, std::memory_order_relaxed);
  int device = 0;
  const auto bytes = static_cast<int64_t>(cachette_adapter_bytes(memory, &device));
  report(memory, bytes, device);
}

C10_NOINLINE void release_and_report(void* memory) {
  int device = 0;
  const auto bytes = static_cast<int64_t>(cachette_adapter_bytes(memory, &device));
  cachette_adapter_free.quietly(memory);
  if (bytes != 0 && c10::memoryProfilingEnabled()) report(memory, -bytes, device);
}

// If a tracker of this thread has failed after memory was got, the request fails.
C10_NOINLINE void give_up(void* memory) {
  if (!thrown::is_kept()) return;
  cachette_adapter_free.address(memory);
  thrown::throw_kept();
}

void* ask(size_t bytes, c10::DeviceIndex device, cudaStream_t stream) {
  thrown::begin();
  try {
    return cachette_torch_alloc.address(bytes, device, stream);
  } catch (...) {
    thrown::throw_kept();
    throw;
  }
}

// The handle of this thread's current stream. The stream itself would set and restore the current device for every
// answer, which takes as long as an allocation. Its handle never changes, so the last one is kept. The default stream,
// number 0, has no handle.
cudaStream_t current_stream(c10::DeviceIndex device) {
  struct Known {
    c10::StreamId stream;
    c10::DeviceIndex device;
    cudaStream_t handle;
  };
  const auto stream = c10::cuda::getCurrentCUDAStream(device);
  if (C10_LIKELY(stream.id() == 0)) return nullptr;
  thread_local Known known{0, -1, nullptr};
  if (C10_UNLIKELY(known.device != device || known.stream != stream.id()))
    known = {stream.id(), device, stream.stream()};
  return known.handle;
}

// Tells those who listen of memory that was got.
void* told(void* memory) {
  if (C10_UNLIKELY(thrown::is_any_kept())) give_up(memory);
  if (C10_UNLIKELY(c10::impl::GPUTrace::haveState))
    if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace())
      (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(memory));
  if (C10_UNLIKELY(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr)) report_gain(memory);
  return memory;
}

void* get(size_t bytes, c10::DeviceIndex device, cudaStream_t stream) {
  return told(ask(bytes, device, stream));
}

}  // namespace

void release(void* memory) {
  if (memory == nullptr) return;
  if (C10_UNLIKELY(c10::impl::GPUTrace::haveState))
    if (const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace())
      (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(memory));
  if (C10_UNLIKELY(profiled.load(std::memory_order_relaxed))) return release_and_report(memory);
  cachette_adapter_free.quietly(memory);
}

// With one device there is no need to ask which is current, which would take as long as the allocation.
c10::DeviceIndex Allocator::current_device() const {
  if (C10_LIKELY(devices_.load(std::memory_order_relaxed) == 1)) return 0;
  c10::DeviceIndex device = 0;
  const cudaError_t error = c10::cuda::GetDevice(&device);
  if (C10_UNLIKELY(error != cudaSuccess)) C10_CUDA_CHECK(error);
  return device;
}

c10::DataPtr Allocator::allocate(size_t bytes) {
  c10::DeviceIndex device = current_device();
  void* memory = bytes == 0 ? nullptr : get(bytes, device, current_stream(device));
  return {memory, memory, &release, c10::Device(c10::DeviceType::CUDA, device)};
}

#if CACHETTE_TORCH_FROM(2, 13)
c10::DataPtr Allocator::allocateWithAddress(size_t bytes, void* address) {
  c10::DeviceIndex device = current_device();
  if (bytes != 0) {
    thrown::begin();
    try {
      cachette_adapter_allocate_at.address(address, bytes, device, current_stream(device));
    } catch (...) {
      thrown::throw_kept();
      throw;
    }
    told(address);
  }
  void* memory = bytes == 0 ? nullptr : address;
  return {memory, memory, &release, c10::Device(c10::DeviceType::CUDA, device)};
}
#endif

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return &release;
}

void Allocator::copy_data(void* to, const void* from, size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void* Allocator::raw_alloc(size_t bytes) {
  if (bytes == 0) return nullptr;
  c10::DeviceIndex device = current_device();
  return get(bytes, device, current_stream(device));
}

void* Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  return bytes == 0 ? nullptr : get(bytes, current_device(), stream);
}

void Allocator::raw_delete(void* memory) {
  release(memory);
}

void Allocator::init(int devices) {
  devices_ = devices;
}

bool Allocator::initialized() {
  return devices_ >= 0;
}

void Allocator::enable(bool caches) {
  cachette_adapter_set_caching(caches);
}

bool Allocator::isEnabled() const {
  return cachette_adapter_caches();
}

void* Allocator::getBaseAllocation(void* memory, size_t* bytes) {
  return cachette_torch_base_alloc(memory, bytes);
}

void Allocator::recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) {
  // Memory of others, such as of another process, is none of our affair.
  if (memory.get() != nullptr && memory.get_deleter() == &release)
    cachette_torch_record_stream(memory.get(), stream.stream());
}

void Allocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex owner) {
  cachette_adapter_allow_peer(owner, device);
}

cudaError_t Allocator::memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                   cudaStream_t stream, bool peers) {
  // Elastic memory can be copied between devices that are not peers only by the call that names both.
  if (peers || to_device == from_device)
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

std::string Allocator::name() {
  return "cachette";
}

// Whatever PyTorch has registered that can free memory, such as tensors that other processes have let go of.
static bool relieve() noexcept {
  bool freed = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
    try {
      freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    } catch (...) {
      // The others may do better.
    }
  }
  return freed;
}

}  // namespace cachette

// Puts the class in the place of PyTorch's allocator; null, or why that did not work. `library` is the file of Cachette's
// functions, which is loaded already.
extern "C" __attribute__((visibility("default"))) const char* cachette_adapter_install(const char* library) {
  using namespace cachette;
  static std::string why;
  try {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
#define CACHETTE_FIND(returns, name, arguments)                                                   \
  name.address = reinterpret_cast<returns(*) arguments>(dlsym(handle, #name));                    \
  if (name.address == nullptr) throw std::runtime_error(std::string(library) + " has no function " #name);
    CACHETTE_FUNCTIONS(CACHETTE_FIND)
#undef CACHETTE_FIND
    if (cachette_adapter_version() != interface_version)
      throw std::runtime_error("the class and the library are of different versions of Cachette");
    if (torch_cuda::get()->initialized()) throw std::runtime_error("PyTorch's allocator is in use already");
    // It lives as long as the process: destructors may free tensors at its very end.
    static auto* allocator = new Allocator;
    torch_cuda::allocator.store(allocator);
    // From 2.12 on PyTorch registers its own with a priority, and one of a lower priority is ignored.
    c10::SetAllocator(c10::DeviceType::CUDA, allocator, std::numeric_limits<uint8_t>::max());
    cachette_adapter_on_pressure(&relieve);
    follow_settings();
    if (cachette_adapter_pins()) install_pinned();
    return nullptr;
  } catch (const std::exception& error) {
    why = error.what();
    return why.c_str();
  }
}
