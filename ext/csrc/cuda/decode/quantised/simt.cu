// Decode of 8-bit caches for what the tensor-core kernels do not take: float32 queries, rows that are not multiples of
// 16 bytes, other GPUs. As ../simt/simt.cu: a block is one query row; its warps take the keys in turn, each with an
// online softmax of its own, and merge at the end.
#include <cuda_fp8.h>

#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../numeric.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::decode {
namespace {

constexpr int kWarps = 8;
constexpr int kPerLane = 8;  // head_dim is at most 256
constexpr int kRun = 32;     // keys whose values are added up before they join the warp's sums: so roundings stay few
constexpr unsigned kAll = 0xffffffffu;

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

__device__ __forceinline__ float number(CacheType type, uint8_t byte) {
  if (type == CacheType::int8) return static_cast<float>(static_cast<int8_t>(byte));
  const __half_raw raw = __nv_cvt_fp8_to_halfraw(byte, __NV_E4M3);
  return __half2float(__half(raw));
}

template <typename T>
__global__ void __launch_bounds__(kWarps * 32) quantised_simt_decode(const QuantisedDecodeArguments a) {
  __shared__ float rows[kWarps][256], maxima[kWarps], sums[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int query = blockIdx.x % a.seq_q, pair = blockIdx.x / a.seq_q;
  const int head = pair % a.heads, batch = pair / a.heads;
  const int kv_head = head / (a.heads / a.kv_heads);
  const T* const q =
      static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head + query * a.q_stride.seq;
  const int len = min(max(a.cache_lens[batch * a.lens_stride], 0), a.capacity);
  const int seen = len - (a.seq_q - 1 - query);

  float mine[kPerLane], acc[kPerLane], run[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    mine[i] = lane + 32 * i < a.head_dim ? to_float(q[lane + 32 * i]) : 0.0f;
    acc[i] = run[i] = 0.0f;
  }
  float maximum = -INFINITY, sum = 0.0f, run_sum = 0.0f;
  const auto end_run = [&] {
    sum += run_sum;
    run_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) acc[i] += run[i], run[i] = 0.0f;
  };
  int in_run = 0;
  for (int j = warp; j < seen; j += kWarps) {
    const int slot = j % a.page_size;
    const int64_t page = a.block_table == nullptr
                             ? batch
                             : a.block_table[batch * a.table_stride_batch + (j / a.page_size) * a.table_stride_page];
    const bool known = page >= 0 && page < a.num_pages;
    const auto offset = [&](const CacheStrides& stride) {
      return page * stride.page + slot * stride.slot + kv_head * stride.head;
    };
    const uint8_t* const k = static_cast<const uint8_t*>(a.k) + offset(a.k_stride);
    const uint8_t* const v = static_cast<const uint8_t*>(a.v) + offset(a.v_stride);
    const bool scaled = known && a.k_scale != nullptr;
    const float k_scale = scaled ? a.k_scale[offset(a.k_scale_stride)] : 1.0f;
    const float v_scale = scaled ? a.v_scale[offset(a.v_scale_stride)] : 1.0f;
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + 32 * i;
      if (known && d < a.head_dim) score += mine[i] * number(a.cache_type, k[d]);
    }
    // The rounding of the factor, and of the score, would be that of an exponent: it grows with the score.
    const float products = sum_of_warp(score), factor = a.scale * k_scale, rest = fmaf(a.scale, k_scale, -factor);
    score = products * factor;
    const float top = fmaxf(maximum, score);  // drops NaN: the weight becomes NaN instead
    const float base = top == -INFINITY ? 0.0f : top;
    if (top > maximum) {
      const float shrink = expf(maximum - base);
      maximum = top;
      sum *= shrink, run_sum *= shrink;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) acc[i] *= shrink, run[i] *= shrink;
    }
    const float more = products * rest;  // not a number where one of them is infinite
    const float weight = expf(fmaf(products, factor, (isfinite(more) ? more : 0.0f) - base));
    run_sum += weight;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + 32 * i;
      if (known && d < a.head_dim) run[i] += weight * v_scale * number(a.cache_type, v[d]);
    }
    if (++in_run == kRun) {
      end_run();
      in_run = 0;
    }
  }
  end_run();
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) rows[warp][lane + 32 * i] = acc[i];
  if (lane == 0) maxima[warp] = maximum, sums[warp] = sum;
  __syncthreads();

  float top = -INFINITY, total = 0.0f, weights[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, maxima[w]);
  const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    weights[w] = expf(maxima[w] - base);
    total += weights[w] * sums[w];
  }
  T* const out = static_cast<T*>(a.out) + static_cast<int64_t>(blockIdx.x) * a.head_dim;
  for (int d = threadIdx.x; d < a.head_dim; d += kWarps * 32) {
    float value = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value += weights[w] * rows[w][d];
    out[d] = from_float<T>(total == 0.0f ? 0.0f : value / total);
  }
}

struct Kernel {
  const char* name;
  const void* address;
};

Kernel kernel(ScalarType type) {
  switch (type) {
    case ScalarType::float16:
      return {"simt 8-bit cache float16", reinterpret_cast<const void*>(&quantised_simt_decode<__half>)};
    case ScalarType::bfloat16:
      return {"simt 8-bit cache bfloat16", reinterpret_cast<const void*>(&quantised_simt_decode<__nv_bfloat16>)};
    default: return {"simt 8-bit cache float32", reinterpret_cast<const void*>(&quantised_simt_decode<float>)};
  }
}

}  // namespace

const char* quantised_simt(const QuantisedDecodeArguments& given, cudaStream_t stream) {
  QuantisedDecodeArguments a = given;
  void* arguments[] = {&a};
  // Fewer than 2**31: each row is at least one element of the output.
  const dim3 blocks(static_cast<unsigned>(a.batch) * a.heads * a.seq_q);
  return error_text(cudaLaunchKernel(kernel(a.type).address, blocks, dim3(kWarps * 32), arguments, 0, stream));
}

void quantised_simt_attributes(std::vector<KernelAttributes>& into) {
  for (const ScalarType type : {ScalarType::float32, ScalarType::float16, ScalarType::bfloat16}) {
    const auto [name, address] = kernel(type);
    add_kernel_attributes("flash_decode 8-bit caches", name, address, 0, into);
  }
}

}  // namespace cuda_llm_ops::cuda::decode
