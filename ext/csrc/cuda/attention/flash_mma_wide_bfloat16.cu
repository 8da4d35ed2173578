// Instances of flash_mma.cuh: bfloat16, head_dim 129 to 256, rows on 16-byte boundaries. Roles, stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances wide_bfloat16() {
  return wide<__nv_bfloat16>({
      "flash_mma_bfloat16_160_256r",
      "flash_mma_bfloat16_160_64r",
      "flash_mma_bfloat16_192_128r",
      "flash_mma_bfloat16_192_64r",
      "flash_mma_bfloat16_256_128r",
      "flash_mma_bfloat16_256_64r",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
