// Decode of 8-bit caches for what the tensor-core kernels do not take: float32 queries, rows that are not multiples of
// 16 bytes, other GPUs. As ../simt/simt.cu: a block is one query row; its warps take the keys in turn, each with an
// online softmax of its own, and merge at the end. A result in float32 is computed in float64: where a few keys have the
// weight, one more rounding of a score or of a power would be as large as that of the result.
#include <cuda_fp8.h>

#include <type_traits>

#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../numeric.cuh"
#include "kernels.h"

namespace cuda_llm_ops::cuda::decode {
namespace {

constexpr int kWarps = 8;
constexpr int kPerLane = 8;  // head_dim is at most 256
constexpr unsigned kAll = 0xffffffffu;

// Of scores, weights and sums, for a result of type T.
template <typename T>
using Exact = std::conditional_t<std::is_same_v<T, float>, double, float>;

template <typename V>
__device__ __forceinline__ V sum_of_warp(V value) {
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
  using Number = Exact<T>;
  __shared__ Number rows[kWarps][256], maxima[kWarps], sums[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int query = blockIdx.x % a.seq_q, pair = blockIdx.x / a.seq_q;
  const int head = pair % a.heads, batch = pair / a.heads;
  const int kv_head = head / (a.heads / a.kv_heads);
  const T* const q =
      static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head + query * a.q_stride.seq;
  const int len = min(max(a.cache_lens[batch * a.lens_stride], 0), a.capacity);
  const int seen = len - (a.seq_q - 1 - query);

  float mine[kPerLane];
  Number acc[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    mine[i] = lane + 32 * i < a.head_dim ? to_float(q[lane + 32 * i]) : 0.0f;
    acc[i] = 0;
  }
  Number maximum = -INFINITY, sum = 0;
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
    Number products = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + 32 * i;
      if (known && d < a.head_dim) products += Number{mine[i]} * number(a.cache_type, k[d]);
    }
    const Number score = sum_of_warp(products) * (Number{a.scale} * k_scale);
    const Number top = fmax(maximum, score);  // drops NaN: the weight becomes NaN instead
    const Number base = top == -INFINITY ? Number{0} : top;
    if (top > maximum) {
      const Number shrink = exp(maximum - base);
      maximum = top;
      sum *= shrink;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) acc[i] *= shrink;
    }
    const Number weight = exp(score - base), scaled_weight = weight * v_scale;
    sum += weight;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + 32 * i;
      if (known && d < a.head_dim) acc[i] += scaled_weight * number(a.cache_type, v[d]);
    }
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) rows[warp][lane + 32 * i] = acc[i];
  if (lane == 0) maxima[warp] = maximum, sums[warp] = sum;
  __syncthreads();

  Number top = -INFINITY, total = 0, weights[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = fmax(top, maxima[w]);
  const Number base = top == -INFINITY ? Number{0} : top;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    weights[w] = exp(maxima[w] - base);
    total += weights[w] * sums[w];
  }
  T* const out = static_cast<T*>(a.out) + static_cast<int64_t>(blockIdx.x) * a.head_dim;
  for (int d = threadIdx.x; d < a.head_dim; d += kWarps * 32) {
    Number value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value += weights[w] * rows[w][d];
    out[d] = from_float<T>(static_cast<float>(total == 0 ? Number{0} : value / total));
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
