// Uses Cachette's class as PyTorch does, by the virtual functions of PyTorch's own, over a device made of host memory.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>
#include <atomic>
#include <thread>

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

#define EXPECT(what) \
  if (!(what)) throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #what)

constexpr size_t MiB = 1 << 20;
constexpr c10::MempoolId_t pool{0, 7};

static torch_cuda::CUDAAllocator& cachette() {
  return *torch_cuda::get();
}

static int64_t held() {
  return cachette().getDeviceStats(0).allocated_bytes[0].current;
}

static void serves() {
  EXPECT(cachette().name() == "cachette" && !cachette().initialized());
  cachette().init(1);
  EXPECT(cachette().initialized() && cachette().isEnabled());
  EXPECT(c10::GetAllocator(c10::DeviceType::CUDA) == &cachette());
  void* memory = cachette().raw_alloc_with_stream(3 * MiB, nullptr);
  EXPECT(memory != nullptr && held() == 3 * MiB);
  size_t bytes = 0;
  EXPECT(cachette().getBaseAllocation(memory, &bytes) <= memory && bytes >= 3 * MiB);
  c10::DataPtr tensor(memory, memory, cachette().raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
  EXPECT(cachette().is_simple_data_ptr(tensor));
  tensor.clear();
  EXPECT(held() == 0);
  EXPECT(cachette().raw_alloc_with_stream(0, nullptr) == nullptr);
  cachette().raw_delete(nullptr);
  cachette().emptyCache({0, 0});
  EXPECT(cachette().getDeviceStats(0).reserved_bytes[0].current == 0);
}

static void tells() {
  // Both are called as long as the process lives.
  static int exhausted = 0, events = 0;
  cachette().attachOutOfMemoryObserver([](int64_t device, size_t, size_t, size_t) { exhausted += 1 + device; });
  cachette().attachAllocatorTraceTracker([](const torch_cuda::TraceEntry& entry) {
    events += entry.action_ == torch_cuda::TraceEntry::ALLOC && entry.size_ == 5 * MiB;
  });
  bool raised = false;
  try {
    cachette().raw_alloc_with_stream(size_t(1) << 45, nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    raised = std::string(error.what()).find("out of memory. Tried to allocate") != std::string::npos;
  }
  EXPECT(raised && exhausted == 1);
  cachette().recordHistory(true, nullptr, 100, torch_cuda::RecordContext::NEVER, true, {"free_completed"});
  EXPECT(cachette().isHistoryEnabled());
  cachette().setUserMetadata("forward");
  EXPECT(cachette().getUserMetadata() == "forward");
  std::string region = "region 1";
  cachette().pushCompileContext(region);
  cachette().recordAnnotation({{"name", "step"}, {"stage", "START"}});
  void* memory = cachette().raw_alloc_with_stream(5 * MiB, nullptr);
  cachette().popCompileContext();
  cachette().setUserMetadata("");
  EXPECT(events == 1);
  auto taken = cachette().snapshot({0, 0}, true);
  EXPECT(taken.segments.size() == 1 && taken.segments[0].allocated_size == 5 * MiB);
  EXPECT(taken.segments[0].blocks.size() >= 1 && taken.segments[0].blocks[0].allocated);
  auto& trace = taken.device_traces.at(0);
  auto found = std::find_if(trace.begin(), trace.end(), [&](auto& entry) { return entry.addr_ == size_t(memory); });
  EXPECT(found != trace.end() && found->user_metadata_ == "forward" && found->compile_context_ == "region 1");
  EXPECT(found->time_.t_ > 1'700'000'000'000'000);
  cachette().recordHistory(false, nullptr, 0, torch_cuda::RecordContext::NEVER, true, {});
  EXPECT(!cachette().isHistoryEnabled());
  cachette().raw_delete(memory);
}

static std::shared_ptr<c10::GatheredContext> context() {
  return std::make_shared<c10::GatheredContext>();
}

static void keeps_contexts() {
  auto begin = [](bool clear) {
    cachette().recordHistory(true, context, 100, torch_cuda::RecordContext::ALL, clear, {});
  };
  auto has_context = [](void* memory) {
    for (auto& segment : cachette().snapshot({0, 0}, false).segments) {
      size_t address = segment.address;
      for (auto& block : segment.blocks) {
        if (address == size_t(memory)) return block.context_when_allocated != nullptr;
        address += block.size;
      }
    }
    return false;
  };
  begin(true);
  void* memory = cachette().raw_alloc_with_stream(5 * MiB, nullptr);
  EXPECT(has_context(memory));
#if TORCH_VERSION_MINOR >= 12
  EXPECT(cachette().getContextForPointer(memory) != nullptr);
  EXPECT(cachette().getContextForPointer(&memory) == nullptr);
#endif
  begin(false);
  EXPECT(has_context(memory));
  begin(true);
  EXPECT(!has_context(memory));
  cachette().recordHistory(false, nullptr, 0, torch_cuda::RecordContext::NEVER, true, {});
  cachette().raw_delete(memory);
}

struct Late {
  ~Late() { cachette().raw_delete(memory); }
  void* memory = nullptr;
};

// Memory may be freed after what Cachette itself keeps for a thread is gone.
static void frees_at_the_end_of_a_thread() {
  cachette().recordHistory(true, context, 100, torch_cuda::RecordContext::ALL, true, {});
  std::thread([] {
    // It exists before the thread has called Cachette, and so it ends last.
    static thread_local Late late;
    late.memory = cachette().raw_alloc_with_stream(5 * MiB, nullptr);
  }).join();
  EXPECT(held() == 0);
  cachette().recordHistory(false, nullptr, 0, torch_cuda::RecordContext::NEVER, true, {});
}

// What an observer or a tracker throws on request.
struct Refusal {};

template <typename Call>
static bool refused(Call call) {
  try {
    call();
  } catch (const Refusal&) {
    return true;
  } catch (const c10::Error&) {
  }
  return false;
}

static void lets_through_what_is_thrown() {
  using Entry = torch_cuda::TraceEntry;
  static bool observer_throws = false, tracker_throws = false;
  static Entry::Action at = Entry::ALLOC;
  cachette().attachOutOfMemoryObserver([](int64_t, size_t, size_t, size_t) {
    if (observer_throws) throw Refusal();
  });
  cachette().attachAllocatorTraceTracker([](const Entry& entry) {
    if (tracker_throws && entry.action_ == at) throw Refusal();
  });
  auto too_much = [] { cachette().raw_alloc_with_stream(size_t(1) << 45, nullptr); };
  auto some = [] { cachette().raw_delete(cachette().raw_alloc_with_stream(5 * MiB, nullptr)); };

  observer_throws = true;
  EXPECT(refused(too_much) && refused(too_much));
  EXPECT(!refused(some));
  observer_throws = false;
  EXPECT(!refused(too_much));

  tracker_throws = true;
  EXPECT(refused(some) && held() == 0);
  at = Entry::OOM;
  EXPECT(refused(too_much) && !refused(some));
  at = Entry::SNAPSHOT;
  cachette().recordHistory(true, nullptr, 100, torch_cuda::RecordContext::NEVER, true, {});
  EXPECT(refused([] { cachette().snapshot({0, 0}, true); }));
  cachette().recordHistory(false, nullptr, 0, torch_cuda::RecordContext::NEVER, true, {});
  // Destructors free, so nothing may come out of it, nor of a later call.
  at = Entry::FREE_REQUESTED;
  EXPECT(!refused(some) && held() == 0);
  at = Entry::FREE_COMPLETED;
  EXPECT(!refused(some) && held() == 0);
  tracker_throws = false;
  EXPECT(!refused(some) && !refused(too_much));
}

// An exception that a thread keeps is of no concern to others.
static void lets_each_thread_have_its_own() {
  static thread_local bool throws = false;
  static std::atomic<int> lost{0};
  cachette().attachAllocatorTraceTracker([](const torch_cuda::TraceEntry& entry) {
    if (throws && entry.action_ == torch_cuda::TraceEntry::ALLOC) throw Refusal();
  });
  // Memory that a request gave up for the exception of another thread would soon serve two threads at once.
  auto work = [](int number) {
    throws = number == 0;
    for (int i = 0; i < 2000; i++) {
      const bool got = !refused([number] {
        auto* memory = static_cast<volatile int*>(cachette().raw_alloc_with_stream(512, nullptr));
        *memory = number;
        std::this_thread::yield();
        lost += *memory != number;
        cachette().raw_delete(const_cast<int*>(memory));
      });
      lost += got == throws;
    }
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; number++) threads.emplace_back(work, number);
  for (auto& thread : threads) thread.join();
  EXPECT(lost == 0 && held() == 0);
}

// Cachette's own threads call for nobody, so what is thrown there is told at once.
static void tells_what_is_thrown_elsewhere() {
  static std::atomic<bool> throws{false}, thrown{false};
  static const auto self = std::this_thread::get_id();
  cachette().attachAllocatorTraceTracker([](const torch_cuda::TraceEntry&) {
    if (!throws || std::this_thread::get_id() == self) return;
    thrown = true;
    throw std::runtime_error("a tracker on another thread");
  });
  void* memory = cachette().raw_alloc_with_stream(2 * MiB, nullptr);
  auto opened = cachette().getIpcDevPtr(cachette().shareIpcHandle(memory).handle);
  throws = true;
  cachette().raw_delete(memory);
  opened.reset();
  for (int i = 0; i < 500 && !thrown; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  throws = false;
  EXPECT(thrown);
}

// A library that does not go through the class may free memory, and a tracker of PyTorch throws. No request of PyTorch
// fails for that, and no destructor ends the process.
static void forgets_what_others_have_caused(const char* library) {
  static bool throws = false;
  cachette().attachAllocatorTraceTracker([](const torch_cuda::TraceEntry&) {
    if (throws) throw Refusal();
  });
  using Free = void (*)(void*, size_t, int, void*);
  auto free = reinterpret_cast<Free>(dlsym(dlopen(library, RTLD_NOW), "cachette_torch_free"));
  auto elsewhere = [&] {
    void* memory = cachette().raw_alloc_with_stream(5 * MiB, nullptr);
    throws = true;
    free(memory, 5 * MiB, 0, nullptr);
    throws = false;
  };
  void* memory = cachette().raw_alloc_with_stream(3 * MiB, nullptr);
  elsewhere();
  EXPECT(!refused([] { cachette().raw_delete(cachette().raw_alloc_with_stream(5 * MiB, nullptr)); }));
  elsewhere();
  EXPECT(!refused([] { cachette().getDeviceStats(0); }));
  elsewhere();
  EXPECT(!refused([&] { cachette().raw_delete(memory); }));
  EXPECT(held() == 0);
}

static void bounds() {
  cachette().setMemoryFraction(0.25, 0);
  EXPECT(std::abs(cachette().getMemoryFraction(0) - 0.25) < 1e-6);
  cachette().setMemoryFraction(1.0, 0);
  bool raised = false;
  try {
    cachette().setMemoryFraction(1.5, 0);
  } catch (const c10::Error&) {
    raised = true;
  }
  EXPECT(raised);
  cachette().enable(false);
  EXPECT(!cachette().isEnabled());
  void* memory = cachette().raw_alloc_with_stream(MiB, nullptr);
  cachette().raw_delete(memory);
  cachette().enable(true);
  EXPECT(memory != nullptr && cachette().isEnabled());
  size_t largest = 0;
  cachette().cacheInfo(0, &largest);
  EXPECT(largest > 64 * MiB);
  EXPECT(cachette().getDeviceStats(0).allocated_bytes[0].peak > 0);
  cachette().resetPeakStats(0);
  cachette().resetAccumulatedStats(0);
  EXPECT(cachette().getDeviceStats(0).allocated_bytes[0].peak == 0);
  EXPECT(cachette().getDeviceStats(0).num_ooms == 0);
}

// Observers of rejections are told only where a limit rejects before the driver is asked, which is not configured here.
static void rejects() {
#if TORCH_VERSION_MINOR >= 12
  static int rejected = 0;
  cachette().attachOomRejectionObserver([](int64_t, size_t, size_t, size_t) { rejected++; });
  EXPECT(!refused([] { cachette().raw_alloc_with_stream(size_t(1) << 45, nullptr); }));
  EXPECT(rejected == 0 && cachette().getDeviceStats(0).num_oom_rejections == 0);
#endif
}

static void annotates() {
#if TORCH_VERSION_MINOR >= 14
  using Entry = torch_cuda::TraceEntry;
  EXPECT(cachette().supportsUserMetadata());
  static std::string told;
  cachette().attachAllocatorTraceTracker([](const Entry& entry) {
    if (entry.action_ == Entry::ANNOTATE) told = entry.user_metadata_;
  });
  cachette().recordHistory(true, nullptr, 100, torch_cuda::RecordContext::NEVER, true, {});
  void* memory = cachette().raw_alloc_with_stream(5 * MiB, nullptr);
  cachette().annotateMemory(memory, "saved for backward");
  cachette().annotateMemory(&memory, "memory of others");
  cachette().raw_delete(memory);
  auto trace = cachette().snapshot({0, 0}, true).device_traces.at(0);
  auto found = std::find_if(trace.begin(), trace.end(), [](auto& entry) { return entry.action_ == Entry::ANNOTATE; });
  EXPECT(found != trace.end() && found->addr_ == size_t(memory) && found->size_ == 5 * MiB);
  EXPECT(found->user_metadata_ == "saved for backward" && told == found->user_metadata_);
  EXPECT(c10::CachingDeviceAllocator::parseTraceEntryAction("annotate") == found->action_);
  cachette().recordHistory(false, nullptr, 0, torch_cuda::RecordContext::NEVER, true, {});
#endif
}

static void follows_settings() {
  auto served = [] {
    void* memory = cachette().raw_alloc_with_stream(42 * MiB, nullptr);
    const int64_t bytes = held();
    cachette().raw_delete(memory);
    return bytes;
  };
  auto refusal = [](const char* text) -> std::string {
    try {
      c10::CachingAllocator::setAllocatorSettings(text);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  EXPECT(served() == 42 * int64_t(MiB));
  EXPECT(refusal("roundup_power2_divisions:4").empty() && served() == 48 * int64_t(MiB));
  const auto why = refusal("roundup_power2_divisions:2,max_split_size_mb:40,max_split_size_mb:50");
  EXPECT(why.rfind("Cachette: at byte ", 0) == 0 && why.find("max_split_size_mb") != why.npos);
  EXPECT(served() == 48 * int64_t(MiB));
  EXPECT(!refusal("no_such_key:1").empty() && served() == 48 * int64_t(MiB));
  EXPECT(refusal("garbage_collection_threshold:0.5").empty() && served() == 42 * int64_t(MiB));
  EXPECT(refusal("").empty());
}

static void pools() {
  cachette().createOrIncrefPool(0, pool);
  cachette().setUseOnOOM(0, pool, true);
  cachette().setNoSplit(0, pool);
  cachette().beginAllocateToPool(0, pool, [](cudaStream_t stream) { return stream == nullptr; });
  EXPECT(cachette().getPoolUseCount(0, pool) == 2);
  void* inside = cachette().raw_alloc_with_stream(2 * MiB, nullptr);
  auto state = cachette().getCheckpointState(0, pool);
  const int64_t saved = held();
  void* later = cachette().raw_alloc_with_stream(4 * MiB, nullptr);
  cachette().endAllocateToPool(0, pool);
  void* outside = cachette().raw_alloc_with_stream(2 * MiB, nullptr);
  EXPECT(cachette().checkPoolLiveAllocations(0, pool, {inside, later}));
  EXPECT(!cachette().checkPoolLiveAllocations(0, pool, {inside, outside}));
  for (auto& segment : cachette().snapshot(pool, false).segments)
    EXPECT(segment.owner_private_pool_id == pool && segment.address != size_t(outside) &&
           segment.registration_counter >= 0);
  cachette().raw_delete(inside);
  auto delta = cachette().setCheckpointPoolState(0, state);
  EXPECT(delta.ptrs_freed == std::vector<void*>{later});
  EXPECT(delta.dataptrs_allocd.size() == 1 && delta.dataptrs_allocd[0].get() == inside);
  EXPECT(delta.dataptrs_allocd[0].get_deleter() == cachette().raw_deleter());
  EXPECT(held() == saved + 2 * int64_t(MiB));
  delta.dataptrs_allocd.clear();
  cachette().raw_delete(outside);
  EXPECT(held() == 0);
  struct Foreign : torch_cuda::AllocatorState {};
  bool raised = false;
  try {
    cachette().setCheckpointPoolState(0, std::make_shared<Foreign>());
  } catch (const c10::Error&) {
    raised = true;
  }
  EXPECT(raised);
  cachette().releasePool(0, pool);
  cachette().releasePool(0, pool);
  EXPECT(cachette().getPoolUseCount(0, pool) == 0);
}

// PyTorch's filter asks the driver, whose error it throws.
static void lets_through_what_a_filter_throws() {
  auto some = [] { cachette().raw_delete(cachette().raw_alloc_with_stream(2 * MiB, nullptr)); };
  cachette().beginAllocateToPool(0, pool, [](cudaStream_t) -> bool { throw Refusal(); });
  EXPECT(refused(some) && refused(some) && held() == 0);
  cachette().endAllocateToPool(0, pool);
  EXPECT(!refused(some));
  cachette().releasePool(0, pool);
}

static void shares() {
  void* memory = cachette().raw_alloc_with_stream(2 * MiB, nullptr);
  auto handle = cachette().shareIpcHandle(memory);
  EXPECT(handle.offset == 0 && handle.handle.size() > 64);
  auto opened = cachette().getIpcDevPtr(handle.handle);
  EXPECT(opened.get() != nullptr);
  opened.reset();
  cachette().raw_delete(memory);
  bool raised = false;
  try {
    cachette().getIpcDevPtr(handle.handle);
  } catch (const c10::Error&) {
    raised = true;
  }
  EXPECT(raised && held() == 0);
}

static void pins() {
  auto& pinned = *at::getHostAllocator(c10::DeviceType::CUDA);
  const c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CUDA, 0));
  EXPECT(pinned.get_stats().allocations.current == 0 && !pinned.record_event(&pinned, &pinned, stream));
  EXPECT(pinned.allocate(0).get() == nullptr);
  auto memory = pinned.allocate(3 * MiB + 1);
  auto* const bytes = static_cast<char*>(memory.get());
  std::memset(bytes, 7, 3 * MiB + 1);
  EXPECT(memory.device().is_cpu() && pinned.is_simple_data_ptr(memory));
  auto copy = pinned.allocate(MiB);
  pinned.copy_data(copy.get(), bytes, MiB);
  EXPECT(static_cast<char*>(copy.get())[MiB - 1] == 7);
  auto stats = pinned.get_stats();
  EXPECT(stats.active_requests.current == 2 && stats.active_bytes.current == 4 * int64_t(MiB) + 4096);
  EXPECT(stats.num_host_alloc == 2 && stats.num_host_alloc == stats.host_alloc_time.count);
  EXPECT(stats.allocations.current == 2 && stats.allocated_bytes.current == 5 * int64_t(MiB) + 4096);
  // A view has the context of its memory, and what wraps memory or a part of it has a context of its own.
  int other = 0;
  EXPECT(pinned.record_event(bytes + 100, bytes, stream) && pinned.record_event(bytes, &other, stream));
  EXPECT(pinned.record_event(bytes + 100, &other, stream) && !pinned.record_event(&other, &other, stream));
  memory.clear();
  pinned.empty_cache();
  EXPECT(!pinned.record_event(bytes, bytes, stream));
  stats = pinned.get_stats();
  EXPECT(stats.active_requests.current == 1 && stats.num_host_free == 1 && stats.host_free_time.count == 1);
  pinned.reset_peak_stats();
  pinned.reset_accumulated_stats();
  EXPECT(pinned.get_stats().num_host_alloc == 0 && pinned.get_stats().active_bytes.peak == MiB);
  bool raised = false;
  try {
    pinned.allocate(size_t(1) << 50);
  } catch (const c10::Error& error) {
    raised = std::string(error.what()).find("pinned") != std::string::npos;
  }
  EXPECT(raised);
  pinned.begin_allocate_to_pool(pool, [](c10::Stream) { return true; });
  auto inside = pinned.allocate(MiB);
  pinned.end_allocate_to_pool(pool);
  pinned.release_pool(pool);
  EXPECT(inside.get() != nullptr && inside.get() != copy.get());
}

// Null, or what did not hold. `library` is the file of Cachette's functions, and `is_pinning` says whether pinned memory
// is Cachette's too.
extern "C" const char* exercise(const char* library, bool is_pinning) {
  static std::string why;
  try {
    serves();
    tells();
    keeps_contexts();
    frees_at_the_end_of_a_thread();
    lets_through_what_is_thrown();
    lets_each_thread_have_its_own();
    forgets_what_others_have_caused(library);
    bounds();
    rejects();
    annotates();
    follows_settings();
    pools();
    lets_through_what_a_filter_throws();
    shares();
    EXPECT((at::getHostAllocator(c10::DeviceType::CUDA) != nullptr) == is_pinning);
    if (is_pinning) pins();
    tells_what_is_thrown_elsewhere();
    return nullptr;
  } catch (const std::exception& error) {
    why = error.what();
    return why.c_str();
  }
}
