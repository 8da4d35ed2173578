// Quantisers to FP8, alone and behind an RMSNorm or a SwiGLU. A block takes a strip: one row, or 128 rows where 128 x
// 128 values share a scale. It reads its values twice or, behind a norm, three times; the later times they come from
// the caches, so that memory is read once.
//
// A warp takes 128 columns at a time, four a lane. Its maximum is the scale's, or goes on to that of the block.
#include <cuda_fp8.h>

#include <algorithm>

#include "../../arithmetic.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "../numeric.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::fp8 {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kLane = 4;
constexpr unsigned kAll = 0xffffffffu;
static_assert(kLane * 32 == kFp8Block, "a warp takes what shares a scale");

// Magnitudes as integers: they order as their numbers do, and NaN lies above infinity.
__device__ __forceinline__ unsigned magnitude(float value) { return __float_as_uint(fabsf(value)); }

template <typename T>
struct alignas(kLane * sizeof(T)) Four {
  T values[kLane];
};

// Four values from `column`, zeros beyond the last. `aligned`: rows begin at multiples of four values.
template <typename T>
__device__ __forceinline__ void load_four(float (&into)[kLane], const T* row, int column, int columns, bool aligned) {
  if (aligned && column + kLane <= columns) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(row + column);
#pragma unroll
    for (int i = 0; i < kLane; ++i) into[i] = to_float(four.values[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kLane; ++i) into[i] = column + i < columns ? to_float(row[column + i]) : 0.0f;
}

template <typename T, Fp8Source Source>
struct Row {
  const T* x;
  const T* other;
  int columns;
  bool aligned;
  float factor = 1.0f;  // of the norm

  __device__ __forceinline__ void values(float (&y)[kLane], int column) const {
    load_four(y, x, column, columns, aligned);
    if constexpr (Source != Fp8Source::values) {
      float with[kLane];
      load_four(with, other, column, columns, aligned);
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        y[i] = Source == Fp8Source::rms_norm ? y[i] * factor * with[i] : y[i] / (1.0f + expf(-y[i])) * with[i];
      }
    }
  }
};

__device__ __forceinline__ unsigned largest_of_warp(unsigned value) { return __reduce_max_sync(kAll, value); }

template <typename T, Fp8Source Source>
__device__ __forceinline__ Row<T, Source> row_of(const Fp8QuantiseArguments& q, bool aligned, int batch, int row) {
  return {static_cast<const T*>(q.x) + batch * q.x_stride_batch + row * q.x_stride,
          static_cast<const T*>(q.other) + batch * q.other_stride_batch + row * q.other_stride, q.columns, aligned};
}

__device__ __forceinline__ uint32_t pack_four(const float (&y)[kLane], float scale, __nv_fp8_interpretation_t to) {
  uint32_t packed = 0;
#pragma unroll
  for (int i = 0; i < kLane; ++i) {
    const float quotient = scale == 0.0f ? 0.0f : __fdiv_rn(y[i], scale);
    packed |= static_cast<uint32_t>(__nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, to)) << 8 * i;
  }
  return packed;
}

__device__ __forceinline__ void store_four(uint8_t* row, int column, int columns, uint32_t packed, bool aligned) {
  if (aligned && column + kLane <= columns) {
    *reinterpret_cast<uint32_t*>(row + column) = packed;
    return;
  }
#pragma unroll
  for (int i = 0; i < kLane; ++i) {
    if (column + i < columns) row[column + i] = static_cast<uint8_t>(packed >> 8 * i);
  }
}

struct Kind {
  bool aligned, out_aligned;
  float top;  // the largest number
  __nv_fp8_interpretation_t to;
};

// Phase of a scale for the whole tensor: its maximum into scales_out[0] as an integer (which began as 0), or the
// numbers. Other kinds do both at once.
enum class Phase { both, maximum, numbers };

template <typename T, Fp8Source Source>
__global__ void __launch_bounds__(kThreads) fp8_rows(const Fp8QuantiseArguments q, const Kind kind, const Phase phase) {
  __shared__ unsigned tops[kWarps];
  __shared__ float squares[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int batch = blockIdx.x / q.rows, index = blockIdx.x % q.rows;
  Row<T, Source> row = row_of<T, Source>(q, kind.aligned, batch, index);
  uint8_t* const numbers = static_cast<uint8_t*>(q.numbers) + static_cast<int64_t>(blockIdx.x) * q.columns;

  if constexpr (Source == Fp8Source::rms_norm) {
    float sum = 0.0f;
    for (int column = threadIdx.x * kLane; column < q.columns; column += kThreads * kLane) {
      float x[kLane];
      load_four(x, row.x, column, q.columns, kind.aligned);
#pragma unroll
      for (int i = 0; i < kLane; ++i) sum += x[i] * x[i];
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
    if (lane == 0) squares[warp] = sum;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += squares[w];
    row.factor = 1.0f / sqrtf(total / static_cast<float>(q.columns) + q.epsilon);
  }

  if (q.scales == Fp8Scales::row_block) {
    const int blocks = (q.columns + kFp8Block - 1) / kFp8Block;
    for (int block = warp; block < blocks; block += kWarps) {
      const int column = block * kFp8Block + lane * kLane;
      float y[kLane];
      row.values(y, column);
      const unsigned mine = max(max(magnitude(y[0]), magnitude(y[1])), max(magnitude(y[2]), magnitude(y[3])));
      const float scale = __fdiv_rn(__uint_as_float(largest_of_warp(mine)), kind.top);
      if (lane == 0) q.scales_out[static_cast<int64_t>(blockIdx.x) * blocks + block] = scale;
      store_four(numbers, column, q.columns, pack_four(y, scale, kind.to), kind.out_aligned);
    }
    return;
  }

  float scale = 0.0f;
  if (phase != Phase::numbers) {
    unsigned mine = 0;
    for (int column = threadIdx.x * kLane; column < q.columns; column += kThreads * kLane) {
      float y[kLane];
      row.values(y, column);
#pragma unroll
      for (int i = 0; i < kLane; ++i) mine = max(mine, magnitude(y[i]));
    }
    mine = largest_of_warp(mine);
    if (lane == 0) tops[warp] = mine;
    __syncthreads();
    unsigned top = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = max(top, tops[w]);
    if (phase == Phase::maximum) {
      if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(q.scales_out), top);
      return;
    }
    scale = __fdiv_rn(__uint_as_float(top), kind.top);
    if (threadIdx.x == 0) q.scales_out[blockIdx.x] = scale;
  } else {
    scale = *q.scales_out;
  }
  for (int column = threadIdx.x * kLane; column < q.columns; column += kThreads * kLane) {
    float y[kLane];
    row.values(y, column);
    store_four(numbers, column, q.columns, pack_four(y, scale, kind.to), kind.out_aligned);
  }
}

// The maximum that fp8_rows left becomes the scale.
__global__ void fp8_finish_scale(float* scale, float top) { *scale = __fdiv_rn(*scale, top); }

// A block takes 128 x 128 values of one scale; a warp 16 of their rows, which it keeps in registers.
template <typename T>
__global__ void __launch_bounds__(kThreads) fp8_squares(const Fp8QuantiseArguments q, const Kind kind) {
  constexpr int kRows = kFp8Block / kWarps;
  __shared__ unsigned tops[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int strips = (q.rows + kFp8Block - 1) / kFp8Block;
  const int batch = blockIdx.y / strips, strip = blockIdx.y % strips;
  const int column = blockIdx.x * kFp8Block + lane * kLane;
  float y[kRows][kLane];
  unsigned mine = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int index = strip * kFp8Block + i * kWarps + warp;
#pragma unroll
    for (int j = 0; j < kLane; ++j) y[i][j] = 0.0f;
    if (index < q.rows) row_of<T, Fp8Source::values>(q, kind.aligned, batch, index).values(y[i], column);
#pragma unroll
    for (int j = 0; j < kLane; ++j) mine = max(mine, magnitude(y[i][j]));
  }
  mine = largest_of_warp(mine);
  if (lane == 0) tops[warp] = mine;
  __syncthreads();
  unsigned top = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = max(top, tops[w]);
  const float scale = __fdiv_rn(__uint_as_float(top), kind.top);
  if (threadIdx.x == 0) q.scales_out[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = scale;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int index = strip * kFp8Block + i * kWarps + warp;
    if (index >= q.rows) continue;
    uint8_t* const numbers =
        static_cast<uint8_t*>(q.numbers) + (static_cast<int64_t>(batch) * q.rows + index) * q.columns;
    store_four(numbers, column, q.columns, pack_four(y[i], scale, kind.to), kind.out_aligned);
  }
}

struct Kernels {
  const char* name;
  const void* rows[3];  // by Fp8Source
  const void* squares;
};

template <typename T>
Kernels kernels_of(const char* name) {
  return {name,
          {reinterpret_cast<const void*>(&fp8_rows<T, Fp8Source::values>),
           reinterpret_cast<const void*>(&fp8_rows<T, Fp8Source::rms_norm>),
           reinterpret_cast<const void*>(&fp8_rows<T, Fp8Source::swiglu>)},
          reinterpret_cast<const void*>(&fp8_squares<T>)};
}

Kernels kernels_of(ScalarType type) {
  switch (type) {
    case ScalarType::float16: return kernels_of<__half>("float16");
    case ScalarType::bfloat16: return kernels_of<__nv_bfloat16>("bfloat16");
    default: return kernels_of<float>("float32");
  }
}

}  // namespace

void quantise_attributes(std::vector<KernelAttributes>& into) {
  for (const ScalarType type : {ScalarType::float32, ScalarType::float16, ScalarType::bfloat16}) {
    const Kernels kernels = kernels_of(type);
    const char* const families[] = {"quantize_fp8", "rms_norm_fp8", "swiglu_fp8"};
    for (int i = 0; i < 3; ++i) add_kernel_attributes(families[i], kernels.name, kernels.rows[i], 0, into);
    add_kernel_attributes("quantize_fp8 128x128", kernels.name, kernels.squares, 0, into);
  }
}

}  // namespace cuda_llm_ops::cuda::fp8

namespace cuda_llm_ops::cuda {

const char* fp8_quantise(const Fp8QuantiseArguments& given, void* on) {
  using namespace fp8;
  const auto stream = static_cast<cudaStream_t>(on);
  Fp8QuantiseArguments q = given;
  const Kernels kernels = kernels_of(q.type);
  const int item = element_bytes(q.type);
  const auto fits = [&](const void* pointer, int64_t stride, int64_t stride_batch, int bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0 && stride % kLane == 0 && stride_batch % kLane == 0;
  };
  Kind kind{fits(q.x, q.x_stride, q.x_stride_batch, kLane * item) &&
                fits(q.other, q.other_stride, q.other_stride_batch, kLane * item),
            q.columns % kLane == 0, q.to == Fp8Type::e4m3 ? 448.0f : 57344.0f,
            q.to == Fp8Type::e4m3 ? __NV_E4M3 : __NV_E5M2};
  if (q.scales == Fp8Scales::square_block) {
    const dim3 blocks(static_cast<unsigned>(ceil_div(q.columns, kFp8Block)),
                      static_cast<unsigned>(q.batch * ceil_div(q.rows, kFp8Block)));
    if (blocks.y > 65535) return "more rows than a grid of blocks of 128 x 128 holds: 65535 times 128";
    void* arguments[] = {&q, &kind};
    return error_text(cudaLaunchKernel(kernels.squares, blocks, dim3(kThreads), arguments, 0, stream));
  }
  const dim3 blocks(static_cast<unsigned>(q.batch) * static_cast<unsigned>(q.rows));
  Phase phase = Phase::both;
  void* arguments[] = {&q, &kind, &phase};
  const auto launch = [&] {
    return cudaLaunchKernel(kernels.rows[static_cast<int>(q.source)], blocks, dim3(kThreads), arguments, 0, stream);
  };
  if (q.scales != Fp8Scales::tensor) return error_text(launch());
  cudaError_t error = cudaMemsetAsync(q.scales_out, 0, sizeof(float), stream);
  phase = Phase::maximum;
  if (error == cudaSuccess) error = launch();
  if (error != cudaSuccess) return error_text(error);
  void* finish[] = {&q.scales_out, &kind.top};
  error = cudaLaunchKernel(reinterpret_cast<const void*>(&fp8_finish_scale), dim3(1), dim3(1), finish, 0, stream);
  phase = Phase::numbers;
  if (error == cudaSuccess) error = launch();
  return error_text(error);
}

}  // namespace cuda_llm_ops::cuda
