// The entry of the instance table for a configuration: every fact comes from the configuration itself.
#pragma once

#include "../../ptx/wgmma.cuh"
#include "instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

template <typename C>
Instance instance_of(attention::TypedName name, const void* kernel, const Cost& cost) {
  constexpr ScalarType type = ptx::is_bfloat16<typename C::T> ? ScalarType::bfloat16 : ScalarType::float16;
  return {
      .type = type,
      .head_dim = C::head_dim,
      .least_head_dim = C::least_head_dim,
      .value_dim = C::value_dim,
      .block_m = C::block_m * C::cluster,
      .block_n = C::block_n,
      .cluster = C::cluster,
      .realigned = C::realigned,
      .split_keys = C::split_keys,
      .cross_tile = C::cross_tile,
      .stream_k = C::stream_k,
      .cost = cost,
      .realigned_tile_bytes = C::realigned_tile_bytes,
      .part_bytes = C::part_bytes,
      .kernel = {"flash_attention", name.of(type), kernel, C::threads, C::shared_bytes},
  };
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
