// The kernels of sizes.cuh; the files in instances/ compile one list for one type each.
#pragma once

#include <type_traits>

#include "instances.h"
#include "sizes.cuh"

namespace cuda_llm_ops::cuda::backward {

template <typename C>
__global__ void __launch_bounds__(C::threads, C::threads > 128 ? 1 : 2)
    keys_kernel(const __grid_constant__ GeneralParameters p, int tiles) {
  extern __shared__ __align__(128) unsigned char memory[];
  keys_body<C>(p, tiles, memory, static_cast<int>(blockIdx.x));
}

template <typename C>
__global__ void __launch_bounds__(C::threads, C::threads > 128 ? 1 : 2)
    queries_kernel(const __grid_constant__ GeneralParameters p, int tiles) {
  extern __shared__ __align__(128) unsigned char memory[];
  queries_body<C>(p, tiles, memory, static_cast<int>(blockIdx.x));
}

template <typename Size>
MmaInstance mma_instance(const char* keys_name, const char* queries_name) {
  using Keys = typename Size::Keys;
  using Queries = typename Size::Queries;
  static_assert(Keys::head_dim == Queries::head_dim && Keys::value_dim == Queries::value_dim);
  return {
      Keys::head_dim,
      Keys::value_dim,
      {keys_name, reinterpret_cast<const void*>(&keys_kernel<Keys>), Keys::threads, Keys::block_n, Keys::shared_bytes},
      {queries_name, reinterpret_cast<const void*>(&queries_kernel<Queries>), Queries::threads, Queries::block_m,
       Queries::shared_bytes}};
}

// Two names for each type, of a string literal.
#define CUDA_LLM_OPS_BACKWARD(Size, size)                                                               \
  (std::is_same_v<T, __half>                                                                            \
       ? mma_instance<Size<T>>("mma_backward_keys_float16_" size, "mma_backward_queries_float16_" size) \
       : mma_instance<Size<T>>("mma_backward_keys_bfloat16_" size, "mma_backward_queries_bfloat16_" size))

template <typename T>
ArrayView<MmaInstance> mma_narrow() {
  static const MmaInstance all[] = {
      CUDA_LLM_OPS_BACKWARD(Size64, "64"),
      CUDA_LLM_OPS_BACKWARD(Size96, "96"),
      CUDA_LLM_OPS_BACKWARD(Size128, "128"),
  };
  return all;
}

template <typename T>
ArrayView<MmaInstance> mma_wide() {
  static const MmaInstance all[] = {
      CUDA_LLM_OPS_BACKWARD(Size192of128, "192_128"), CUDA_LLM_OPS_BACKWARD(Large192, "192_large"),
      CUDA_LLM_OPS_BACKWARD(Size192, "192"),          CUDA_LLM_OPS_BACKWARD(Large256, "256_large"),
      CUDA_LLM_OPS_BACKWARD(Size256, "256"),
  };
  return all;
}

template <typename T>
ArrayView<MmaInstance> mma_small() {
  static const MmaInstance all[] = {
      CUDA_LLM_OPS_BACKWARD(Small128, "128_small"),
      CUDA_LLM_OPS_BACKWARD(Small192, "192_small"),
      CUDA_LLM_OPS_BACKWARD(Small256, "256_small"),
  };
  return all;
}

}  // namespace cuda_llm_ops::cuda::backward
