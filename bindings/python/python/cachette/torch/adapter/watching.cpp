// Histories, what the program says it is doing, and those who are told.
#include "allocator.hpp"

namespace cachette {
namespace {

Text text(const std::string& words) {
  return {words.data(), words.size()};
}

}  // namespace

bool Allocator::isHistoryEnabled() {
  return cachette_adapter_records_history();
}

void Allocator::recordHistory(bool on, torch_cuda::CreateContextFn, size_t entries, torch_cuda::RecordContext when,
                              bool clear, const std::vector<std::string>& skip) {
  std::string names;
  for (const auto& name : skip) names += (names.empty() ? "" : ",") + name;
  // Callers are asked by Cachette itself: PyTorch's way of asking needs an object for each event.
  cachette_adapter_record_history(on, static_cast<int>(when), entries, clear, text(names));
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
  // It is called as long as the process lives.
  auto tell = [](User user, int64_t device, uint64_t asked, uint64_t total, uint64_t free) noexcept {
    try {
      (*static_cast<torch_cuda::OutOfMemoryObserver*>(user))(device, asked, total, free);
    } catch (...) {
      thrown::keep();
    }
  };
  cachette_adapter_on_out_of_memory(tell, new torch_cuda::OutOfMemoryObserver(std::move(observer)));
}

}  // namespace cachette
