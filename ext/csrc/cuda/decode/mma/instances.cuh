// The instances, listed once; the files mma_<type>.cu each compile one element type's.
#pragma once

#include "cluster.cuh"
#include "cp_async.cuh"
#include "tma.cuh"

namespace cuda_llm_ops::cuda::decode {

template <ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages, int Groups = 1, bool ByHead = false,
          bool Wide = false>
constexpr MmaInstance tma_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  return {
      .address = reinterpret_cast<const void*>(&tma_decode<T, HeadDim, TileRows, Warps, Stages, Groups, ByHead, Wide>),
      .name = name,
      .type = Type,
      .head_dim = HeadDim,
      .warps = Warps,
      .block_keys = TmaShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>::block_keys,
      .groups = Groups,
      .tile_rows = TileRows,
      .kind = MmaKind::tma,
      .shared_bytes = &TmaShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>::shared_bytes,
      .by_head = ByHead,
      .wide = Wide};
}

template <ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages>
constexpr MmaInstance wide_instance(const char* name) {
  return tma_instance<Type, HeadDim, TileRows, Warps, Stages, 1, false, true>(name);
}

template <ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages>
constexpr MmaInstance cluster_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  return {.address = reinterpret_cast<const void*>(&cluster_decode<T, HeadDim, TileRows, Warps, Stages>),
          .name = name,
          .type = Type,
          .head_dim = HeadDim,
          .warps = Warps,
          .block_keys = Warps * kTileKeys,
          .groups = 1,
          .tile_rows = TileRows,
          .kind = MmaKind::cluster,
          .shared_bytes = &ClusterShape<HeadDim, TileRows, Warps, Stages>::shared_bytes};
}

template <ScalarType Type, int HeadDim, int Warps, int Stages>
constexpr MmaInstance cp_async_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  return {.address = reinterpret_cast<const void*>(&cp_async_decode<T, HeadDim, Warps, Stages>),
          .name = name,
          .type = Type,
          .head_dim = HeadDim,
          .warps = Warps,
          .block_keys = Warps * kTileKeys,
          .groups = 1,
          .tile_rows = kRows,
          .kind = MmaKind::cp_async,
          .shared_bytes = &CpAsyncShape<HeadDim, Warps, Stages>::shared_bytes};
}

// TYPE: of ScalarType.
#define CUDA_LLM_OPS_DECODE_INSTANCES(TYPE)                                          \
  {tma_instance<ScalarType::TYPE, 64, 8, 4, 6>("tma d64 8 rows " #TYPE),             \
   tma_instance<ScalarType::TYPE, 64, 16, 4, 6>("tma d64 16 rows " #TYPE),           \
   tma_instance<ScalarType::TYPE, 128, 8, 4, 3>("tma d128 8 rows " #TYPE),           \
   tma_instance<ScalarType::TYPE, 128, 16, 4, 3>("tma d128 16 rows " #TYPE),         \
   tma_instance<ScalarType::TYPE, 256, 8, 4, 2>("tma d256 8 rows " #TYPE),           \
   tma_instance<ScalarType::TYPE, 256, 16, 4, 2>("tma d256 16 rows " #TYPE),         \
   tma_instance<ScalarType::TYPE, 128, 8, 4, 5, 2>("tma d128 two groups " #TYPE),    \
   tma_instance<ScalarType::TYPE, 128, 8, 4, 5, 2, true>("tma d128 by head " #TYPE), \
   wide_instance<ScalarType::TYPE, 64, 32, 8, 8>("tma d64 32 rows " #TYPE),          \
   wide_instance<ScalarType::TYPE, 64, 64, 8, 8>("tma d64 64 rows " #TYPE),          \
   wide_instance<ScalarType::TYPE, 128, 32, 8, 5>("tma d128 32 rows " #TYPE),        \
   wide_instance<ScalarType::TYPE, 128, 64, 8, 5>("tma d128 64 rows " #TYPE),        \
   cluster_instance<ScalarType::TYPE, 64, 8, 4, 6>("cluster d64 8 rows " #TYPE),     \
   cluster_instance<ScalarType::TYPE, 64, 16, 4, 6>("cluster d64 16 rows " #TYPE),   \
   cluster_instance<ScalarType::TYPE, 128, 8, 4, 3>("cluster d128 8 rows " #TYPE),   \
   cluster_instance<ScalarType::TYPE, 128, 16, 4, 3>("cluster d128 16 rows " #TYPE), \
   cluster_instance<ScalarType::TYPE, 256, 8, 4, 2>("cluster d256 8 rows " #TYPE),   \
   cluster_instance<ScalarType::TYPE, 256, 16, 4, 2>("cluster d256 16 rows " #TYPE), \
   cp_async_instance<ScalarType::TYPE, 64, 4, 6>("cp.async d64 " #TYPE),             \
   cp_async_instance<ScalarType::TYPE, 128, 4, 3>("cp.async d128 " #TYPE),           \
   cp_async_instance<ScalarType::TYPE, 256, 2, 3>("cp.async d256 " #TYPE)}

}  // namespace cuda_llm_ops::cuda::decode
