// One entry of kernel_attributes() for a compiled kernel: its resources as the driver reports them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "../kernels.h"

namespace cuda_llm_ops::cuda {

// Appends the resources of `kernel` (the address of a __global__ function). `family` is the operator's name. Both names
// must have static lifetime. Appends nothing if the device has no code for the kernel.
inline void add_kernel_attributes(const char* family, const char* name, const void* kernel, int dynamic_shared_bytes,
                                  std::vector<KernelAttributes>& into) {
  cudaFuncAttributes found{};
  if (cudaFuncGetAttributes(&found, kernel) != cudaSuccess) {
    cudaGetLastError();  // a missing kernel is no error of the caller
    return;
  }
  into.push_back({family, name, found.numRegs, found.sharedSizeBytes, static_cast<size_t>(dynamic_shared_bytes),
                  found.localSizeBytes, found.maxThreadsPerBlock});
}

}  // namespace cuda_llm_ops::cuda
