// How a file makes instances of flash_mma.cuh, and which there are: tile sizes by head_dim. For each head_dim the first
// has many rows a block (32 a warp: each K and V fragment that ldmatrix brings feeds two row tiles), for launches that
// fill the device; the last has few rows, for the others and for devices with little shared memory; where there is one
// between, it is for devices whose multiprocessors do not hold two blocks of the first.
#pragma once

#include "flash_mma.cuh"
#include "flash_mma.h"

namespace cuda_llm_ops::cuda::flash_mma {

template <typename T, int HeadDim, int Warps, int RowTiles, int BlockN, bool Realign, bool QInRegisters,
          bool General = false>
Instance instance(const char* name) {
  using C = Config<T, HeadDim, Warps, RowTiles, BlockN, Realign, QInRegisters, General>;
  return {{"flash_attention", name, reinterpret_cast<const void*>(&kernel<C>), C::kThreads, C::kShared},
          C::kMaxHeadDim, C::kRows, Realign};
}

template <typename T>
Instances aligned(const char* const (&names)[10]) {
  static const Instance all[] = {
      instance<T, 32, 4, 2, 64, false, true>(names[0]),    instance<T, 32, 4, 1, 64, false, true>(names[1]),
      instance<T, 64, 4, 2, 128, false, false>(names[2]),  instance<T, 64, 4, 2, 64, false, true>(names[3]),
      instance<T, 64, 4, 1, 128, false, true>(names[4]),   instance<T, 96, 4, 2, 64, false, false>(names[5]),
      instance<T, 96, 4, 1, 64, false, true>(names[6]),    instance<T, 128, 4, 2, 64, false, false>(names[7]),
      instance<T, 128, 8, 2, 64, false, false>(names[8]),  instance<T, 128, 4, 1, 64, false, false>(names[9]),
  };
  return {all, 10};
}

template <typename T>
Instances wide(const char* const (&names)[6]) {
  static const Instance all[] = {
      instance<T, 160, 8, 2, 32, false, false>(names[0]), instance<T, 160, 4, 1, 32, false, false>(names[1]),
      instance<T, 192, 8, 1, 64, false, false>(names[2]), instance<T, 192, 4, 1, 32, false, false>(names[3]),
      instance<T, 256, 8, 1, 64, false, true>(names[4]),  instance<T, 256, 4, 1, 32, false, false>(names[5]),
  };
  return {all, 6};
}

template <typename T>
Instances realigning(const char* const (&names)[9]) {
  static const Instance all[] = {
      instance<T, 64, 8, 2, 64, true, false>(names[0]),  instance<T, 64, 4, 1, 32, true, false>(names[1]),
      instance<T, 136, 4, 2, 64, true, false>(names[2]), instance<T, 136, 8, 2, 64, true, false>(names[3]),
      instance<T, 136, 8, 2, 32, true, false>(names[4]), instance<T, 136, 4, 1, 32, true, false>(names[5]),
      instance<T, 192, 8, 1, 32, true, false>(names[6]), instance<T, 256, 8, 1, 32, true, false>(names[7]),
      instance<T, 256, 4, 1, 32, true, false>(names[8]),
  };
  return {all, 9};
}

// With options: fewer sizes, each for a wider range of head_dim. The last of either kind needs the least shared memory.
template <typename T>
Instances general(const char* const (&names)[9]) {
  static const Instance all[] = {
      instance<T, 64, 4, 2, 64, false, false, true>(names[0]),  instance<T, 128, 4, 2, 64, false, false, true>(names[1]),
      instance<T, 192, 8, 1, 64, false, false, true>(names[2]), instance<T, 256, 8, 1, 64, false, false, true>(names[3]),
      instance<T, 256, 4, 1, 32, false, false, true>(names[4]), instance<T, 64, 4, 1, 32, true, false, true>(names[5]),
      instance<T, 136, 4, 2, 64, true, false, true>(names[6]),  instance<T, 256, 8, 1, 32, true, false, true>(names[7]),
      instance<T, 256, 4, 1, 32, true, false, true>(names[8]),
  };
  return {all, 9};
}

}  // namespace cuda_llm_ops::cuda::flash_mma
