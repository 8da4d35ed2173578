// The 8-bit numbers of a cache: how four of them in a register become float16, exactly.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "../../numeric.cuh"
#include "../../ptx/cvt.cuh"
#include "../../ptx/cvt_8bit.cuh"

namespace cuda_llm_ops::cuda::decode {

// Both have: in_order(), the first and the second two of four numbers; and interleaved(), the first and third, then the
// second and fourth.
struct E4m3 {
  static __device__ __forceinline__ void in_order(uint32_t (&pairs)[2], uint32_t four) {
    ptx::cvt_rn_f16x2_e4m3(pairs[0], pairs[1], four);
  }
  static __device__ __forceinline__ void interleaved(uint32_t (&pairs)[2], uint32_t four) {
    in_order(pairs, __byte_perm(four, 0u, 0x3120));
  }
};

// The number plus 128 becomes the last bits of a float16 between 1024 and 1279, from which 1152 is subtracted.
struct Int8 {
  static __device__ __forceinline__ uint32_t pair(uint32_t biased, uint32_t selector) {
    const uint32_t raised = __byte_perm(biased, 0x64646464u, selector);
    const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&raised), __float2half2_rn(1152.0f));
    return *reinterpret_cast<const uint32_t*>(&value);
  }
  static __device__ __forceinline__ void in_order(uint32_t (&pairs)[2], uint32_t four) {
    const uint32_t biased = four ^ 0x80808080u;
    pairs[0] = pair(biased, 0x4140), pairs[1] = pair(biased, 0x4342);
  }
  static __device__ __forceinline__ void interleaved(uint32_t (&pairs)[2], uint32_t four) {
    const uint32_t biased = four ^ 0x80808080u;
    pairs[0] = pair(biased, 0x4240), pairs[1] = pair(biased, 0x4341);
  }
};

// The element type of a kernel whose q and out are Out_ and whose cache is Number_. It stands for Out_ where Worker
// stores a row.
template <typename Out_, typename Number_>
struct Cached {
  using Out = Out_;
  using Number = Number_;
  uint16_t bits;
};

// Of a result in float16: what the rounding of a weight to float16 leaves counts (rows.cuh).
template <typename Out>
inline constexpr bool kRests = std::is_same_v<Out, __half>;

}  // namespace cuda_llm_ops::cuda::decode

// For the stores of columns.cuh and cluster.cuh.
#define CUDA_LLM_OPS_STORED_AS_OUT(OUT, NUMBER)                                                                     \
  template <>                                                                                                       \
  __device__ __forceinline__ uint32_t ptx::cvt_rn_x2<cuda::decode::Cached<OUT, cuda::decode::NUMBER>>(float low,    \
                                                                                                      float high) { \
    return ptx::cvt_rn_x2<OUT>(low, high);                                                                          \
  }                                                                                                                 \
  template <>                                                                                                       \
  __device__ __forceinline__ cuda::decode::Cached<OUT, cuda::decode::NUMBER>                                        \
  cuda::from_float<cuda::decode::Cached<OUT, cuda::decode::NUMBER>>(float value) {                                  \
    const OUT rounded = from_float<OUT>(value);                                                                     \
    return {*reinterpret_cast<const uint16_t*>(&rounded)};                                                          \
  }

namespace cuda_llm_ops {
CUDA_LLM_OPS_STORED_AS_OUT(__half, E4m3)
CUDA_LLM_OPS_STORED_AS_OUT(__half, Int8)
CUDA_LLM_OPS_STORED_AS_OUT(__nv_bfloat16, E4m3)
CUDA_LLM_OPS_STORED_AS_OUT(__nv_bfloat16, Int8)
}  // namespace cuda_llm_ops
#undef CUDA_LLM_OPS_STORED_AS_OUT
