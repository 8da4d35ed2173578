// The tiles of every Hopper kernel, listed once and instantiated for each input type in a translation unit of its own.
#pragma once

#include "multicast.cuh"
#include "persistent.cuh"
#include "split_k.cuh"

namespace cuda_llm_ops::cuda::sm90 {

template <typename T>
constexpr ScalarType kScalarType = ptx::is_bfloat16<T> ? ScalarType::bfloat16 : ScalarType::float16;

constexpr int shared_bytes_a_block(int blocks_per_sm) { return 233472 / blocks_per_sm - 1024; }

// The facts of a kernel that its tile gives.
template <typename Tile>
Kernel kernel_of(const char* name, const void* function, bool swap, int shared_bytes, int blocks_per_sm) {
  Kernel kernel{};
  kernel.name = name;
  kernel.function = function;
  kernel.type = kScalarType<typename Tile::T>;
  kernel.p_mn_major = Tile::p_mn_major != 0;
  kernel.q_mn_major = Tile::q_mn_major != 0;
  kernel.swap = swap;
  kernel.tile_m = Tile::m;
  kernel.tile_n = Tile::n;
  kernel.tile_k = Tile::k;
  kernel.stages = Tile::stages;
  kernel.threads = Tile::threads;
  kernel.shared_bytes = shared_bytes;
  kernel.blocks_per_sm = blocks_per_sm;
  return kernel;
}

template <typename Tile, bool Swap, int BlocksPerSm>
Kernel persistent_kernel(const char* name) {
  constexpr int kShared = persistent_shared_bytes<Tile, BlocksPerSm>();
  static_assert(kShared <= shared_bytes_a_block(BlocksPerSm));
  const auto* const function = reinterpret_cast<const void*>(&persistent_gemm<Tile, Swap, BlocksPerSm>);
  Kernel kernel = kernel_of<Tile>(name, function, Swap, kShared, BlocksPerSm);
  kernel.persistent = true;
  kernel.pingpong = Tile::pingpong;
  return kernel;
}

template <typename Tile, bool Swap, int BlocksPerSm>
Kernel split_k_kernel(const char* name) {
  constexpr int kShared = split_k_shared_bytes<Tile, Swap, BlocksPerSm>();
  static_assert(kShared <= shared_bytes_a_block(BlocksPerSm));
  const auto* const function = reinterpret_cast<const void*>(&split_k_gemm<Tile, Swap, BlocksPerSm>);
  Kernel kernel = kernel_of<Tile>(name, function, Swap, kShared, BlocksPerSm);
  kernel.splits = possible_splits<Tile, Swap, BlocksPerSm>();
  return kernel;
}

template <typename Tile, bool Swap>
Kernel multicast_kernel(const char* name) {
  constexpr int kShared = multicast_shared_bytes<Tile>();
  static_assert(kShared <= shared_bytes_a_block(1));
  const auto* const function = reinterpret_cast<const void*>(&multicast_gemm<Tile, Swap>);
  Kernel kernel = kernel_of<Tile>(name, function, Swap, kShared, 1);
  kernel.multicasts = true;
  kernel.splits = multicast_splits<Tile, Swap>();
  return kernel;
}

// One kernel. Its name: kind, tile m x n x k / stages, then the storage of P and of Q, k for K-major and m for
// MN-major.
#define CUDA_LLM_OPS_MAJOR_0 "k"
#define CUDA_LLM_OPS_MAJOR_1 "m"
#define CUDA_LLM_OPS_NAME(KIND, M, N, K, STAGES, P, Q) \
  KIND " " #M "x" #N "x" #K "/" #STAGES " " CUDA_LLM_OPS_MAJOR_##P CUDA_LLM_OPS_MAJOR_##Q
#define CUDA_LLM_OPS_KERNEL(MAKE, KIND, T, M, N, K, STAGES, WARPGROUPS, P, Q, ...) \
  MAKE<Tile<T, M, N, K, STAGES, WARPGROUPS, P, Q>, __VA_ARGS__>(CUDA_LLM_OPS_NAME(KIND, M, N, K, STAGES, P, Q))

// All storages. The macros that end in KK: weights stored n x k alone, as linear layers have them.
#define CUDA_LLM_OPS_PERSISTENT(T, M, N, K, STAGES, WARPGROUPS, BLOCKS)                                          \
  CUDA_LLM_OPS_KERNEL(persistent_kernel, "persistent", T, M, N, K, STAGES, WARPGROUPS, 0, 0, false, BLOCKS),     \
      CUDA_LLM_OPS_KERNEL(persistent_kernel, "persistent", T, M, N, K, STAGES, WARPGROUPS, 0, 1, false, BLOCKS), \
      CUDA_LLM_OPS_KERNEL(persistent_kernel, "persistent", T, M, N, K, STAGES, WARPGROUPS, 1, 0, false, BLOCKS), \
      CUDA_LLM_OPS_KERNEL(persistent_kernel, "persistent", T, M, N, K, STAGES, WARPGROUPS, 1, 1, false, BLOCKS)
#define CUDA_LLM_OPS_PERSISTENT_KK(T, M, N, K, STAGES, WARPGROUPS, BLOCKS) \
  CUDA_LLM_OPS_KERNEL(persistent_kernel, "persistent", T, M, N, K, STAGES, WARPGROUPS, 0, 0, false, BLOCKS)

// D transposed: P is the weights, of either storage, and Q, the rows of `a` in tiles of any multiple of 8, is K-major.
#define CUDA_LLM_OPS_SWAPPED(T, M, N, K, STAGES, WARPGROUPS, BLOCKS)                                     \
  CUDA_LLM_OPS_KERNEL(persistent_kernel, "swapped", T, M, N, K, STAGES, WARPGROUPS, 0, 0, true, BLOCKS), \
      CUDA_LLM_OPS_KERNEL(persistent_kernel, "swapped", T, M, N, K, STAGES, WARPGROUPS, 1, 0, true, BLOCKS)

#define CUDA_LLM_OPS_SPLIT_K(T, M, N, K, STAGES, WARPGROUPS, BLOCKS)                                       \
  CUDA_LLM_OPS_KERNEL(split_k_kernel, "split_k", T, M, N, K, STAGES, WARPGROUPS, 0, 0, false, BLOCKS),     \
      CUDA_LLM_OPS_KERNEL(split_k_kernel, "split_k", T, M, N, K, STAGES, WARPGROUPS, 0, 1, false, BLOCKS), \
      CUDA_LLM_OPS_KERNEL(split_k_kernel, "split_k", T, M, N, K, STAGES, WARPGROUPS, 1, 0, false, BLOCKS), \
      CUDA_LLM_OPS_KERNEL(split_k_kernel, "split_k", T, M, N, K, STAGES, WARPGROUPS, 1, 1, false, BLOCKS)
#define CUDA_LLM_OPS_SPLIT_K_KK(T, M, N, K, STAGES, WARPGROUPS, BLOCKS) \
  CUDA_LLM_OPS_KERNEL(split_k_kernel, "split_k", T, M, N, K, STAGES, WARPGROUPS, 0, 0, false, BLOCKS)

// D transposed: P is the weights, of either storage; Q, the few rows of `a`, is K-major.
#define CUDA_LLM_OPS_SKINNY(T, M, N, K, STAGES, WARPGROUPS, BLOCKS)                                  \
  CUDA_LLM_OPS_KERNEL(split_k_kernel, "skinny", T, M, N, K, STAGES, WARPGROUPS, 0, 0, true, BLOCKS), \
      CUDA_LLM_OPS_KERNEL(split_k_kernel, "skinny", T, M, N, K, STAGES, WARPGROUPS, 1, 0, true, BLOCKS)

// Ping-pong: two warpgroups take whole tiles in turn.
#define CUDA_LLM_OPS_PINGPONG_KK(T, M, N, K, STAGES)                    \
  persistent_kernel<Tile<T, M, N, K, STAGES, 2, 0, 0, true>, false, 1>( \
      CUDA_LLM_OPS_NAME("pingpong", M, N, K, STAGES, 0, 0))
#define CUDA_LLM_OPS_PINGPONG_SWAPPED(T, M, N, K, STAGES)                  \
  persistent_kernel<Tile<T, M, N, K, STAGES, 2, 0, 0, true>, true, 1>(     \
      CUDA_LLM_OPS_NAME("pingpong_swapped", M, N, K, STAGES, 0, 0)),       \
      persistent_kernel<Tile<T, M, N, K, STAGES, 2, 1, 0, true>, true, 1>( \
          CUDA_LLM_OPS_NAME("pingpong_swapped", M, N, K, STAGES, 1, 0))

// Clusters that share operands by multicast, and split k.
#define CUDA_LLM_OPS_MULTICAST_KK(T, M, N, K, STAGES, WARPGROUPS) \
  CUDA_LLM_OPS_KERNEL(multicast_kernel, "multicast", T, M, N, K, STAGES, WARPGROUPS, 0, 0, false)
#define CUDA_LLM_OPS_MULTICAST_SWAPPED(T, M, N, K, STAGES, WARPGROUPS)                                    \
  CUDA_LLM_OPS_KERNEL(multicast_kernel, "multicast_swapped", T, M, N, K, STAGES, WARPGROUPS, 0, 0, true), \
      CUDA_LLM_OPS_KERNEL(multicast_kernel, "multicast_swapped", T, M, N, K, STAGES, WARPGROUPS, 1, 0, true)

// D transposed for `a` stored k x m, whose rows are columns in memory: Q is MN-major, in whole panels of 64.
#define CUDA_LLM_OPS_OF_COLUMNS(MAKE, KIND, T, M, N, K, STAGES, WARPGROUPS, ...)      \
  CUDA_LLM_OPS_KERNEL(MAKE, KIND, T, M, N, K, STAGES, WARPGROUPS, 0, 1, __VA_ARGS__), \
      CUDA_LLM_OPS_KERNEL(MAKE, KIND, T, M, N, K, STAGES, WARPGROUPS, 1, 1, __VA_ARGS__)
#define CUDA_LLM_OPS_SWAPPED_COLUMNS(T, M, N, K, STAGES, WARPGROUPS) \
  CUDA_LLM_OPS_OF_COLUMNS(persistent_kernel, "swapped", T, M, N, K, STAGES, WARPGROUPS, true, 1)
#define CUDA_LLM_OPS_SKINNY_COLUMNS(T, M, N, K, STAGES, WARPGROUPS) \
  CUDA_LLM_OPS_OF_COLUMNS(split_k_kernel, "skinny", T, M, N, K, STAGES, WARPGROUPS, true, 1)
#define CUDA_LLM_OPS_MULTICAST_COLUMNS(T, M, N, K, STAGES, WARPGROUPS) \
  CUDA_LLM_OPS_OF_COLUMNS(multicast_kernel, "multicast_swapped", T, M, N, K, STAGES, WARPGROUPS, true)
#define CUDA_LLM_OPS_PINGPONG_COLUMNS(T, M, N, K, STAGES)                  \
  persistent_kernel<Tile<T, M, N, K, STAGES, 2, 0, 1, true>, true, 1>(     \
      CUDA_LLM_OPS_NAME("pingpong_swapped", M, N, K, STAGES, 0, 1)),       \
      persistent_kernel<Tile<T, M, N, K, STAGES, 2, 1, 1, true>, true, 1>( \
          CUDA_LLM_OPS_NAME("pingpong_swapped", M, N, K, STAGES, 1, 1))

// clang-format off: one tile a line
template <typename T>
KernelList persistent_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_PERSISTENT(T, 128, 256, 64, 4, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 256, 128, 64, 4, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 192, 192, 64, 4, 3, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 128, 224, 64, 4, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 128, 192, 64, 4, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 128, 144, 64, 5, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 128, 128, 64, 6, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 128, 64, 64, 8, 2, 1),
      CUDA_LLM_OPS_PERSISTENT(T, 64, 128, 64, 4, 1, 2),
      CUDA_LLM_OPS_PERSISTENT(T, 64, 64, 64, 5, 1, 2),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 64, 128, 64, 8, 1, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 64, 112, 64, 9, 1, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 64, 96, 128, 5, 1, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 192, 80, 64, 5, 3, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 192, 120, 64, 5, 3, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 128, 80, 64, 7, 2, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 128, 96, 64, 7, 2, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 128, 112, 64, 7, 2, 1),
      CUDA_LLM_OPS_PERSISTENT_KK(T, 128, 168, 64, 5, 2, 1),
      CUDA_LLM_OPS_PINGPONG_KK(T, 128, 176, 64, 5),
      CUDA_LLM_OPS_PINGPONG_KK(T, 192, 112, 64, 5),
  };
  return kernels;
}

// D transposed, as wide as there are rows of `a`, or as a half or a third of them.
template <typename T>
KernelList swapped_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_SWAPPED(T, 64, 136, 64, 8, 1, 1),
      CUDA_LLM_OPS_SWAPPED(T, 64, 160, 64, 7, 1, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 80, 64, 8, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 96, 64, 7, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 104, 64, 7, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 112, 64, 6, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 120, 64, 6, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 136, 64, 6, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 144, 64, 5, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 152, 64, 5, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 160, 64, 5, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 176, 64, 5, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 192, 64, 5, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 208, 64, 5, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 216, 64, 4, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 224, 64, 4, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 232, 64, 4, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 128, 248, 64, 4, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 80, 64, 5, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 96, 64, 5, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 104, 64, 5, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 112, 64, 5, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 128, 64, 5, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 136, 64, 4, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 160, 64, 4, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 192, 176, 64, 4, 3, 1),
      CUDA_LLM_OPS_SWAPPED(T, 256, 104, 64, 4, 2, 1),
      CUDA_LLM_OPS_SWAPPED(T, 256, 120, 64, 4, 2, 1),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 128, 120, 64, 6),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 128, 136, 64, 5),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 128, 144, 64, 5),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 128, 152, 64, 5),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 128, 168, 64, 5),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 128, 176, 64, 5),
      CUDA_LLM_OPS_PINGPONG_SWAPPED(T, 192, 104, 64, 5),
  };
  return kernels;
}

// The same for `a` stored k x m. Fewer tiles: those that the cost model takes most.
template <typename T>
KernelList swapped_columns_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 64, 136, 64, 6, 1),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 80, 64, 6, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 96, 64, 6, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 112, 64, 6, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 144, 64, 5, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 160, 64, 5, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 176, 64, 5, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 208, 64, 4, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 128, 232, 64, 4, 2),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 192, 80, 64, 5, 3),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 192, 96, 64, 5, 3),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 192, 112, 64, 5, 3),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 192, 136, 64, 4, 3),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 192, 160, 64, 4, 3),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 192, 176, 64, 4, 3),
      CUDA_LLM_OPS_SWAPPED_COLUMNS(T, 256, 120, 64, 4, 2),
      CUDA_LLM_OPS_PINGPONG_COLUMNS(T, 128, 136, 64, 5),
      CUDA_LLM_OPS_PINGPONG_COLUMNS(T, 128, 152, 64, 5),
      CUDA_LLM_OPS_PINGPONG_COLUMNS(T, 128, 168, 64, 5),
      CUDA_LLM_OPS_PINGPONG_COLUMNS(T, 128, 176, 64, 5),
      CUDA_LLM_OPS_PINGPONG_COLUMNS(T, 192, 104, 64, 4),
      CUDA_LLM_OPS_SKINNY_COLUMNS(T, 128, 104, 64, 6, 2),
      CUDA_LLM_OPS_SKINNY_COLUMNS(T, 128, 160, 64, 5, 2),
      CUDA_LLM_OPS_MULTICAST_COLUMNS(T, 64, 80, 64, 9, 1),
      CUDA_LLM_OPS_MULTICAST_COLUMNS(T, 128, 88, 64, 7, 2),
      CUDA_LLM_OPS_MULTICAST_COLUMNS(T, 128, 104, 64, 7, 2),
      CUDA_LLM_OPS_MULTICAST_COLUMNS(T, 128, 120, 64, 7, 2),
  };
  return kernels;
}

template <typename T>
KernelList split_k_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_SPLIT_K(T, 64, 64, 64, 7, 1, 2),
      CUDA_LLM_OPS_SPLIT_K(T, 64, 64, 128, 3, 1, 2),
      CUDA_LLM_OPS_SPLIT_K(T, 128, 128, 128, 3, 2, 1),
      CUDA_LLM_OPS_SPLIT_K(T, 64, 128, 64, 4, 1, 2),
      CUDA_LLM_OPS_SPLIT_K(T, 128, 64, 64, 4, 2, 2),
      CUDA_LLM_OPS_SPLIT_K(T, 128, 64, 64, 9, 2, 1),
      CUDA_LLM_OPS_SPLIT_K(T, 128, 96, 64, 6, 2, 1),
      CUDA_LLM_OPS_SPLIT_K(T, 128, 128, 64, 6, 2, 1),
      CUDA_LLM_OPS_SPLIT_K(T, 64, 256, 64, 5, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 96, 64, 5, 1, 2),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 64, 128, 7, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 40, 128, 8, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 48, 128, 8, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 56, 128, 7, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 72, 128, 6, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 80, 128, 6, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 88, 128, 5, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 96, 128, 5, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 104, 128, 5, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 112, 128, 5, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 120, 128, 4, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 64, 144, 128, 4, 1, 1),
      CUDA_LLM_OPS_SPLIT_K_KK(T, 128, 80, 64, 8, 2, 1),
  };
  return kernels;
}

template <typename T>
KernelList skinny_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_SKINNY(T, 128, 8, 128, 3, 2, 2),
      CUDA_LLM_OPS_SKINNY(T, 128, 16, 64, 6, 2, 2),
      CUDA_LLM_OPS_SKINNY(T, 128, 32, 64, 5, 2, 2),
      CUDA_LLM_OPS_SKINNY(T, 128, 64, 64, 4, 2, 2),
      CUDA_LLM_OPS_SKINNY(T, 64, 8, 128, 6, 1, 2),
      CUDA_LLM_OPS_SKINNY(T, 64, 8, 256, 3, 1, 2),
      CUDA_LLM_OPS_SKINNY(T, 64, 16, 256, 2, 1, 2),
      CUDA_LLM_OPS_SKINNY(T, 64, 16, 128, 5, 1, 2),
      CUDA_LLM_OPS_SKINNY(T, 64, 32, 128, 4, 1, 2),
      CUDA_LLM_OPS_SKINNY(T, 64, 64, 128, 3, 1, 2),
      CUDA_LLM_OPS_SKINNY(T, 128, 104, 64, 7, 2, 1),
      CUDA_LLM_OPS_SKINNY(T, 64, 80, 128, 6, 1, 1),
      CUDA_LLM_OPS_SKINNY(T, 64, 104, 128, 5, 1, 1),
      CUDA_LLM_OPS_SKINNY(T, 64, 160, 64, 7, 1, 1),
      CUDA_LLM_OPS_SKINNY(T, 64, 208, 64, 6, 1, 1),
      CUDA_LLM_OPS_SKINNY(T, 128, 160, 64, 6, 2, 1),
      CUDA_LLM_OPS_SKINNY(T, 128, 168, 64, 6, 2, 1),
  };
  return kernels;
}

// As wide as the rows of `a`, or as a half or a third of them; few tiles, so split.
template <typename T>
KernelList multicast_list() {
  static const Kernel kernels[] = {
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 64, 80, 64, 12, 1),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 64, 96, 64, 11, 1),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 64, 152, 64, 8, 1),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 128, 72, 64, 9, 2),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 128, 88, 64, 8, 2),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 128, 104, 64, 7, 2),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 128, 112, 64, 7, 2),
      CUDA_LLM_OPS_MULTICAST_SWAPPED(T, 128, 120, 64, 7, 2),
      CUDA_LLM_OPS_MULTICAST_KK(T, 64, 96, 64, 11, 1),
      CUDA_LLM_OPS_MULTICAST_KK(T, 128, 96, 64, 8, 2),
  };
  return kernels;
}
// clang-format on

}  // namespace cuda_llm_ops::cuda::sm90
