// Quantisers to FP8, alone and behind an RMSNorm or a SwiGLU: the choice of a kernel, and the kernels for what
// quantise_rows.cuh does not take. Rows that are longer than registers hold, or that begin anywhere, are read twice or,
// behind a norm, three times; the later times they come from the caches. A block takes a strip: one row, or 128 rows
// where 128 x 128 values share a scale, which it keeps in registers.
//
// A warp takes 128 columns at a time, four a lane. Its maximum is the scale's, or goes on to that of the block.
#include <algorithm>
#include <iterator>

#include "../../arithmetic.h"
#include "../device.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "../launch_config.h"
#include "../numeric.cuh"
#include "kernels.h"
#include "quantise_numbers.cuh"
#include "quantise_plan.h"
#include "quantise_rows.cuh"

namespace cuda_llm_ops::cuda::fp8 {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kLane = 4;
constexpr unsigned kAll = 0xffffffffu;
static_assert(kLane * 32 == kFp8Block, "a warp takes what shares a scale");

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

using Over = Quotients<2>;

__device__ __forceinline__ uint32_t pack_four(float (&y)[kLane], const Over& quotients, Fp8Type to) {
  uint32_t packed[1];
  to_numbers(packed, y, quotients, to);
  return packed[0];
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

template <typename T, Fp8Source Source>
__global__ void __launch_bounds__(kThreads) fp8_rows(const Fp8QuantiseArguments q, const QuantisePlan plan) {
  __shared__ unsigned tops[kWarps];
  __shared__ float squares[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int batch = blockIdx.x / q.rows, index = blockIdx.x % q.rows;
  Row<T, Source> row = row_of<T, Source>(q, plan.aligned, batch, index);
  uint8_t* const numbers = static_cast<uint8_t*>(q.numbers) + static_cast<int64_t>(blockIdx.x) * q.columns;

  if constexpr (Source == Fp8Source::rms_norm) {
    float sum = 0.0f;
    for (int column = threadIdx.x * kLane; column < q.columns; column += kThreads * kLane) {
      float x[kLane];
      load_four(x, row.x, column, q.columns, plan.aligned);
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
      const float scale = __fdiv_rn(__uint_as_float(largest_of_warp(mine)), plan.top);
      if (lane == 0) q.scales_out[static_cast<int64_t>(blockIdx.x) * blocks + block] = scale;
      const Over quotients(scale);
      store_four(numbers, column, q.columns, pack_four(y, quotients, q.to), plan.out_aligned);
    }
    return;
  }

  float scale = 0.0f;
  if (plan.phase != Phase::numbers) {
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
    if (plan.phase == Phase::maximum) {
      if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(q.scales_out), top);
      return;
    }
    scale = __fdiv_rn(__uint_as_float(top), plan.top);
    if (threadIdx.x == 0) q.scales_out[blockIdx.x] = scale;
  } else {
    scale = *q.scales_out;
  }
  const Over quotients(scale);
  for (int column = threadIdx.x * kLane; column < q.columns; column += kThreads * kLane) {
    float y[kLane];
    row.values(y, column);
    store_four(numbers, column, q.columns, pack_four(y, quotients, q.to), plan.out_aligned);
  }
}

// The maximum that was left becomes the scale.
__global__ void fp8_finish_scale(const Fp8QuantiseArguments q, const QuantisePlan plan) {
  if (threadIdx.x == 0) *q.scales_out = __fdiv_rn(*q.scales_out, plan.top);
}

// A block takes 128 x 128 values of one scale; a warp 16 of their rows, which it keeps in registers.
template <typename T>
__global__ void __launch_bounds__(kThreads) fp8_squares(const Fp8QuantiseArguments q, const QuantisePlan plan) {
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
    if (index < q.rows) row_of<T, Fp8Source::values>(q, plan.aligned, batch, index).values(y[i], column);
#pragma unroll
    for (int j = 0; j < kLane; ++j) mine = max(mine, magnitude(y[i][j]));
  }
  mine = largest_of_warp(mine);
  if (lane == 0) tops[warp] = mine;
  __syncthreads();
  unsigned top = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = max(top, tops[w]);
  const float scale = __fdiv_rn(__uint_as_float(top), plan.top);
  if (threadIdx.x == 0) q.scales_out[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = scale;
  const Over quotients(scale);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int index = strip * kFp8Block + i * kWarps + warp;
    if (index >= q.rows) continue;
    uint8_t* const numbers =
        static_cast<uint8_t*>(q.numbers) + (static_cast<int64_t>(batch) * q.rows + index) * q.columns;
    store_four(numbers, column, q.columns, pack_four(y[i], quotients, q.to), plan.out_aligned);
  }
}

constexpr int kEach[] = {1, 2, 4};  // vectors that a thread keeps

struct Kernels {
  const char* name;
  const void* registers[3][2][3];  // by Fp8Source, whether 128 values share a scale, and kEach; nullptr: none
  const void* rows[3];             // by Fp8Source
  const void* squares;
};

template <typename T, Fp8Source Source, bool Blocks>
void add_registers(const void* (&into)[3]) {
  into[0] = reinterpret_cast<const void*>(&fp8_rows_in_registers<T, Source, Blocks, 1>);
  into[1] = reinterpret_cast<const void*>(&fp8_rows_in_registers<T, Source, Blocks, 2>);
  if constexpr (sizeof(T) == 2) into[2] = reinterpret_cast<const void*>(&fp8_rows_in_registers<T, Source, Blocks, 4>);
}

template <typename T, Fp8Source Source>
void add_source(Kernels& into) {
  constexpr int kSource = static_cast<int>(Source);
  add_registers<T, Source, false>(into.registers[kSource][0]);
  add_registers<T, Source, true>(into.registers[kSource][1]);
  into.rows[kSource] = reinterpret_cast<const void*>(&fp8_rows<T, Source>);
}

template <typename T>
Kernels kernels_of(const char* name) {
  Kernels kernels{name, {}, {}, reinterpret_cast<const void*>(&fp8_squares<T>)};
  add_source<T, Fp8Source::values>(kernels);
  add_source<T, Fp8Source::rms_norm>(kernels);
  add_source<T, Fp8Source::swiglu>(kernels);
  return kernels;
}

Kernels kernels_of(ScalarType type) {
  switch (type) {
    case ScalarType::float16: return kernels_of<__half>("float16");
    case ScalarType::bfloat16: return kernels_of<__nv_bfloat16>("bfloat16");
    default: return kernels_of<float>("float32");
  }
}

// Whether every row of a tensor begins at a multiple of `values`.
bool begins_aligned(const void* pointer, int64_t stride, int64_t stride_batch, int values, int item) {
  const int bytes = values * item < 16 ? values * item : 16;
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0 && stride * item % bytes == 0 &&
         stride_batch * item % bytes == 0;
}

bool inputs_aligned(const Fp8QuantiseArguments& q, int values) {
  const int item = element_bytes(q.type);
  return begins_aligned(q.x, q.x_stride, q.x_stride_batch, values, item) &&
         begins_aligned(q.other, q.other_stride, q.other_stride_batch, values, item);
}

// The kernel for rows of this plan.
const void* rows_kernel(const Kernels& kernels, const Fp8QuantiseArguments& q, const QuantisePlan& plan) {
  const int source = static_cast<int>(q.source);
  if (plan.threads == 0) return kernels.rows[source];
  const int each = static_cast<int>(std::find(std::begin(kEach), std::end(kEach), plan.vectors) - std::begin(kEach));
  return kernels.registers[source][q.scales == Fp8Scales::row_block][each];
}

}  // namespace

void quantise_attributes(std::vector<KernelAttributes>& into) {
  for (const ScalarType type : {ScalarType::float32, ScalarType::float16, ScalarType::bfloat16}) {
    const Kernels kernels = kernels_of(type);
    const char* const families[] = {"quantize_fp8", "rms_norm_fp8", "swiglu_fp8"};
    for (int i = 0; i < 3; ++i) {
      add_kernel_attributes(families[i], kernels.name, kernels.rows[i], 0, into);
      for (const auto& of_scales : kernels.registers[i]) {
        for (const void* kernel : of_scales) {
          if (kernel != nullptr) add_kernel_attributes(families[i], kernels.name, kernel, 0, into);
        }
      }
    }
    add_kernel_attributes("quantize_fp8 128x128", kernels.name, kernels.squares, 0, into);
  }
}

}  // namespace cuda_llm_ops::cuda::fp8

namespace cuda_llm_ops::cuda {

const char* fp8_quantise(const Fp8QuantiseArguments& given, void* on) {
  using namespace fp8;
  const auto stream = static_cast<cudaStream_t>(on);
  Fp8QuantiseArguments q = given;
  QuantisePlan plan;
  plan.top = q.to == Fp8Type::e4m3 ? 448.0f : 57344.0f;
  plan.aligned = inputs_aligned(q, kLane);
  plan.out_aligned = q.columns % kLane == 0;
  const Kernels kernels = kernels_of(q.type);
  void* arguments[] = {&q, &plan};
  if (q.scales == Fp8Scales::square_block) {
    const dim3 blocks(static_cast<unsigned>(ceil_div(q.columns, kFp8Block)),
                      static_cast<unsigned>(q.batch * ceil_div(q.rows, kFp8Block)));
    if (blocks.y > 65535) return "more rows than a grid of blocks of 128 x 128 holds: 65535 times 128";
    return error_text(LaunchConfig(blocks, kThreads, 0, stream).launch(kernels.squares, arguments));
  }
  const DeviceFacts device = current_device_or_none();
  if (q.columns % kVector == 0 && inputs_aligned(q, kVector)) plan_rows(q, device.multiprocessors, plan);
  const void* const kernel = rows_kernel(kernels, q, plan);
  const int rows = q.batch * q.rows;
  const bool registers = plan.threads > 0;
  LaunchConfig config(dim3(static_cast<unsigned>(registers ? ceil_div(rows, plan.rows) : rows)),
                      registers ? plan.threads * plan.rows : kThreads, 0, stream);
  if (q.scales != Fp8Scales::tensor) {
    // Only these wait for what comes before them. Others follow a launch of their own.
    if (registers && device.capability >= 90) config.early();
    return error_text(config.launch(kernel, arguments));
  }
  cudaError_t error = cudaMemsetAsync(q.scales_out, 0, sizeof(float), stream);
  plan.phase = Phase::maximum;
  if (error == cudaSuccess) error = config.launch(kernel, arguments);
  if (error == cudaSuccess) {
    error = LaunchConfig(dim3(1), 32, 0, stream).launch(reinterpret_cast<const void*>(&fp8_finish_scale), arguments);
  }
  plan.phase = Phase::numbers;
  if (error == cudaSuccess) error = config.launch(kernel, arguments);
  return error_text(error);
}

}  // namespace cuda_llm_ops::cuda
