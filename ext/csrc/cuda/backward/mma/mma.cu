// The mma.sync kernels of attention's backward: which instance computes it, and its two launches.
#include <algorithm>

#include "../../device.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../numeric.cuh"
#include "instances.h"

namespace cuda_llm_ops::cuda::backward {
namespace {

int most_shared(const MmaInstance& one) { return std::max(one.keys.shared_bytes, one.queries.shared_bytes); }

// The first that fits the head_dims and the device.
template <typename T>
const MmaInstance* find_of(const BackwardArguments& a, int shared) {
  for (const ArrayView<MmaInstance>& all : {mma_narrow<T>(), mma_wide<T>(), mma_small<T>()}) {
    for (const MmaInstance& one : all) {
      if (one.head_dim >= a.head_dim && one.value_dim >= a.value_dim && most_shared(one) <= shared) return &one;
    }
  }
  return nullptr;
}

const MmaInstance* find(const BackwardArguments& a) {
  const int shared = current_device_or_none().shared_per_block;
  return a.type == GradientType::float16 ? find_of<__half>(a, shared) : find_of<__nv_bfloat16>(a, shared);
}

const char* launch(const MmaKernel& kernel, const GeneralParameters& p, int heads, int rows, cudaStream_t stream) {
  int tiles = (rows + kernel.rows - 1) / kernel.rows;
  void* arguments[] = {const_cast<GeneralParameters*>(&p), &tiles};
  cudaError_t error = allow_dynamic_shared(kernel.address, kernel.shared_bytes);
  if (error == cudaSuccess) {
    const dim3 blocks(static_cast<unsigned>(tiles) * static_cast<unsigned>(heads));
    error = LaunchConfig(blocks, kernel.threads, kernel.shared_bytes, stream).launch(kernel.address, arguments);
  }
  return error_text(error);
}

}  // namespace

const char* mma_refusal(const BackwardArguments& a) {
  if (current_device_or_none().capability < 80) return "the device's compute capability must be at least 8.0";
  return find(a) == nullptr ? "the device has too little shared memory for this head_dim" : nullptr;
}

const char* launch_mma(const BackwardArguments& a, const GeneralParameters& p, cudaStream_t stream) {
  const MmaInstance* const instance = find(a);
  if (instance == nullptr) return "the device has too little shared memory for this head_dim";
  const char* refusal = launch(instance->keys, p, p.batch * p.kv_heads, p.seq_kv, stream);
  return refusal != nullptr ? refusal : launch(instance->queries, p, p.batch * p.heads, p.seq_q, stream);
}

void mma_attributes(std::vector<KernelAttributes>& into) {
  for (const ArrayView<MmaInstance>& all :
       {mma_narrow<__half>(), mma_wide<__half>(), mma_small<__half>(), mma_narrow<__nv_bfloat16>(),
        mma_wide<__nv_bfloat16>(), mma_small<__nv_bfloat16>()}) {
    for (const MmaInstance& one : all) {
      for (const MmaKernel* kernel : {&one.keys, &one.queries}) {
        add_kernel_attributes("flash_attention_backward", kernel->name, kernel->address, kernel->shared_bytes, into);
      }
    }
  }
}

}  // namespace cuda_llm_ops::cuda::backward
