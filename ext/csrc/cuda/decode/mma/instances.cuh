// The instances, listed once; the files mma_<type>.cu each compile one element type's.
#pragma once

#include "cluster.cuh"
#include "cp_async.cuh"
#include "tma.cuh"

namespace cuda_llm_ops::cuda::decode {

template <ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages, int Groups = 1,
          bool ByHead = false>
constexpr MmaInstance tma_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  using Shape = TmaShape<HeadDim, TileRows, Warps, Stages, Groups>;
  return {reinterpret_cast<const void*>(&tma_decode<T, HeadDim, TileRows, Warps, Stages, Groups, ByHead>), name, Type,
          HeadDim, Warps, Groups, TileRows, MmaKind::tma, &Shape::shared_bytes, ByHead};
}

template <ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages>
constexpr MmaInstance cluster_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  return {reinterpret_cast<const void*>(&cluster_decode<T, HeadDim, TileRows, Warps, Stages>), name, Type, HeadDim,
          Warps, 1, TileRows, MmaKind::cluster, &ClusterShape<HeadDim, TileRows, Warps, Stages>::shared_bytes};
}

template <ScalarType Type, int HeadDim, int Warps, int Stages>
constexpr MmaInstance cp_async_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  return {reinterpret_cast<const void*>(&cp_async_decode<T, HeadDim, Warps, Stages>), name, Type, HeadDim, Warps, 1,
          kRows, MmaKind::cp_async, &CpAsyncShape<HeadDim, Warps, Stages>::shared_bytes};
}

// TYPE: of ScalarType.
#define CUDA_LLM_OPS_DECODE_INSTANCES(TYPE)                                           \
  {                                                                                   \
    tma_instance<ScalarType::TYPE, 64, 8, 4, 6>("tma d64 8 rows " #TYPE),             \
    tma_instance<ScalarType::TYPE, 64, 16, 4, 6>("tma d64 16 rows " #TYPE),           \
    tma_instance<ScalarType::TYPE, 128, 8, 4, 3>("tma d128 8 rows " #TYPE),           \
    tma_instance<ScalarType::TYPE, 128, 16, 4, 3>("tma d128 16 rows " #TYPE),         \
    tma_instance<ScalarType::TYPE, 256, 8, 4, 2>("tma d256 8 rows " #TYPE),           \
    tma_instance<ScalarType::TYPE, 256, 16, 4, 2>("tma d256 16 rows " #TYPE),         \
    tma_instance<ScalarType::TYPE, 128, 8, 4, 5, 2>("tma d128 two groups " #TYPE),    \
    tma_instance<ScalarType::TYPE, 128, 8, 4, 5, 2, true>("tma d128 by head " #TYPE), \
    cluster_instance<ScalarType::TYPE, 64, 8, 4, 6>("cluster d64 8 rows " #TYPE),     \
    cluster_instance<ScalarType::TYPE, 64, 16, 4, 6>("cluster d64 16 rows " #TYPE),   \
    cluster_instance<ScalarType::TYPE, 128, 8, 4, 3>("cluster d128 8 rows " #TYPE),   \
    cluster_instance<ScalarType::TYPE, 128, 16, 4, 3>("cluster d128 16 rows " #TYPE), \
    cluster_instance<ScalarType::TYPE, 256, 8, 4, 2>("cluster d256 8 rows " #TYPE),   \
    cluster_instance<ScalarType::TYPE, 256, 16, 4, 2>("cluster d256 16 rows " #TYPE), \
    cp_async_instance<ScalarType::TYPE, 64, 4, 6>("cp.async d64 " #TYPE),             \
    cp_async_instance<ScalarType::TYPE, 128, 4, 3>("cp.async d128 " #TYPE),           \
    cp_async_instance<ScalarType::TYPE, 256, 2, 3>("cp.async d256 " #TYPE)            \
  }

}  // namespace cuda_llm_ops::cuda::decode
