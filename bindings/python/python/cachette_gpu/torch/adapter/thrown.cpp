// Exceptions of observers and trackers.
#include "thrown.hpp"
#include <pthread.h>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

namespace cachette::thrown {

std::atomic<size_t> keepers{0};

namespace {

// What a thread keeps; it is told at the latest when the thread ends.
struct Kept {
  ~Kept() { tell_kept(); }
  std::exception_ptr exception;
};

thread_local Kept kept;

std::exception_ptr take() noexcept {
  if (kept.exception) keepers.fetch_sub(1, std::memory_order_relaxed);
  return std::exchange(kept.exception, nullptr);
}

// Whether Cachette has started this thread. No call of the class is above it that could throw.
bool is_own_thread() noexcept {
  constexpr char own[] = "cachette-";
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::strncmp(name, own, sizeof own - 1) == 0;
}

}  // namespace

void keep() noexcept {
  if (kept.exception) return;
  kept.exception = std::current_exception();
  keepers.fetch_add(1, std::memory_order_relaxed);
  if (is_own_thread()) tell_kept();
}

bool is_kept() noexcept {
  return kept.exception != nullptr;
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
