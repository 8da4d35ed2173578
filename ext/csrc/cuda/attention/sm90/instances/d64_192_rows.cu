// Kernels for head_dim up to 64, of three warpgroups.
#include "../cross_tile.cuh"
#include "../instances.h"
#include "../stream_k.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      cross_tile<T, 80, 3, 4>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 192x64, 80 keys"),
                              {.full = 0.857, .causal = 0.809, .tile = 420, .causal_tile = 1184}),
      stream_k<T, 80, 3, 4>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 192x64, 80 keys, shared tiles"),
                            {.full = 0.857, .tile = 420}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d64_192_rows(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
