// Instances of flash_mma.cuh: float16 with AttentionOptions; named by head_dim, then query rows x keys of a block. Roles,
// stages and barriers: there.
#include "flash_mma_instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

Instances general_float16() {
  return general<__half>({
      "flash_mma_general_float16_64_128x64",
      "flash_mma_general_float16_128_128x64",
      "flash_mma_general_float16_192_128x64",
      "flash_mma_general_float16_256_128x64",
      "flash_mma_general_float16_256_64x32",
      "flash_mma_general_realign_float16_64_64x32",
      "flash_mma_general_realign_float16_136_128x64",
      "flash_mma_general_realign_float16_256_128x32",
      "flash_mma_general_realign_float16_256_64x32",
  });
}

}  // namespace cuda_llm_ops::cuda::flash_mma
