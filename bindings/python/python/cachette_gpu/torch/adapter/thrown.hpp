// Exceptions of observers, trackers and filters of streams, which Cachette calls while it works.
//
// None may pass through the frames of Rust. So the thread keeps it, and throws it once Cachette has returned. Libraries
// that do not call Cachette by the class, and Cachette's own threads, cannot throw it; then it is told.
#pragma once
#include <atomic>
#include <cstddef>

namespace cachette::thrown {

// How many threads keep one. Relaxed: each looks for its own alone.
extern std::atomic<size_t> keepers;

// Keeps the exception that is being handled, unless the thread keeps an earlier one.
void keep() noexcept;

// Whether this thread keeps one.
bool is_kept() noexcept;

// Throws what the thread keeps, or returns if it keeps nothing.
void throw_kept();

// Writes what the thread keeps to stderr, for calls that must not throw.
void tell_kept() noexcept;

// Whether any thread keeps one; it costs a load.
inline bool is_any_kept() {
  return __builtin_expect(keepers.load(std::memory_order_relaxed) != 0, false);
}

// Tells what the thread keeps from before a call, of which that call is not the cause.
inline void begin() noexcept {
  if (is_any_kept()) tell_kept();
}

}  // namespace cachette::thrown
