// Kernels for head_dim up to 64, of two warpgroups.
#include "../cross_tile.cuh"
#include "../instances.h"
#include "../split_keys.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

template <typename T>
ArrayView<Instance> list() {
  static const Instance all[] = {
      cross_tile<T, 128, 2, 4>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 128x64, 128 keys"),
                               {.full = 0.98, .causal = 0.925, .tile = 300, .causal_tile = 330}),
      split_keys<T, 64, 128, 4>(CUDA_LLM_OPS_TYPED_NAME("", " wgmma 64x64, split keys"),
                                {.full = 1.1, .causal = 1.05, .tile = 470}),
  };
  return all;
}

}  // namespace

ArrayView<Instance> instances_d64(ScalarType type) {
  return type == ScalarType::bfloat16 ? list<__nv_bfloat16>() : list<__half>();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
