// naive_attention: the formula as the textbook writes it, three kernels and the scores in global memory in full.
//
//   scores    one block a query row and run of keys, one thread a score:   S = scale * q k^T (+ -inf where masked)
//   softmax   one block a query row, three passes over it:                 maximum, sum of exponentials, division
//   product   one block a query row, one thread a column of the output:    O = S v
//
// No tiles, no reuse but the caches'. float32 throughout; not-finite values as scaled_dot_product_attention's plain
// formula has them: the mask is added, and hidden keys' V rows are multiplied by 0.
#include <cuda_runtime.h>

#include "../../numeric.cuh"
#include "../launch.h"
#include "simt.h"

namespace cuda_llm_ops::cuda::attention {
namespace {

constexpr int kThreads = 256;

struct Row {
  int batch, head, query;

  __device__ static Row of(const AttentionArguments& a) {
    const int row = static_cast<int>(blockIdx.x);
    const int pair = row / a.seq_q;
    return {pair / a.heads, pair % a.heads, row % a.seq_q};
  }
};

template <typename T>
__device__ const T* head_of(const void* tensor, const HeadStrides& stride, int batch, int head) {
  return static_cast<const T*>(tensor) + batch * stride.batch + head * stride.head;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) scores(const __grid_constant__ AttentionArguments a) {
  const Row row = Row::of(a);
  const T* q = head_of<T>(a.q, a.q_stride, row.batch, row.head) + row.query * a.q_stride.seq;
  const T* k = head_of<T>(a.k, a.k_stride, row.batch, row.head / (a.heads / a.kv_heads));
  float* to = static_cast<float*>(a.workspace) + static_cast<int64_t>(blockIdx.x) * a.seq_kv;
  const int64_t step = static_cast<int64_t>(gridDim.y) * kThreads;
  for (int64_t key = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x; key < a.seq_kv; key += step) {
    const T* with = k + key * a.k_stride.seq;
    float sum = 0.0f;
    for (int i = 0; i < a.head_dim; ++i) sum = fmaf(to_float(q[i]), to_float(with[i]), sum);
    to[key] = sum * a.scale + (a.causal && key > row.query ? -INFINITY : 0.0f);
  }
}

struct Maximum {
  __device__ static float of(float x, float y) { return fmaxf(x, y); }
};
struct Sum {
  __device__ static float of(float x, float y) { return x + y; }
};

template <typename Operation>
__device__ float over_block(float value) {
  __shared__ float of_warp[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, lane));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) value = Operation::of(value, of_warp[warp]);
  __syncthreads();  // before the next reduction writes
  return value;
}

__global__ void __launch_bounds__(kThreads) softmax(float* all, int seq_kv) {
  float* row = all + static_cast<int64_t>(blockIdx.x) * seq_kv;
  float maximum = -INFINITY;
  for (int64_t key = threadIdx.x; key < seq_kv; key += kThreads) maximum = fmaxf(maximum, row[key]);
  maximum = over_block<Maximum>(maximum);
  // A row that is -inf throughout has weights 0, not NaN, as in scaled_dot_product_attention.
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  float sum = 0.0f;
  for (int64_t key = threadIdx.x; key < seq_kv; key += kThreads) {
    row[key] = expf(row[key] - base);
    sum += row[key];
  }
  sum = over_block<Sum>(sum);
  const float inverse = sum == 0.0f ? 1.0f : 1.0f / sum;
  for (int64_t key = threadIdx.x; key < seq_kv; key += kThreads) row[key] *= inverse;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) product(const __grid_constant__ AttentionArguments a) {
  const Row row = Row::of(a);
  const T* v = head_of<T>(a.v, a.v_stride, row.batch, row.head / (a.heads / a.kv_heads));
  T* out = const_cast<T*>(head_of<T>(a.out, a.out_stride, row.batch, row.head)) + row.query * a.out_stride.seq;
  const float* weights = static_cast<const float*>(a.workspace) + static_cast<int64_t>(blockIdx.x) * a.seq_kv;
  const int column = static_cast<int>(threadIdx.x);
  if (column >= a.head_dim) return;
  float sum = 0.0f;
  for (int64_t key = 0; key < a.seq_kv; ++key)
    sum = fmaf(weights[key], to_float(v[key * a.v_stride.seq + column]), sum);
  out[column] = from_float<T>(sum);
}

const Kernel kSoftmax = {"naive_attention", "naive_softmax", reinterpret_cast<const void*>(&softmax), kThreads, 0};

template <typename T>
const char* run(const AttentionArguments& a, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(a.batch * a.heads * a.seq_q);
  const int64_t runs = (static_cast<int64_t>(a.seq_kv) + kThreads - 1) / kThreads;
  const Kernel first = {"", "", reinterpret_cast<const void*>(&scores<T>), kThreads, 0};
  const Kernel last = {"", "", reinterpret_cast<const void*>(&product<T>), 0, 0};
  void* whole[] = {const_cast<AttentionArguments*>(&a)};
  float* workspace = static_cast<float*>(a.workspace);
  int seq_kv = a.seq_kv;
  void* of_softmax[] = {&workspace, &seq_kv};
  const char* refused =
      launch(first, dim3(rows, static_cast<unsigned>(runs < 65535 ? runs : 65535)), kThreads, whole, stream);
  if (refused == nullptr) refused = launch(kSoftmax, dim3(rows), kThreads, of_softmax, stream);
  if (refused == nullptr) refused = launch(last, dim3(rows), (a.head_dim + 31) / 32 * 32, whole, stream);
  return refused;
}

}  // namespace

const char* naive(const AttentionArguments& arguments, cudaStream_t stream) {
  switch (arguments.type) {
    case ScalarType::float32: return run<float>(arguments, stream);
    case ScalarType::float16: return run<__half>(arguments, stream);
    case ScalarType::bfloat16: return run<__nv_bfloat16>(arguments, stream);
  }
  return "naive_attention: unknown element type";
}

void naive_attributes(std::vector<KernelAttributes>& into) {
  const char* family = "naive_attention";
  add_attributes({family, "naive_scores_float32", reinterpret_cast<const void*>(&scores<float>), 0, 0}, into);
  add_attributes({family, "naive_scores_float16", reinterpret_cast<const void*>(&scores<__half>), 0, 0}, into);
  add_attributes({family, "naive_scores_bfloat16", reinterpret_cast<const void*>(&scores<__nv_bfloat16>), 0, 0}, into);
  add_attributes(kSoftmax, into);
  add_attributes({family, "naive_product_float32", reinterpret_cast<const void*>(&product<float>), 0, 0}, into);
  add_attributes({family, "naive_product_float16", reinterpret_cast<const void*>(&product<__half>), 0, 0}, into);
  add_attributes({family, "naive_product_bfloat16", reinterpret_cast<const void*>(&product<__nv_bfloat16>), 0, 0},
                 into);
}

}  // namespace cuda_llm_ops::cuda::attention
