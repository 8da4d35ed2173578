// The mma.sync kernels of flash_attention for float16 and bfloat16, on any GPU from sm_80: their instances, the choice
// and the launch.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../../../kernels.h"
#include "../../array_view.h"
#include "../launch.h"

namespace cuda_llm_ops::cuda {
namespace flash_mma {

struct Instance {
  attention::Kernel kernel;
  int head_dim;        // columns it computes with; serves any head_dim up to it ..
  int least_head_dim;  // .. and from this on
  int rows;            // query rows of a thread block
  bool realigned;      // takes rows that begin anywhere
  bool spare;          // only for devices whose shared memory holds none of those before it
};

// In ascending order of head_dim, for T = __half and __nv_bfloat16 (instances.cuh).
template <typename T>
ArrayView<Instance> aligned();
template <typename T>
ArrayView<Instance> wide();  // aligned rows of more columns
template <typename T>
ArrayView<Instance> realigned();
template <typename T>
ArrayView<Instance> varlen();  // with AttentionOptions; the realigned ones come last

// The instance for the arguments on the current device. If there is none, nullptr, and `refused` says why.
const Instance* choose(const AttentionArguments& arguments, const char*& refused);
const char* run(const Instance& instance, const AttentionArguments& arguments, cudaStream_t stream);

// The same with options, for which there are other instances.
const Instance* choose_varlen(const AttentionArguments& arguments, const char*& refused);
const char* run_varlen(const Instance& instance, const AttentionArguments& arguments, const AttentionOptions& options,
                       cudaStream_t stream);

}  // namespace flash_mma

namespace attention {

const char* flash_mma(const AttentionArguments& arguments, cudaStream_t stream);
const char* flash_mma_varlen(const AttentionArguments& arguments, const AttentionOptions& options, cudaStream_t stream);
void flash_mma_attributes(std::vector<KernelAttributes>& into);

}  // namespace attention
}  // namespace cuda_llm_ops::cuda
