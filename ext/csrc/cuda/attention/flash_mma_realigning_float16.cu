// Instances of flash_mma.cuh: float16, rows that start anywhere; named by head_dim, then query rows x keys of
// a block. Roles, stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances realigning_float16() {
  return realigning<__half>({
      "flash_mma_float16_realign_64_256x64",
      "flash_mma_float16_realign_64_64x32",
      "flash_mma_float16_realign_129_128x64",
      "flash_mma_float16_realign_136_256x64",
      "flash_mma_float16_realign_136_256x32",
      "flash_mma_float16_realign_136_64x32",
      "flash_mma_float16_realign_192_128x32",
      "flash_mma_float16_realign_256_128x32",
      "flash_mma_float16_realign_256_64x32",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
