#include "mma_instances.cuh"

namespace cuda_llm_ops::cuda::decode {

const MmaInstances& mma_float16() {
  constexpr ScalarType type = ScalarType::float16;
  static const MmaInstances all = {
      tma_instance<type, 64, 8, 4, 6>("tma d64 8 rows float16"),
      tma_instance<type, 64, 16, 4, 6>("tma d64 16 rows float16"),
      tma_instance<type, 128, 8, 4, 3>("tma d128 8 rows float16"),
      tma_instance<type, 128, 16, 4, 3>("tma d128 16 rows float16"),
      tma_instance<type, 256, 8, 4, 2>("tma d256 8 rows float16"),
      tma_instance<type, 256, 16, 4, 2>("tma d256 16 rows float16"),
      tma_instance<type, 128, 8, 4, 5, 2>("tma d128 two groups float16"),
      cluster_instance<type, 64, 8, 4, 6>("cluster d64 8 rows float16"),
      cluster_instance<type, 64, 16, 4, 6>("cluster d64 16 rows float16"),
      cluster_instance<type, 128, 8, 4, 3>("cluster d128 8 rows float16"),
      cluster_instance<type, 128, 16, 4, 3>("cluster d128 16 rows float16"),
      cluster_instance<type, 256, 8, 4, 2>("cluster d256 8 rows float16"),
      cluster_instance<type, 256, 16, 4, 2>("cluster d256 16 rows float16"),
      cp_async_instance<type, 64, 4, 6>("cp.async d64 float16"),
      cp_async_instance<type, 128, 4, 3>("cp.async d128 float16"),
      cp_async_instance<type, 256, 2, 3>("cp.async d256 float16"),
  };
  return all;
}

}  // namespace cuda_llm_ops::cuda::decode
