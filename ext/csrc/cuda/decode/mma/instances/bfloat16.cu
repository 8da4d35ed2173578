#include "../instances.cuh"

namespace cuda_llm_ops::cuda::decode {

const MmaInstances& mma_bfloat16() {
  static const MmaInstances all = CUDA_LLM_OPS_DECODE_INSTANCES(bfloat16);
  return all;
}

}  // namespace cuda_llm_ops::cuda::decode
