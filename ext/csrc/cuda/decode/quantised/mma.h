// The parameters of the tensor-core decode kernels for 8-bit caches, and the compiled instances.
#pragma once

#include "../../../decode_quantised.h"
#include "../mma/mma.h"

namespace cuda_llm_ops::cuda::decode {

constexpr int kWarpKeys = 32;      // of a warp's tile
constexpr int kFewestRows = 4;     // of a tile that has room for a rest beside each weight
constexpr int kWideUnitRows = 32;  // of a unit of wide.cuh, at most

// Strides of the caches, and their tensor maps, count pairs of numbers.
struct QuantisedParameters : MmaParameters {
  const float* k_scale;  // nullptr: 1
  const float* v_scale;
  CacheStrides k_scale_stride, v_scale_stride;
  int token_scales;  // 1 if a token's scale may differ from the next one's, else 0
};

struct QuantisedInstance : MmaInstance {
  CacheType cache_type;
};

using QuantisedInstances = std::array<QuantisedInstance, 7>;
const QuantisedInstances& quantised_e4m3_float16();
const QuantisedInstances& quantised_e4m3_bfloat16();
const QuantisedInstances& quantised_int8_float16();
const QuantisedInstances& quantised_int8_bfloat16();

}  // namespace cuda_llm_ops::cuda::decode
