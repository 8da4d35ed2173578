// FP8 products on the CUDA cores, for GPUs and operands that the kernels for Hopper do not take. A block computes a
// tile of 64 x 64 from slices of 32 of k, widened to float32 in shared memory; a thread holds 4 x 4 sums. It is made to
// be simple, and right.
#include <cuda_fp8.h>

#include <algorithm>

#include "../../arithmetic.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "../numeric.cuh"
#include "groups.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::fp8 {
namespace {

constexpr int kTile = 64, kSlice = 32, kThreads = 256, kMine = 4;
static_assert(kFp8Block % kSlice == 0, "a slice has one scale of a row");

__device__ __forceinline__ float number(Fp8Type type, uint8_t byte) {
  const __half_raw raw = __nv_cvt_fp8_to_halfraw(byte, type == Fp8Type::e4m3 ? __NV_E4M3 : __NV_E5M2);
  return __half2float(__half(raw));
}

// kTile rows from `first` (zeros from `end`) and kSlice columns from `k0`, k-major: into[k][row].
__device__ __forceinline__ void load_slice(float (&into)[kSlice][kTile + 1], const uint8_t* from, int64_t stride,
                                           int first, int end, int k0, int k, Fp8Type type) {
  for (int i = threadIdx.x; i < kTile * kSlice; i += kThreads) {
    const int row = i / kSlice, at = i % kSlice;
    const bool inside = first + row < end && k0 + at < k;
    into[at][row] = inside ? number(type, from[(first + row) * stride + k0 + at]) : 0.0f;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) simt_fp8_gemm(const Fp8GemmArguments g) {
  __shared__ float a[kSlice][kTile + 1], b[kSlice][kTile + 1];
  const int group = blockIdx.z;
  const GroupRows rows = group_rows(g.group_sizes, group, g.capacity, g.m);
  const int row0 = rows.first + blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  if (row0 >= rows.end) return;
  const uint8_t* const a_bytes = static_cast<const uint8_t*>(g.a);
  const uint8_t* const b_bytes = static_cast<const uint8_t*>(g.b) + group * g.b_stride_group;
  const float* const scales_b = g.scale_b + group * g.scale_b_stride_group;
  const int my_row = row0 + threadIdx.x / (kTile / kMine) * kMine;
  const int my_column = column0 + threadIdx.x % (kTile / kMine) * kMine;

  float sums[kMine][kMine] = {};
  for (int k0 = 0; k0 < g.k; k0 += kSlice) {
    __syncthreads();
    load_slice(a, a_bytes, g.a_stride, row0, rows.end, k0, g.k, g.a_type);
    load_slice(b, b_bytes, g.b_stride, column0, g.n, k0, g.k, g.b_type);
    __syncthreads();
    float part[kMine][kMine] = {};
    for (int at = 0; at < kSlice; ++at) {
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
#pragma unroll
        for (int j = 0; j < kMine; ++j) part[i][j] += a[at][my_row - row0 + i] * b[at][my_column - column0 + j];
      }
    }
    const int64_t block = k0 / kFp8Block;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
#pragma unroll
      for (int j = 0; j < kMine; ++j) {
        float factor = 1.0f;
        if (g.block_scales && my_row + i < rows.end && my_column + j < g.n) {
          factor = g.scale_a[(my_row + i) * g.scale_a_stride_m + block * g.scale_a_stride_k] *
                   scales_b[(my_column + j) / g.scale_b_columns * g.scale_b_stride_n + block * g.scale_b_stride_k];
        }
        sums[i][j] += part[i][j] * factor;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      const int row = my_row + i, column = my_column + j;
      if (row >= rows.end || column >= g.n) continue;
      float value = sums[i][j];
      if (!g.block_scales) {
        value *= g.scale_a[row * g.scale_a_stride_m] * scales_b[column * g.scale_b_stride_n];
      }
      if (g.bias != nullptr) value += to_float(static_cast<const T*>(g.bias)[column * g.bias_stride]);
      static_cast<T*>(g.out)[static_cast<int64_t>(row) * g.n + column] = from_float<T>(value);
    }
  }
}

struct Kernel {
  const char* name;
  const void* address;
};

Kernel kernel(ScalarType type) {
  switch (type) {
    case ScalarType::float16: return {"simt float16", reinterpret_cast<const void*>(&simt_fp8_gemm<__half>)};
    case ScalarType::bfloat16: return {"simt bfloat16", reinterpret_cast<const void*>(&simt_fp8_gemm<__nv_bfloat16>)};
    default: return {"simt float32", reinterpret_cast<const void*>(&simt_fp8_gemm<float>)};
  }
}

}  // namespace

const char* simt_gemm(const Fp8GemmArguments& given, cudaStream_t stream) {
  constexpr int kMostTiles = 65535;  // of a grid along y and z
  Fp8GemmArguments g = given;
  const int most_rows = g.capacity > 0 ? g.capacity : g.m;
  const dim3 blocks(static_cast<unsigned>(ceil_div(g.n, kTile)), static_cast<unsigned>(ceil_div(most_rows, kTile)),
                    static_cast<unsigned>(g.groups));
  if (blocks.y > kMostTiles || blocks.z > kMostTiles) return "more rows or groups than a grid of the portable kernel";
  if (g.groups == 0 || g.group_sizes != nullptr) {  // rows that belong to no group; no groups may have no sizes
    const size_t bytes = size_t{1} * g.m * g.n * element_bytes(g.out_type);
    if (const cudaError_t error = cudaMemsetAsync(g.out, 0, bytes, stream); error != cudaSuccess) {
      return error_text(error);
    }
  }
  if (g.groups == 0) return nullptr;
  void* arguments[] = {&g};
  return error_text(cudaLaunchKernel(kernel(g.out_type).address, blocks, dim3(kThreads), arguments, 0, stream));
}

void simt_attributes(std::vector<KernelAttributes>& into) {
  for (const ScalarType type : {ScalarType::float32, ScalarType::float16, ScalarType::bfloat16}) {
    const auto [name, address] = kernel(type);
    add_kernel_attributes("fp8_gemm", name, address, 0, into);
  }
}

}  // namespace cuda_llm_ops::cuda::fp8
