// What the programs that run every plan of a matrix product share: the plain product that theirs are held against.
#pragma once

#include <cstdint>

#include "device_values.cuh"
#include "kernels.h"

// alpha a b + beta c of one batch, in float32.
template <typename T, typename Out>
__global__ void multiply(const T* a, const T* b, Out* out, cuda_llm_ops::GemmArguments g) {
  for (size_t i = first(); i < size_t(g.m) * g.n; i += step()) {
    const int64_t row = i / g.n, column = i % g.n;
    float sum = 0.0f;
    for (int64_t k = 0; k < g.k; ++k) {
      sum += static_cast<float>(a[row * g.a_stride_m + k * g.a_stride_k]) *
             static_cast<float>(b[k * g.b_stride_k + column * g.b_stride_n]);
    }
    sum *= g.alpha;
    if (g.c != nullptr) {
      sum += g.beta * static_cast<float>(static_cast<const Out*>(g.c)[row * g.c_stride_m + column * g.c_stride_n]);
    }
    out[i] = Out(sum);
  }
}

// Adds to `far` how many of the elements differ by more than is allowed, or are not numbers.
template <typename T>
__global__ void count_far(const T* one, const T* other, size_t count, float allowed, int* far) {
  for (size_t i = first(); i < count; i += step()) {
    if (!(fabsf(static_cast<float>(one[i]) - static_cast<float>(other[i])) <= allowed)) atomicAdd(far, 1);
  }
}
