// Instances of flash_mma.cuh: bfloat16, head_dim up to 128, rows on 16-byte boundaries. Roles, stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances aligned_bfloat16() {
  return aligned<__nv_bfloat16>({
      "flash_mma_bfloat16_32_128r",
      "flash_mma_bfloat16_32_64r",
      "flash_mma_bfloat16_64_128r",
      "flash_mma_bfloat16_64_64r",
      "flash_mma_bfloat16_96_128r",
      "flash_mma_bfloat16_96_64r",
      "flash_mma_bfloat16_128_256r",
      "flash_mma_bfloat16_128_64r",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
