// What the driver itself needs before a device can be used: one fresh process, one line.
//
//   driver,opening,bare,NANOSECONDS
//
// It opens the driver at run time, as Cachette does, and asks no more of it than anybody must. CACHETTE_CUDA_LIBRARY
// names another library, as it does for Cachette.
#include <dlfcn.h>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

static void* library;

template <class... Arguments>
static void call(const char* name, Arguments... arguments) {
  auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  int status = function ? function(arguments...) : -1;
  if (status) {
    std::fprintf(stderr, "%s failed: %d\n", name, status);
    std::exit(1);
  }
}

int main() {
  auto start = std::chrono::steady_clock::now();
  const char* named = std::getenv("CACHETTE_CUDA_LIBRARY");
  library = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int device = 0;
  void* context = nullptr;
  std::size_t free = 0, total = 0;
  call("cuInit", 0u);
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxPushCurrent_v2", context);
  call("cuMemGetInfo_v2", &free, &total);
  auto took = std::chrono::steady_clock::now() - start;
  std::printf("driver,opening,bare,%lld\n",
              static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()));
}
