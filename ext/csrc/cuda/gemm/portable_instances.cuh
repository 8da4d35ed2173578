// The kernel instances, one explicit instantiation a translation unit, so that they compile side by side.
#pragma once

#include "mma/aligned.cuh"
#include "mma/realigned.cuh"
#include "simt/simt.cuh"

namespace cuda_llm_ops::cuda {

struct KernelInstance {
  const void* function;
  int tile_m, tile_n, tile_k;
  int threads;
  int shared_bytes;
};

// Tiles of the aligned mma.sync kernel, in the order of `aligned_instances`. Three stages of the largest fit the
// 163 KB of an sm_80 block; the others fit the 99 KB of sm_86 and sm_89. Where a tile has few multiplications, warps
// share its k instead of its rows and columns: fragments are reused better, and a tile's latency is shorter.
//                          m    n    k   warps m, n, k  stages  blocks a multiprocessor
using MmaLarge = MmaConfig<128, 256, 64, 2, 4, 1, 3, 1>;
using MmaSquare = MmaConfig<128, 128, 64, 2, 2, 1, 3, 2>;
using MmaWide = MmaConfig<64, 128, 64, 1, 2, 2, 4, 2>;
using MmaMedium = MmaConfig<64, 64, 64, 2, 2, 1, 4, 3>;
using MmaSmall = MmaConfig<64, 32, 128, 1, 1, 4, 4, 2>;
using MmaSkinny = MmaConfig<16, 32, 128, 1, 1, 4, 8, 2>;
constexpr int kAlignedConfigs = 6;

// Tiles of the kernel that realigns lines, in the order of `realigned_instances`.
//                                m    n    k   warps m, n  blocks a multiprocessor
using RealignedLarge = RealignedConfig<128, 128, 64, 4, 4, 1>;
using RealignedMedium = RealignedConfig<64, 128, 64, 2, 4, 2>;
using RealignedFew = RealignedConfig<32, 128, 128, 1, 8, 2>;
using RealignedFewest = RealignedConfig<16, 128, 128, 1, 8, 2>;
constexpr int kRealignedConfigs = 4;

using SimtLarge = SimtConfig<2, 2>;
using SimtSmall = SimtConfig<1, 3>;
constexpr int kSimtConfigs = 2;

template <typename Config, typename Kernel>
KernelInstance make_instance(Kernel* kernel) {
  return {reinterpret_cast<const void*>(kernel),
          Config::tile_m,
          Config::tile_n,
          Config::tile_k,
          Config::threads,
          Config::shared_bytes};
}

// instances[b's layout: 1 if K-major][config], for one element type and one layout of a.
template <typename T, bool AKMajor>
const KernelInstance (&aligned_instances())[2][kAlignedConfigs];

// instances[a's layout][b's layout][config].
template <typename T>
const KernelInstance (&realigned_instances())[2][2][kRealignedConfigs];

const KernelInstance (&simt_instances())[kSimtConfigs];

}  // namespace cuda_llm_ops::cuda
