#include "../instances.cuh"

namespace cuda_llm_ops::cuda::decode {

const QuantisedInstances& quantised_e4m3_bfloat16() {
  static const QuantisedInstances all = CUDA_LLM_OPS_QUANTISED_INSTANCES(E4m3, bfloat16, "e4m3 cache bfloat16");
  return all;
}

}  // namespace cuda_llm_ops::cuda::decode
