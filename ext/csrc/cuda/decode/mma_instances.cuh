// The instances for one element type; the files mma_<type>.cu each compile one type's.
#pragma once

#include "cluster.cuh"
#include "cp_async.cuh"
#include "tma.cuh"

namespace cuda_llm_ops::cuda::decode {

template <ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages, int Groups = 1>
constexpr MmaInstance tma_instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  return {reinterpret_cast<const void*>(&tma_decode<T, HeadDim, TileRows, Warps, Stages, Groups>), name, Type, HeadDim,
          Warps, Groups, TileRows, MmaKind::tma, &TmaShape<HeadDim, TileRows, Warps, Stages, Groups>::shared_bytes};
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

}  // namespace cuda_llm_ops::cuda::decode
