#include "../instances.cuh"

namespace cuda_llm_ops::cuda::decode {

const QuantisedInstances& quantised_int8_bfloat16() {
  static const QuantisedInstances all = CUDA_LLM_OPS_QUANTISED_INSTANCES(Int8, bfloat16, "int8 cache bfloat16");
  return all;
}

}  // namespace cuda_llm_ops::cuda::decode
