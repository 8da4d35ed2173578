// The instances, listed once; the files in instances/ each compile those of one cache type and one element type.
#pragma once

#include "cluster.cuh"
#include "tma.cuh"

namespace cuda_llm_ops::cuda::decode {

template <typename Number>
struct CacheTypeOf;
template <>
struct CacheTypeOf<E4m3> {
  static constexpr CacheType value = CacheType::e4m3;
};
template <>
struct CacheTypeOf<Int8> {
  static constexpr CacheType value = CacheType::int8;
};

template <typename Number, ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages, int Groups,
          bool Wide = false>
constexpr QuantisedInstance quantised_tma_instance(const char* name) {
  using T = Cached<typename ElementOf<Type>::type, Number>;
  return {{.address =
               reinterpret_cast<const void*>(&quantised_tma_decode<T, HeadDim, TileRows, Warps, Stages, Groups, Wide>),
           .name = name,
           .type = Type,
           .head_dim = HeadDim,
           .warps = Warps,
           .block_keys = QuantisedTmaShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>::block_keys,
           .groups = Groups,
           .tile_rows = TileRows,
           .kind = MmaKind::tma,
           .shared_bytes = &QuantisedTmaShape<HeadDim, TileRows, Warps, Stages, Groups, Wide>::shared_bytes,
           .wide = Wide},
          CacheTypeOf<Number>::value};
}

template <typename Number, ScalarType Type, int HeadDim, int TileRows, int Warps, int Stages>
constexpr QuantisedInstance quantised_cluster_instance(const char* name) {
  using T = Cached<typename ElementOf<Type>::type, Number>;
  return {{.address = reinterpret_cast<const void*>(&quantised_cluster_decode<T, HeadDim, TileRows, Warps, Stages>),
           .name = name,
           .type = Type,
           .head_dim = HeadDim,
           .warps = Warps,
           .block_keys = Warps * kWarpKeys,
           .groups = 1,
           .tile_rows = TileRows,
           .kind = MmaKind::cluster,
           .shared_bytes = &QuantisedClusterShape<HeadDim, TileRows, Warps, Stages>::shared_bytes,
           .per_sm = kClusterBlocks<T, TileRows>},
          CacheTypeOf<Number>::value};
}

// NUMBER: E4m3 or Int8. TYPE: of ScalarType, that of q and out. NAME: of both.
#define CUDA_LLM_OPS_QUANTISED_INSTANCES(NUMBER, TYPE, NAME)                                           \
  {quantised_tma_instance<NUMBER, ScalarType::TYPE, 128, 4, 4, 4, 2>("tma d128 4 rows " NAME),         \
   quantised_tma_instance<NUMBER, ScalarType::TYPE, 128, 8, 4, 4, 2>("tma d128 8 rows " NAME),         \
   quantised_tma_instance<NUMBER, ScalarType::TYPE, 128, 16, 8, 4, 1, true>("tma d128 16 rows " NAME), \
   quantised_tma_instance<NUMBER, ScalarType::TYPE, 128, 32, 8, 4, 1, true>("tma d128 32 rows " NAME), \
   quantised_cluster_instance<NUMBER, ScalarType::TYPE, 128, 4, 4, 3>("cluster d128 4 rows " NAME),    \
   quantised_cluster_instance<NUMBER, ScalarType::TYPE, 128, 8, 4, 3>("cluster d128 8 rows " NAME),    \
   quantised_cluster_instance<NUMBER, ScalarType::TYPE, 128, 16, 4, 3>("cluster d128 16 rows " NAME)}

}  // namespace cuda_llm_ops::cuda::decode
