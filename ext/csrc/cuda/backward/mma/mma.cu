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

template <typename T>
const MmaInstance* find_of(const BackwardArguments& a) {
  for (const ArrayView<MmaInstance>& all : {mma_narrow<T>(), mma_wide<T>()}) {
    for (const MmaInstance& one : all) {
      if (one.head_dim >= a.head_dim && one.value_dim >= a.value_dim) return &one;
    }
  }
  return nullptr;
}

const MmaInstance* find(const BackwardArguments& a) {
  return a.type == GradientType::float16 ? find_of<__half>(a) : find_of<__nv_bfloat16>(a);
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
  const DeviceFacts device = current_device_or_none();
  if (device.capability < 80) return "the device's compute capability must be at least 8.0";
  const MmaInstance* const instance = find(a);
  if (instance == nullptr) return "its head_dim must be at most 256";
  if (std::max(instance->keys.shared_bytes, instance->queries.shared_bytes) > device.shared_per_block)
    return "the device has too little shared memory for this head_dim";
  return nullptr;
}

const char* launch_mma(const BackwardArguments& a, const GeneralParameters& p, cudaStream_t stream) {
  const MmaInstance* const instance = find(a);
  if (instance == nullptr) return "no backward for this head_dim";
  const char* refusal = launch(instance->keys, p, p.batch * p.kv_heads, p.seq_kv, stream);
  return refusal != nullptr ? refusal : launch(instance->queries, p, p.batch * p.heads, p.seq_q, stream);
}

void mma_attributes(std::vector<KernelAttributes>& into) {
  for (const ArrayView<MmaInstance>& all :
       {mma_narrow<__half>(), mma_wide<__half>(), mma_narrow<__nv_bfloat16>(), mma_wide<__nv_bfloat16>()}) {
    for (const MmaInstance& one : all) {
      for (const MmaKernel* kernel : {&one.keys, &one.queries}) {
        add_kernel_attributes("flash_attention_backward", kernel->name, kernel->address, kernel->shared_bytes, into);
      }
    }
  }
}

}  // namespace cuda_llm_ops::cuda::backward
