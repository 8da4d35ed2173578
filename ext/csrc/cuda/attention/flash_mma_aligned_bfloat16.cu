// Instances of flash_mma.cuh: bfloat16, head_dim up to 128, rows on 16-byte boundaries; named by head_dim, then query rows x keys of
// a block. Roles, stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances aligned_bfloat16() {
  return aligned<__nv_bfloat16>({
      "flash_mma_bfloat16_32_128x64",
      "flash_mma_bfloat16_32_64x64",
      "flash_mma_bfloat16_64_128x128",
      "flash_mma_bfloat16_64_128x64",
      "flash_mma_bfloat16_64_64x128",
      "flash_mma_bfloat16_96_128x64",
      "flash_mma_bfloat16_96_64x64",
      "flash_mma_bfloat16_128_128x64",
      "flash_mma_bfloat16_128_256x64",
      "flash_mma_bfloat16_128_64x64",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
