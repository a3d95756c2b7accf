// What the class asks of Cachette: C functions of the library that holds it, found by name.
//
// The Rust half is `cachette_torch::adapter`; a test compares the layouts, and `version` tells the two apart if they are
// not of one package. Functions throw PyTorch's own exceptions, unless it is said that they do not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include "thrown.hpp"

#ifdef _LIBCPP_VERSION
#error "Cachette copies a std::function of libstdc++, and this is libc++; compile with libstdc++, as PyTorch itself is"
#endif

namespace cachette {

constexpr uint32_t interface_version = 3;

// Not a stream of one library: CUDA's and HIP's are both this.
using Stream = void*;
using User = void*;

struct PoolId {
  uint64_t first;
  uint64_t second;
};

// For each figure: all, small and large; for each of these: current, peak, allocated and freed.
struct Figures {
  int64_t arrays[9][3][4];
  int64_t oversize[2][4];
  int64_t counts[7];
};

// Blocks in use, their bytes, segments, their bytes; then the times of allocations and of frees by the driver.
struct PinnedFigures {
  int64_t stats[4][4];
  int64_t times[2][4];
  int64_t counts[2];
};

// Words, which live as long as the call they are passed to; not a C string.
struct Text {
  const char* start;
  size_t bytes;
};

struct Segment {
  uint64_t address, bytes, requested, allocated, active, stream, order;
  PoolId pool;
  int32_t device;
  uint32_t stack;
  bool large, elastic;
};

struct Block {
  uint64_t address, bytes, requested;
  uint32_t stack;
  bool allocated, active;
};

struct Event {
  int32_t action, device;
  uint64_t address, bytes, stream;
  PoolId pool;
  int64_t time_us;
  Text context, metadata;
  uint32_t stack;
};

struct Visitor {
  void (*segment)(User, const Segment*);
  void (*block)(User, const Block*);
  void (*event)(User, const Event*);
  User user;
};

// None of the three throws.
struct PoolSource {
  void* (*allocate)(User, uint64_t bytes, int device, Stream);
  void (*free)(User, void*);
  void (*close)(User);
  User user;
};

struct Checkpoint;
struct Opened;

// A function of the library.
template <typename Signature>
struct Function;

template <typename Result, typename... Arguments>
struct Function<Result(Arguments...)> {
  // It throws what an observer or a tracker threw meanwhile, in the place of what Cachette throws for its own reasons.
  Result operator()(Arguments... arguments) const {
    thrown::begin();
    try {
      if constexpr (std::is_void_v<Result>) {
        address(arguments...);
        if (thrown::is_any_kept()) thrown::throw_kept();
      } else {
        Result result = address(arguments...);
        if (thrown::is_any_kept()) thrown::throw_kept();
        return result;
      }
    } catch (...) {
      thrown::throw_kept();
      throw;
    }
  }

  // It throws nothing of observers and trackers; for functions that destructors call.
  Result quietly(Arguments... arguments) const {
    static_assert(std::is_void_v<Result>);
    address(arguments...);
    if (thrown::is_any_kept()) thrown::tell_kept();
  }

  Result (*address)(Arguments...) = nullptr;
};

// Every function: what it returns, its name, its arguments.
#define CACHETTE_FUNCTIONS(F)                                                                                       \
  F(uint32_t, cachette_adapter_version, ())                                                                         \
  F(void*, cachette_torch_alloc, (size_t bytes, int device, Stream))                                                \
  F(void, cachette_adapter_free, (void*)) /* throws nothing */                                                      \
  F(uint64_t, cachette_adapter_bytes, (void*, int* device)) /* throws nothing */                                    \
  F(void, cachette_torch_reset, ())                                                                                 \
  F(void, cachette_torch_memory_fraction, (double fraction, int device))                                            \
  F(void*, cachette_torch_base_alloc, (void*, size_t* bytes))                                                       \
  F(void, cachette_torch_record_stream, (void*, Stream))                                                            \
  F(void, cachette_torch_begin_allocate_to_pool, (int device, PoolId, const std::function<bool(Stream)>*))          \
  F(void, cachette_torch_end_allocate_to_pool, (int device, PoolId))                                                \
  F(void, cachette_torch_release_pool, (int device, PoolId)) /* throws nothing */                                   \
  F(void, cachette_adapter_stats, (int device, Figures*))                                                           \
  F(void, cachette_adapter_reset_peaks, (int device))                                                               \
  F(void, cachette_adapter_reset_totals, (int device))                                                              \
  F(double, cachette_adapter_memory_fraction, (int device))                                                         \
  F(void, cachette_adapter_set_caching, (bool on))                                                                  \
  F(bool, cachette_adapter_caches, ())                                                                              \
  F(uint64_t, cachette_adapter_largest, (int device))                                                               \
  F(void, cachette_adapter_allow_peer, (int device, int peer))                                                      \
  F(void, cachette_adapter_use_pool, (int device, PoolId, const PoolSource*))                                       \
  F(uint64_t, cachette_adapter_pool_uses, (int device, PoolId))                                                     \
  F(void, cachette_adapter_set_use_on_oom, (int device, PoolId, bool on))                                           \
  F(void, cachette_adapter_set_no_split, (int device, PoolId))                                                      \
  F(bool, cachette_adapter_pool_holds, (int device, PoolId, const uint64_t* addresses, size_t count))               \
  F(void, cachette_adapter_empty_pool, (PoolId))                                                                    \
  F(Checkpoint*, cachette_adapter_checkpoint, (int device, PoolId))                                                 \
  F(void, cachette_adapter_drop_checkpoint, (Checkpoint*))                                                          \
  F(void, cachette_adapter_restore,                                                                                 \
    (int device, const Checkpoint*, void (*freed)(User, void*), void (*allocated)(User, void*), User))              \
  F(void, cachette_adapter_snapshot, (PoolId, bool traces, const Visitor*))                                         \
  F(void, cachette_adapter_share, (void*, void (*write)(User, const uint8_t*, size_t), User))                       \
  F(Opened*, cachette_adapter_open_shared, (int device, const uint8_t* handle, size_t bytes, void** address))       \
  F(void, cachette_adapter_close_shared, (Opened*))                                                                 \
  F(void, cachette_adapter_on_out_of_memory,                                                                        \
    (void (*observer)(User, int64_t device, uint64_t asked, uint64_t total, uint64_t free), User))                  \
  F(void, cachette_adapter_on_rejection,                                                                            \
    (void (*observer)(User, int64_t device, uint64_t asked, uint64_t reserved, uint64_t total), User))              \
  F(void, cachette_adapter_track, (void (*tracker)(User, const Event*), User))                                      \
  F(void, cachette_adapter_on_pressure, (bool (*reliever)()))                                                       \
  F(void, cachette_adapter_record_history,                                                                          \
    (bool on, int level, uint64_t entries, bool clear, void (*capture)(uint32_t stack), Text skip))                 \
  F(bool, cachette_adapter_records_history, ())                                                                     \
  F(void, cachette_adapter_set_metadata, (Text))                                                                    \
  F(void, cachette_adapter_metadata, (void (*write)(User, const uint8_t*, size_t), User))                           \
  F(void, cachette_adapter_enter_context, (Text))                                                                   \
  F(void, cachette_adapter_leave_context, ())                                                                       \
  F(void, cachette_adapter_annotate, (Text name, bool begins, int device))                                          \
  F(void, cachette_adapter_annotate_memory, (void*, Text))                                                          \
  F(uint32_t, cachette_adapter_stack, (void*))                                                                      \
  F(bool, cachette_adapter_pins, ())                                                                                \
  F(void*, cachette_adapter_pin, (size_t bytes, int device))                                                        \
  F(void, cachette_adapter_unpin, (void*)) /* throws nothing */                                                     \
  F(bool, cachette_adapter_pinned_record, (void*, int device, Stream))                                              \
  F(void, cachette_adapter_pinned_empty, ())                                                                        \
  F(void, cachette_adapter_pinned_stats, (PinnedFigures*))                                                          \
  F(void, cachette_adapter_pinned_reset, (bool peaks))                                                              \
  F(void, cachette_adapter_allocate_at, (void*, size_t bytes, int device, Stream))                                  \
  F(bool, cachette_adapter_configure, (Text, void (*write)(User, const uint8_t*, size_t), User))

// The functions, under their names; set once, before anything is called.
#define CACHETTE_DECLARE(returns, name, arguments) extern Function<returns arguments> name;
CACHETTE_FUNCTIONS(CACHETTE_DECLARE)
#undef CACHETTE_DECLARE

}  // namespace cachette
