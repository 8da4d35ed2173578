// The quantiser of rows that fit into registers: memory is read once, and all loads of a thread are on their way before
// the first value is used.
//
// A row has some threads, a power of two up to 32 or whole warps; a block has one long row or several short ones. A
// thread loads vectors of eight values, which lie as many vectors apart as the row has threads. So 16 lanes have
// neighbours that share a scale of 128, and need nothing but shuffles. What goes through shared memory is the maximum
// of a row of several warps, and the sum of its squares behind a norm, in one step.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../arithmetic.h"
#include "../numeric.cuh"
#include "../ptx/ex2.cuh"
#include "../ptx/griddepcontrol.cuh"
#include "../ptx/rcp.cuh"
#include "../ptx/special_registers.cuh"
#include "quantise_numbers.cuh"
#include "quantise_plan.h"

namespace cuda_llm_ops::cuda::fp8 {

constexpr unsigned kWholeWarp = 0xffffffffu;

template <typename T>
struct alignas(16) Vector {
  uint32_t words[kVector * sizeof(T) / 4];
};

template <typename T>
__device__ __forceinline__ void unpack(float (&into)[kVector], const Vector<T>& vector) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if constexpr (sizeof(T) == 4) {
      into[i] = __uint_as_float(vector.words[i]);
    } else {
      const float2 pair = unpack_pair<T>(vector.words[i / 2]);
      into[i] = i % 2 == 0 ? pair.x : pair.y;
    }
  }
}

// Else the compiler keeps what the first unpacking gave, in twice the registers.
template <typename T>
__device__ __forceinline__ void hide(Vector<T>& vector) {
#pragma unroll
  for (uint32_t& word : vector.words) word = static_cast<uint32_t>(ptx::opaque(static_cast<int>(word)));
}

template <typename T>
__device__ __forceinline__ Vector<T> load_vector(const T* row, int vector, bool any) {
  return any ? reinterpret_cast<const Vector<T>*>(row)[vector] : Vector<T>{};
}

// The largest magnitude of a vector, as an integer. Of two packed values each is at the top of a word in turn, its sign
// shifted out; what lies below it does not matter.
template <typename T>
__device__ __forceinline__ unsigned largest_of(const Vector<T>& vector) {
  unsigned first = 0, second = 0;
#pragma unroll
  for (const uint32_t word : vector.words) {
    if constexpr (sizeof(T) == 4) {
      first = max(first, word & 0x7fffffffu);
    } else {
      first = max(first, word << 17);
      second = max(second, word << 1);
    }
  }
  if constexpr (sizeof(T) == 4) {
    return first;
  } else {
    return magnitude(unpack_pair<T>(max(first, second) >> 17).x);
  }
}

// x / (1 + exp(-x)). Where the exponential passes 2^126 the result is 0; it is below 1e-36 there.
__device__ __forceinline__ float silu(float x) { return x * ptx::rcp(1.0f + ptx::ex2(-kLog2E * x)); }

// The largest `value` of groups of `lanes` lanes, a power of two.
__device__ __forceinline__ unsigned largest_of_lanes(unsigned value, int lanes) {
  if (lanes == 32) return __reduce_max_sync(kWholeWarp, value);
  for (int step = lanes / 2; step > 0; step /= 2) value = max(value, __shfl_xor_sync(kWholeWarp, value, step));
  return value;
}

__device__ __forceinline__ float sum_of(float value, int lanes) {
  if (lanes == 32) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kWholeWarp, value, step);
    return value;
  }
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kWholeWarp, value, step);
  return value;
}

template <typename T, Fp8Source Source, bool Blocks, int Vectors>
__global__ void __launch_bounds__(kMostRowThreads)
    fp8_rows_in_registers(const Fp8QuantiseArguments q, const QuantisePlan plan) {
  constexpr bool kNorm = Source == Fp8Source::rms_norm;
  __shared__ unsigned tops[kMostRowThreads / 32];
  __shared__ float squares[kMostRowThreads / 32];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
#endif
  const int of_block = plan.rows == 1 ? 0 : static_cast<int>(threadIdx.x) / plan.threads;
  const int thread = static_cast<int>(threadIdx.x) - of_block * plan.threads;
  const int index = static_cast<int>(blockIdx.x) * plan.rows + of_block;  // of all batches' rows
  const int vectors = index < q.batch * q.rows ? q.columns / kVector : 0;
  const int batch = q.batch == 1 ? 0 : index / q.rows, row = index - batch * q.rows;
  const T* const x = static_cast<const T*>(q.x) + batch * q.x_stride_batch + row * q.x_stride;
  const T* const other = static_cast<const T*>(q.other) + batch * q.other_stride_batch + row * q.other_stride;

  Vector<T> given[Vectors], with[Vectors];
#pragma unroll
  for (int j = 0; j < Vectors; ++j) {
    const int vector = thread + j * plan.threads;
    given[j] = load_vector(x, vector, vector < vectors);
    if constexpr (Source != Fp8Source::values) with[j] = load_vector(other, vector, vector < vectors);
  }

  // Values alone stay as they came, in half of the registers. Behind a norm they still lack the row's factor.
  using Kept = std::conditional_t<Source == Fp8Source::values, T, float>;
  Vector<Kept> kept[Vectors];
  unsigned top_of[Vectors];  // as integers; only where 128 values share a scale does each count
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < Vectors; ++j) {
    if constexpr (Source == Fp8Source::values) {
      kept[j] = given[j];
    } else {
      float y[kVector], factors[kVector];
      unpack(y, given[j]);
      unpack(factors, with[j]);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if constexpr (kNorm) sum += y[i] * y[i];
        y[i] = (kNorm ? y[i] : silu(y[i])) * factors[i];
        kept[j].words[i] = __float_as_uint(y[i]);
      }
    }
    top_of[j] = largest_of(kept[j]);
  }

  const int lanes = plan.threads < 32 ? plan.threads : 32, warps = plan.threads / 32;
  unsigned top = 0;
  if ((kNorm || !Blocks) && plan.phase != Phase::numbers) {
#pragma unroll
    for (int j = 0; j < Vectors; ++j) top = max(top, top_of[j]);
    top = largest_of_lanes(top, lanes);
    if constexpr (kNorm) sum = sum_of(sum, lanes);
    if (warps > 1) {
      const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
      if (lane == 0) {
        tops[warp] = top;
        squares[warp] = sum;
      }
      __syncthreads();
      const int from = of_block * warps + lane;
      top = __reduce_max_sync(kWholeWarp, lane < warps ? tops[from] : 0u);
      if constexpr (kNorm) sum = sum_of(lane < warps ? squares[from] : 0.0f, 32);
    }
  }
  float factor = 1.0f;
  if constexpr (kNorm) factor = __frsqrt_rn(sum / static_cast<float>(q.columns) + q.epsilon);

  uint8_t* const numbers = static_cast<uint8_t*>(q.numbers) + static_cast<int64_t>(index) * q.columns;
  // Numbers of values must be those of a division; a float32 may take a second step to that.
  using Over = Quotients<Source != Fp8Source::values ? 0 : sizeof(T) == 2 ? 1 : 2>;
  const auto store = [&](int j, const Over& quotients) {
    const int vector = thread + j * plan.threads;
    float y[kVector];
    hide(kept[j]);
    unpack(y, kept[j]);
    uint32_t words[kVector / 4];
    to_numbers(words, y, quotients, q.to);
    if (vector < vectors) reinterpret_cast<uint2*>(numbers)[vector] = make_uint2(words[0], words[1]);
  };
  const auto scale_of = [&](unsigned largest) { return __fdiv_rn(__uint_as_float(largest) * factor, plan.top); };

  if constexpr (Blocks) {
    const int blocks = (q.columns + kFp8Block - 1) / kFp8Block;
#pragma unroll
    for (int j = 0; j < Vectors; ++j) {
      const int vector = thread + j * plan.threads;
      const float scale = scale_of(largest_of_lanes(top_of[j], kVectorsOfScale));
      if (vector < vectors && vector % kVectorsOfScale == 0) {
        q.scales_out[static_cast<int64_t>(index) * blocks + vector / kVectorsOfScale] = scale;
      }
      store(j, Over(scale, factor));
    }
    return;
  }
  float scale = 0.0f;
  if (plan.phase == Phase::maximum) {
    if (thread == 0 && vectors > 0) atomicMax(reinterpret_cast<unsigned*>(q.scales_out), top);
    return;
  }
  if (plan.phase == Phase::numbers) {
    scale = *q.scales_out;
  } else {
    scale = scale_of(top);
    if (thread == 0 && vectors > 0) q.scales_out[index] = scale;
  }
  const Over quotients(scale, factor);
#pragma unroll
  for (int j = 0; j < Vectors; ++j) store(j, quotients);
}

}  // namespace cuda_llm_ops::cuda::fp8
