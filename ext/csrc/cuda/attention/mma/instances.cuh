// The instances of flash.cuh: tile sizes by head_dim. The files in instances/ compile one list for one element type
// each.
//
// For each head_dim the first instance has many rows in a thread block (32 for each warp: every K and V fragment that
// ldmatrix brings feeds two row tiles), for launches that fill the device. The last has few rows, for the others and
// for devices with little shared memory. One between is for devices whose multiprocessors do not hold two blocks of the
// first. A spare one comes last, for devices with 99 KB a block. The names are head_dim, then query rows x keys of a
// thread block.
#pragma once

#include "flash.cuh"
#include "flash.h"

namespace cuda_llm_ops::cuda::flash_mma {

// For head_dim up to here, a realigned instance is faster than a wide one, even for aligned rows.
constexpr int kLeastWideHeadDim = 137;

template <typename T, int HeadDim, int Warps, int RowTiles, int BlockN, unsigned Ways>
Instance instance(attention::TypedName name, int least_head_dim = 0, bool spare = false) {
  using C = Config<T, HeadDim, Warps, RowTiles, BlockN, Ways>;
  constexpr ScalarType type = std::is_same_v<T, __half> ? ScalarType::float16 : ScalarType::bfloat16;
  return {
      .kernel = {"flash_attention", name.of(type), reinterpret_cast<const void*>(&kernel<C>), C::threads,
                 C::shared_bytes},
      .head_dim = C::max_head_dim,
      .least_head_dim = least_head_dim,
      .rows = C::rows,
      .realigned = C::realigned,
      .spare = spare,
  };
}

template <typename T>
ArrayView<Instance> aligned() {
  static const Instance all[] = {
      instance<T, 32, 4, 2, 64, q_in_registers>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_32_128x64")),
      instance<T, 32, 4, 1, 64, q_in_registers>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_32_64x64")),
      instance<T, 64, 4, 2, 128, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_64_128x128")),
      instance<T, 64, 4, 2, 64, q_in_registers>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_64_128x64")),
      instance<T, 64, 4, 1, 128, q_in_registers>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_64_64x128")),
      instance<T, 96, 4, 2, 64, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_96_128x64")),
      instance<T, 96, 4, 1, 64, q_in_registers>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_96_64x64")),
      instance<T, 128, 4, 2, 64, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_128_128x64")),
      instance<T, 128, 8, 2, 64, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_128_256x64")),
      instance<T, 128, 4, 1, 64, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_128_64x64")),
  };
  return all;
}

template <typename T>
ArrayView<Instance> wide() {
  static const Instance all[] = {
      instance<T, 160, 8, 2, 32, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_160_256x32"), kLeastWideHeadDim),
      instance<T, 160, 4, 1, 32, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_160_64x32"), kLeastWideHeadDim),
      instance<T, 192, 8, 1, 64, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_192_128x64"), kLeastWideHeadDim),
      instance<T, 192, 4, 1, 32, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_192_64x32"), kLeastWideHeadDim),
      instance<T, 256, 8, 1, 64, q_in_registers>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_256_128x64"),
                                                 kLeastWideHeadDim),
      instance<T, 256, 4, 1, 32, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_256_64x32"), kLeastWideHeadDim),
      instance<T, 256, 2, 1, 32, no_ways>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_256_32x32"), kLeastWideHeadDim, true),
  };
  return all;
}

template <typename T>
ArrayView<Instance> realigned() {
  static const Instance all[] = {
      instance<T, 64, 8, 2, 64, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_64_256x64")),
      instance<T, 64, 4, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_64_64x32")),
      instance<T, 136, 4, 2, 64, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_129_128x64")),
      instance<T, 136, 8, 2, 64, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_136_256x64")),
      instance<T, 136, 8, 2, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_136_256x32")),
      instance<T, 136, 4, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_136_64x32")),
      instance<T, 192, 8, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_192_128x32")),
      instance<T, 192, 4, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_192_64x32"), 0, true),
      instance<T, 256, 8, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_256_128x32")),
      instance<T, 256, 4, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_256_64x32")),
      instance<T, 256, 2, 1, 32, realigns>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_", "_realign_256_32x32"), 0, true),
  };
  return all;
}

// Fewer sizes, each for a wider range of head_dim: the first that fits is taken, so the last of either kind needs the
// least shared memory.
template <typename T>
ArrayView<Instance> varlen() {
  static const Instance all[] = {
      instance<T, 64, 4, 2, 64, takes_options>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_", "_64_128x64")),
      instance<T, 128, 4, 2, 64, takes_options>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_", "_128_128x64")),
      instance<T, 192, 8, 1, 64, takes_options>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_", "_192_128x64")),
      instance<T, 256, 8, 1, 64, takes_options>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_", "_256_128x64")),
      instance<T, 256, 4, 1, 32, takes_options>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_", "_256_64x32")),
      instance<T, 256, 2, 1, 32, takes_options>(CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_", "_256_32x32")),
      instance<T, 64, 4, 1, 32, realigns | takes_options>(
          CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_realign_", "_64_64x32")),
      instance<T, 136, 4, 2, 64, realigns | takes_options>(
          CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_realign_", "_136_128x64")),
      instance<T, 256, 8, 1, 32, realigns | takes_options>(
          CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_realign_", "_256_128x32")),
      instance<T, 256, 4, 1, 32, realigns | takes_options>(
          CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_realign_", "_256_64x32")),
      instance<T, 256, 2, 1, 32, realigns | takes_options>(
          CUDA_LLM_OPS_TYPED_NAME("flash_mma_general_realign_", "_256_32x32")),
  };
  return all;
}

}  // namespace cuda_llm_ops::cuda::flash_mma
