// The interface between the operators (*_ops.cpp) and the kernels (cpu/, cuda/): plain structs and functions, without a
// header of torch or CUDA.
//
// Sizes are checked by the caller: every size is at least 1, every offset (in elements) fits in 31 bits. Strides are
// in elements. A function of cuda:: enqueues on `stream` (a cudaStream_t) of the current device, never synchronises,
// allocates nothing on the device (so that it can be captured in a CUDA graph), and returns nullptr or a static
// string with the reason for a refusal. A function of cpu:: runs to its end, split over threads by `parallel`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cuda_llm_ops {

enum class ScalarType : int32_t { float32 = 0, float16 = 1, bfloat16 = 2 };

// out[b, i, j] = alpha * sum_k a[b, i, k] * b[b, k, j] + beta * c[b, i, j], accumulated in float32.
// Either stride_m or stride_k of `a` is 1, either stride_k or stride_n of `b` is 1 (transposition is a stride, not a
// copy). `out` is row-major and dense: strides (m * n, n, 1). `c` is nullptr exactly when beta is 0, and may have any
// strides; its type is that of `out`.
struct GemmArguments {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* out = nullptr;
  int32_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_stride_batch = 0, a_stride_m = 0, a_stride_k = 0;
  int64_t b_stride_batch = 0, b_stride_k = 0, b_stride_n = 0;
  int64_t c_stride_batch = 0, c_stride_m = 0, c_stride_n = 0;
  float alpha = 1.0f, beta = 0.0f;
  ScalarType in_type = ScalarType::float32;   // of a and b
  ScalarType out_type = ScalarType::float32;  // of out and c: in_type, or float32
  void* workspace = nullptr;                  // on CUDA: gemm_workspace_bytes() bytes, 256-byte aligned
};

struct HeadStrides {
  int64_t batch = 0, head = 0, seq = 0;  // head_dim's stride is 1
};

// out = softmax(scale * q k^T [masked]) v, per batch and query head; query head h reads kv head h / (heads / kv_heads).
// causal: query i sees keys j <= i (top-left alignment, as in torch's scaled_dot_product_attention). A row that sees
// no key cannot occur (seq_kv >= 1). NaN and infinities follow IEEE arithmetic through the plain formula.
struct AttentionArguments {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  int32_t batch = 0, heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0;
  // Of q and k; of v and out, at most that. A kernel of cuda:: wants them equal, unless takes_narrow_values() says so.
  int32_t head_dim = 0, value_dim = 0;
  HeadStrides q_stride, k_stride, v_stride, out_stride;
  float scale = 1.0f;
  bool causal = false;
  ScalarType type = ScalarType::float32;
  void* workspace = nullptr;  // on CUDA, where ..attention_workspace_bytes() is not 0: so many bytes, 256-byte aligned
};

constexpr int32_t kMaxSequence = 1 << 28;  // of flash_attention_varlen: sums of lengths and sides stay in 31 bits
constexpr int32_t kEveryKey = 1 << 29;     // a side without a limit

// What flash_attention_varlen takes beyond AttentionArguments, whose `causal` it ignores.
//
// Query i of a sequence sees the keys j of that sequence with i + d - left <= j <= i + d + right, where d is 0 or, with
// bottom_right, the sequence's keys less its queries. left and right lie between 0 and kEveryKey. A query that sees no
// key gets zeros, and -inf for the logarithm of its sum. seq_kv may be 0.
//
// With cu_seqlens_q and cu_seqlens_k (both or neither, in memory of the kernel's device, batch + 1 offsets each)
// sequence b is rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1 of q and out, and likewise of k and v; stride.batch is
// not used; seq_q and seq_kv are upper bounds of the lengths. Rows past seq_q of a sequence are left out. A kernel on
// CUDA keeps whatever the offsets say inside total_q and total_kv rows.
struct AttentionOptions {
  int32_t left = kEveryKey, right = kEveryKey;
  bool bottom_right = false;
  // Natural logarithm of the sum of exponentials of a row's scores, by (batch, head, query), or nullptr. With
  // cu_seqlens_q it is by (head, row of q), and stride.batch is 0.
  float* lse = nullptr;
  int64_t lse_stride_batch = 0, lse_stride_head = 0;
  const int32_t* cu_seqlens_q = nullptr;
  const int32_t* cu_seqlens_kv = nullptr;
  int32_t total_q = 0, total_kv = 0;
};

// A kernel's resources as the driver reports them for the current device.
struct KernelAttributes {
  const char* family;
  const char* name;
  int registers;          // a thread
  size_t static_shared;   // bytes a block
  size_t dynamic_shared;  // bytes a block the launch asks for (0: varies)
  size_t local;           // bytes a thread: spills and stack
  int max_threads;        // a block
};

// A plan of a tuned GEMM: its name, and what its cost model depends on.
struct GemmPlanFacts {
  std::string name;
  double microseconds;  // by the cost model
  bool persistent, swap, pingpong, multicasts, p_mn_major, q_mn_major;
  int tile_m, tile_n, tile_k, stages, shared_bytes, blocks_per_sm;
  int split, cluster_m, cluster_n, parts;
  int clusters, multiprocessors;  // clusters that the device holds at once; its multiprocessors
};

using ParallelFor =
    std::function<void(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body)>;

namespace cpu {
void gemm(const GemmArguments& arguments, const ParallelFor& parallel);
void tensor_core_gemm(const GemmArguments& arguments, const ParallelFor& parallel);
void naive_attention(const AttentionArguments& arguments, const ParallelFor& parallel);
void tiled_attention(const AttentionArguments& arguments, const ParallelFor& parallel);
void flash_attention(const AttentionArguments& arguments, const ParallelFor& parallel);
void flash_attention_varlen(const AttentionArguments& arguments, const AttentionOptions& options,
                            const ParallelFor& parallel);
}  // namespace cpu

namespace cuda {
size_t gemm_workspace_bytes(const GemmArguments& arguments);  // without it gemm() is right, but slower
const char* gemm(const GemmArguments& arguments, void* stream);
const char* tensor_core_gemm(const GemmArguments& arguments, void* stream);
// For tuning: the plans that can compute a product, the quickest by the cost model first (an empty list where no choice
// is tuned); and a plan to be taken wherever it fits, instead of the chosen one, until it is "" again.
std::vector<GemmPlanFacts> gemm_plans(const GemmArguments& arguments);
void force_gemm_plan(const std::string& name);
size_t naive_attention_workspace_bytes(const AttentionArguments& arguments);
const char* naive_attention(const AttentionArguments& arguments, void* stream);
const char* tiled_attention(const AttentionArguments& arguments, void* stream);
// Whether flash_attention(), or with options flash_attention_varlen(), computes these with a value_dim below head_dim.
bool takes_narrow_values(const AttentionArguments& arguments, const AttentionOptions* options);
size_t flash_attention_workspace_bytes(const AttentionArguments& arguments);  // without it right, but slower
const char* flash_attention(const AttentionArguments& arguments, void* stream);
const char* flash_attention_varlen(const AttentionArguments& arguments, const AttentionOptions& options, void* stream);
void gemm_attributes(std::vector<KernelAttributes>& into);
void attention_attributes(std::vector<KernelAttributes>& into);
}  // namespace cuda

}  // namespace cuda_llm_ops
