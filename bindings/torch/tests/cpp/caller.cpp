// Stands for PyTorch: calls the plug-in's functions as C++ does, and catches what they throw.
#include <cstddef>
#include <cstring>
#include <functional>
#include <typeinfo>
#include <utility>
#include "exceptions.hpp"

using Stream = void*;
using PoolId = std::pair<uint64_t, uint64_t>;
using Allocate = void* (*)(size_t, int, Stream);
using Begin = void (*)(int, PoolId, std::function<bool(Stream)>);
using End = void (*)(int, PoolId);

enum Outcome { returned = 0, out_of_memory = 1, error = 2, foreign = 3 };

// A local with a destructor, which must run when an exception passes.
struct Passed {
  bool* passed;
  ~Passed() { *passed = true; }
};

template <class Work>
static int attempt(Work work, char* text, size_t room) {
  auto keep = [&](const char* what) { std::strncpy(text, what, room - 1); };
  try {
    work();
    return returned;
  } catch (const c10::OutOfMemoryError& caught) {
    keep(caught.what_without_backtrace());
    return typeid(caught) == typeid(c10::OutOfMemoryError) ? out_of_memory : foreign;
  } catch (const c10::Error& caught) {
    keep(caught.what_without_backtrace());
    return error;
  } catch (const std::exception& caught) {
    keep(caught.what());
    return foreign;
  }
}

extern "C" VISIBLE int call_allocate(Allocate allocate, size_t size, int device, Stream stream, void** memory,
                                     bool* passed, char* text, size_t room) {
  return attempt(
      [&] {
        Passed local{passed};
        *memory = allocate(size, device, stream);
      },
      text, room);
}

extern "C" VISIBLE int live_errors() { return c10::live_errors; }

// What a filter holds: too large for the function object itself, and counted.
static std::shared_ptr<int> held = std::make_shared<int>(0);
static Stream wanted[1];

extern "C" VISIBLE long filters_held() { return held.use_count() - 1; }

// Leads the requests for one stream to a pool, by a filter that is stored on the heap.
extern "C" VISIBLE int call_begin(Begin begin, int device, uint64_t first, uint64_t second, Stream stream, char* text,
                                  size_t room) {
  auto holds = held;
  char ballast[64] = "large";
  return attempt(
      [&] {
        begin(device, {first, second}, [holds, ballast, stream](Stream asked) {
          return ballast[0] == 'l' && asked == stream;
        });
      },
      text, room);
}

// The same by a filter that fits into the function object.
extern "C" VISIBLE int call_begin_small(Begin begin, int device, uint64_t first, uint64_t second, Stream stream,
                                        char* text, size_t room) {
  wanted[0] = stream;
  Stream* place = &wanted[0];
  return attempt([&] { begin(device, {first, second}, [place](Stream asked) { return asked == *place; }); }, text, room);
}

extern "C" VISIBLE int call_end(End end, int device, uint64_t first, uint64_t second, char* text, size_t room) {
  return attempt([&] { end(device, {first, second}); }, text, room);
}
