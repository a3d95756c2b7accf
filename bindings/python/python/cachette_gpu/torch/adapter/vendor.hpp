// PyTorch's headers, for the vendor and the version that it is built for.
//
// PyTorch for ROCm has the classes, namespaces and macros of PyTorch for CUDA. Its files and the runtime have HIP's
// names, so here the runtime gets CUDA's, and the class is written once.
#pragma once
#include <torch/headeronly/version.h>

#ifdef USE_ROCM
#include <c10/hip/HIPCachingAllocator.h>
#include <c10/hip/HIPException.h>
#include <c10/hip/HIPFunctions.h>
#include <c10/hip/HIPGuard.h>

namespace cachette {

using cudaError_t = hipError_t;
using cudaStream_t = hipStream_t;
constexpr auto cudaSuccess = hipSuccess;
constexpr auto cudaMemcpyDeviceToDevice = hipMemcpyDeviceToDevice;
constexpr auto& cudaMemcpy = hipMemcpy;
constexpr auto& cudaMemcpyAsync = hipMemcpyAsync;
constexpr auto& cudaMemcpyPeerAsync = hipMemcpyPeerAsync;

}  // namespace cachette
#else
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#endif

// Whether PyTorch is of this version or a later one.
#define CACHETTE_TORCH_FROM(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))
