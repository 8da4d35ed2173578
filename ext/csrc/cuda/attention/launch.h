// What the files of this folder share on the host: launching a kernel by its address, and naming it in the attributes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "../../kernels.h"
#include "../launch_config.h"

namespace cuda_llm_ops::cuda::attention {

// One compiled kernel: what its launch needs and what kernel_attributes() says of it.
struct Kernel {
  const char* family;  // the operator
  const char* name;
  const void* address;
  int threads;         // a block; 0: varies
  int shared;          // bytes of dynamic shared memory a block asks for
};

// Launches `blocks` blocks, in clusters of `cluster`. `arguments` as cudaLaunchKernel takes them. early: the kernel may
// begin before the one before it in the stream has ended, for which it waits itself (griddepcontrol.cuh).
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
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // reported here, so not to be found by whoever looks next
  return cudaGetErrorString(error);
}

inline void add_attributes(const Kernel& kernel, std::vector<KernelAttributes>& into) {
  cudaFuncAttributes found{};
  if (cudaFuncGetAttributes(&found, kernel.address) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  into.push_back({kernel.family, kernel.name, found.numRegs, found.sharedSizeBytes, static_cast<size_t>(kernel.shared),
                  found.localSizeBytes, found.maxThreadsPerBlock});
}

const char* naive(const AttentionArguments& arguments, cudaStream_t stream);
void naive_attributes(std::vector<KernelAttributes>& into);

const char* tiled(const AttentionArguments& arguments, cudaStream_t stream);
void tiled_attributes(std::vector<KernelAttributes>& into);

const char* flash_simt(const AttentionArguments& arguments, cudaStream_t stream);  // float32
const char* flash_simt_general(const AttentionArguments& arguments, const AttentionOptions& options,
                               cudaStream_t stream);
void flash_simt_attributes(std::vector<KernelAttributes>& into);

const char* flash_mma(const AttentionArguments& arguments, cudaStream_t stream);  // float16, bfloat16
const char* flash_mma_general(const AttentionArguments& arguments, const AttentionOptions& options,
                              cudaStream_t stream);
void flash_mma_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::attention
