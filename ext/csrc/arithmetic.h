// Arithmetic that the host code of both backends needs: a rounded-up quotient, and the base-2 logarithm of e.
#pragma once

#include <type_traits>

namespace cuda_llm_ops {

// The quotient of two integers, rounded up. `numerator` is at least 0 and `denominator` at least 1.
template <typename A, typename B>
constexpr std::common_type_t<A, B> ceil_div(A numerator, B denominator) {
  static_assert(std::is_integral_v<A> && std::is_integral_v<B>, "ceil_div divides integers");
  // Not (numerator + denominator - 1) / denominator, which overflows for a numerator near the largest value.
  return numerator / denominator + (numerator % denominator != 0 ? 1 : 0);
}

// log2(e). The kernels compute exp(x) as 2^(x * kLog2E), because the hardware has an instruction for 2^x.
constexpr float kLog2E = 1.4426950408889634f;

}  // namespace cuda_llm_ops
