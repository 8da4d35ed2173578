// Instances of flash_mma.cuh: float16, head_dim 129 to 256, rows on 16-byte boundaries; named by head_dim, then query rows x keys of
// a block. Roles, stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances wide_float16() {
  return wide<__half>({
      "flash_mma_float16_160_256x32",
      "flash_mma_float16_160_64x32",
      "flash_mma_float16_192_128x64",
      "flash_mma_float16_192_64x32",
      "flash_mma_float16_256_128x64",
      "flash_mma_float16_256_64x32",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
