// What the kernels of this folder share on the host: their names, their launch, and their entry in kernel_attributes().
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../kernels.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "../launch_config.h"

namespace cuda_llm_ops::cuda::attention {

// A kernel's name for each 16-bit element type. Records refer to kernels by these names.
struct TypedName {
  const char* float16;
  const char* bfloat16;

  const char* of(ScalarType type) const { return type == ScalarType::bfloat16 ? bfloat16 : float16; }
};
// before + "float16" or "bfloat16" + after, of two string literals.
#define CUDA_LLM_OPS_TYPED_NAME(before, after) \
  ::cuda_llm_ops::cuda::attention::TypedName { before "float16" after, before "bfloat16" after }

// One compiled kernel.
struct Kernel {
  const char* family;  // the operator
  const char* name;
  const void* address;
  int threads;  // of a block; 0: varies
  int shared;   // bytes of dynamic shared memory of a block
};

// Launches `blocks` blocks, in clusters of `cluster`. `arguments` are those of cudaLaunchKernel. early: the kernel may
// begin before the previous one in the stream has ended, and waits for that itself (ptx/griddepcontrol.cuh).
inline const char* launch(const Kernel& kernel, dim3 blocks, int threads, void** arguments, cudaStream_t stream,
                          bool early = false, int cluster = 1) {
  cudaError_t error = cudaSuccess;
  // More than 48 KB must be asked for, per kernel and device; asking again costs less than remembering safely.
  if (kernel.shared > 48 * 1024) {
    error = cudaFuncSetAttribute(kernel.address, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared);
  }
  if (error == cudaSuccess) {
    LaunchConfig config(blocks, threads, kernel.shared, stream);
    if (early) config.early();
    if (cluster > 1) config.cluster(cluster);
    error = config.launch(kernel.address, arguments);
  }
  return error_text(error);
}

inline void add_attributes(const Kernel& kernel, std::vector<KernelAttributes>& into) {
  add_kernel_attributes(kernel.family, kernel.name, kernel.address, kernel.shared, into);
}

}  // namespace cuda_llm_ops::cuda::attention
