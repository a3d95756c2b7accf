// Exceptions of observers and trackers.
#include "thrown.hpp"
#include <cstdio>
#include <exception>
#include <utility>

namespace cachette::thrown {

std::atomic<size_t> keepers{0};

static thread_local std::exception_ptr kept;

static std::exception_ptr take() noexcept {
  if (kept) keepers.fetch_sub(1, std::memory_order_relaxed);
  return std::exchange(kept, nullptr);
}

void keep() noexcept {
  if (kept) return;
  kept = std::current_exception();
  keepers.fetch_add(1, std::memory_order_relaxed);
}

bool is_kept() noexcept {
  return kept != nullptr;
}

void throw_kept() {
  if (std::exception_ptr exception = take()) std::rethrow_exception(std::move(exception));
}

void tell_kept() noexcept {
  try {
    throw_kept();
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "cachette: an observer of memory has failed: %s\n", exception.what());
  } catch (...) {
    std::fprintf(stderr, "cachette: an observer of memory has failed\n");
  }
}

}  // namespace cachette::thrown
