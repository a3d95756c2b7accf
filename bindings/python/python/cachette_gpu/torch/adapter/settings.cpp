// Settings that the program changes while it runs.
#include "allocator.hpp"
#include <c10/core/AllocatorConfig.h>

namespace cachette {

// PyTorch hands each text to the parser of its device's own keys, by a hook, after it has read the common keys. So a text
// that PyTorch refuses does not come here.
void follow_settings() {
  auto& hook = c10::CachingAllocator::AcceleratorAllocatorConfig::getConfigParserHook();
  hook = [before = std::move(hook)](const std::string& text) {
    if (before) before(text);
    std::string said;
    const bool accepted = cachette_adapter_configure({text.data(), text.size()}, write, &said);
    TORCH_CHECK_VALUE(accepted, "Cachette: ", said);
    if (!said.empty()) TORCH_WARN(said);
  };
}

}  // namespace cachette
