// Histories, what the program says it is doing, and those who are told.
#include "allocator.hpp"

namespace cachette {
namespace {

Text text(const std::string& words) {
  return {words.data(), words.size()};
}

// An observer, which is called as long as the process lives.
template <typename Observer>
User kept(Observer observer) {
  return new Observer(std::move(observer));
}

// Tells an observer the device and three figures.
template <typename Observer>
void tell(User user, int64_t device, uint64_t first, uint64_t second, uint64_t third) noexcept {
  try {
    (*static_cast<Observer*>(user))(device, first, second, third);
  } catch (...) {
    thrown::keep();
  }
}

// The contexts that PyTorch captured, by stack. They live as long as the process: their end may need the interpreter.
struct Contexts {
  std::atomic<torch_cuda::CreateContextFn> capture{nullptr};
  std::mutex lock;
  std::unordered_map<uint32_t, std::shared_ptr<c10::GatheredContext>> captured;
};

Contexts& contexts() {
  static auto* const all = new Contexts;
  return *all;
}

// Captures a context. A failure leaves the stack without one. An earlier one is destroyed without the lock.
void capture(uint32_t stack) noexcept {
  auto& all = contexts();
  std::shared_ptr<c10::GatheredContext> context;
  try {
    context = all.capture.load()();
  } catch (...) {
  }
  std::lock_guard<std::mutex> locked(all.lock);
  all.captured[stack].swap(context);
}

}  // namespace

std::shared_ptr<c10::GatheredContext> context_of(uint32_t stack) {
  auto& all = contexts();
  std::lock_guard<std::mutex> locked(all.lock);
  auto found = all.captured.find(stack);
  return found == all.captured.end() ? nullptr : found->second;
}

bool Allocator::isHistoryEnabled() {
  return cachette_adapter_records_history();
}

void Allocator::recordHistory(bool on, torch_cuda::CreateContextFn context, size_t entries, torch_cuda::RecordContext when,
                              bool clear, const std::vector<std::string>& skip) {
  std::string names;
  for (const auto& name : skip) names += (names.empty() ? "" : ",") + name;
  const bool captures = on && context != nullptr && when != torch_cuda::RecordContext::NEVER;
  std::unordered_map<uint32_t, std::shared_ptr<c10::GatheredContext>> earlier;
  if (captures) {
    auto& all = contexts();
    all.capture = context;
    std::lock_guard<std::mutex> locked(all.lock);
    // Otherwise memory in use keeps its stack. A number that another stack gets is captured again.
    if (clear) earlier.swap(all.captured);
  }
  cachette_adapter_record_history(on, static_cast<int>(when), entries, clear, captures ? capture : nullptr,
                                  text(names));
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& words) {
  std::string name;
  bool begins = true;
  int device = 0;
  for (const auto& [key, value] : words) {
    if (key == "name") name = value;
    if (key == "stage") begins = value == "START";
    if (key == "device") device = std::atoi(value.c_str());
  }
  cachette_adapter_annotate(text(name), begins, device);
}

void Allocator::pushCompileContext(std::string& words) {
  cachette_adapter_enter_context(text(words));
}

void Allocator::popCompileContext() {
  cachette_adapter_leave_context();
}

void Allocator::setUserMetadata(const std::string& words) {
  cachette_adapter_set_metadata(text(words));
}

std::string Allocator::getUserMetadata() {
  std::string words;
  cachette_adapter_metadata(write, &words);
  return words;
}

void Allocator::attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) {
  cachette_adapter_on_out_of_memory(tell<torch_cuda::OutOfMemoryObserver>, kept(std::move(observer)));
}

#if CACHETTE_TORCH_FROM(2, 12)
void Allocator::attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) {
  cachette_adapter_on_rejection(tell<torch_cuda::OomRejectionObserver>, kept(std::move(observer)));
}

std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void* memory) {
  return context_of(cachette_adapter_stack(const_cast<void*>(memory)));
}
#endif

#if CACHETTE_TORCH_FROM(2, 14)
bool Allocator::supportsUserMetadata() {
  return true;
}

void Allocator::annotateMemory(const void* memory, const std::string& words) {
  cachette_adapter_annotate_memory(const_cast<void*>(memory), text(words));
}
#endif

}  // namespace cachette
