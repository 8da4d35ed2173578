// The portable attention kernels, float32 inside, vectorised over queries.
//
//   naive   a row of scores at a time, materialised; dot products and sums as the formula has them
//   tiled   blocks of keys; two passes, one for each row's maximum and sum, one for the output
//   flash   blocks of keys; one pass, online softmax (Milakov and Gimelshein, arXiv 1805.02867)
//
// Tiled and flash share their products. A panel is as many queries as two vectors have lanes; its Q is transposed once
// (head_dim x queries), scores are kept transposed (keys x queries) and so is the output (head_dim x queries). Then
// both products are broadcasts of single elements of K and V, read in the order they lie in memory, times vectors of
// queries: K and V are never packed, maxima and sums need no shuffles. 16-bit K and V are converted a block of keys at
// a time, for all panels of a task.
//
// The bodies are compiled three times on x86-64 (AVX-512, AVX2, baseline) and chosen by the processor at run time.
//
// Which keys a query sees is a band around a diagonal: causal, bottom-right and sliding windows are bands of their own.
//
// Not-finite values: a row whose scores are all -inf gets weights 0, as in scaled_dot_product_attention. Naive adds the
// causal mask and multiplies hidden V rows by 0, as its plain formula does; tiled and flash leave hidden keys out.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>

#include "../arithmetic.h"
#include "../kernels.h"
#include "compiler.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

constexpr int kKeys = 64;      // of a block
constexpr int kMaxPanels = 4;  // of a task
constexpr size_t kAlignment = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Algorithm { naive, tiled, flash };

// Lanes of a vector; rows of the register tile (keys of the first product, columns of the second).
template <int Lanes_, int Rows_>
struct Machine {
  static constexpr int Lanes = Lanes_, Rows = Rows_;
  static constexpr int Queries = 2 * Lanes;  // of a panel
};
using Baseline = Machine<4, 4>;
using Avx2 = Machine<8, 4>;
using Avx512 = Machine<16, 8>;

// A few floats that are worked on together: a compiler's vector type where there is one.
#if defined(__GNUC__)
template <int Lanes>
struct VectorOf {
  typedef float type __attribute__((vector_size(Lanes * sizeof(float))));
};
template <int Lanes>
using Vector = typename VectorOf<Lanes>::type;
#else
template <int Lanes>
struct Vector {
  float at[Lanes];
  float& operator[](int i) { return at[i]; }
  float operator[](int i) const { return at[i]; }
  Vector& operator+=(const Vector& other) {
    for (int i = 0; i < Lanes; ++i) at[i] += other.at[i];
    return *this;
  }
  Vector operator*(const Vector& other) const {
    Vector product;
    for (int i = 0; i < Lanes; ++i) product.at[i] = at[i] * other.at[i];
    return product;
  }
  Vector operator*(float other) const {
    Vector product;
    for (int i = 0; i < Lanes; ++i) product.at[i] = at[i] * other;
    return product;
  }
};
#endif

template <int Lanes>
CUDA_LLM_OPS_INLINE void load(Vector<Lanes>& to, const float* from) {
  std::memcpy(&to, from, sizeof to);
}
template <int Lanes>
CUDA_LLM_OPS_INLINE void store(float* to, const Vector<Lanes>& from) {
  std::memcpy(to, &from, sizeof from);
}

// e^x for x <= 0 (-inf gives 0) and NaN, which stays; relative error below 2e-7. 2^n by the exponent, 2^f, |f| <= 1/2,
// by the Taylor series of e^(f ln 2) to the sixth power. Branch-free, so that loops over it vectorise.
CUDA_LLM_OPS_INLINE float exp_not_positive(float x) {
  const float kept = x < -87.0f ? -87.0f : x;
  const float y = kept * kLog2E;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = y + magic;
  const float n = shifted - magic;
  const float f = (y - n) * 0.693147181f;
  float p = 1.0f / 720.0f;
  p = p * f + 1.0f / 120.0f;
  p = p * f + 1.0f / 24.0f;
  p = p * f + 1.0f / 6.0f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  const float power = bits_float((float_bits(shifted) + 127u) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

// The larger; a NaN is passed over, its exponential brings it back.
CUDA_LLM_OPS_INLINE float larger(float a, float b) { return a > b ? a : b; }

// A row that is -inf so far: subtracting that would make NaN of weights that are 0.
CUDA_LLM_OPS_INLINE float base_of(float maximum) { return maximum == -kInfinity ? 0.0f : maximum; }

// scores (count keys x Queries) = k q^T. `k` points to rows of head_dim floats, `q` is head_dim x Queries.
template <typename M>
CUDA_LLM_OPS_INLINE void multiply_keys(const float* k, int64_t stride, int count, const float* q, int head_dim,
                                       float* scores) {
  for (int key = 0; key < count; key += M::Rows) {
    const float* rows[M::Rows];
    for (int r = 0; r < M::Rows; ++r) rows[r] = k + std::min(key + r, count - 1) * stride;
    Vector<M::Lanes> sums[M::Rows][2] = {};
    for (int d = 0; d < head_dim; ++d) {
      Vector<M::Lanes> left, right;
      load<M::Lanes>(left, q + d * M::Queries);
      load<M::Lanes>(right, q + d * M::Queries + M::Lanes);
      for (int r = 0; r < M::Rows; ++r) {
        sums[r][0] += left * rows[r][d];
        sums[r][1] += right * rows[r][d];
      }
    }
    for (int r = 0; r < std::min(M::Rows, count - key); ++r) {
      store<M::Lanes>(scores + (key + r) * M::Queries, sums[r][0]);
      store<M::Lanes>(scores + (key + r) * M::Queries + M::Lanes, sums[r][1]);
    }
  }
}

// Columns d .. d + Rows - 1 of out (head_dim x Queries) = out * shrink + v^T weights.
template <typename M, int Rows>
CUDA_LLM_OPS_INLINE void multiply_columns(const float* v, int64_t stride, int count, const float* weights,
                                          const float* shrink, float* out) {
  Vector<M::Lanes> sums[Rows][2];
  for (int half = 0; half < 2; ++half) {
    Vector<M::Lanes> factor;
    load<M::Lanes>(factor, shrink + half * M::Lanes);
    for (int r = 0; r < Rows; ++r) {
      Vector<M::Lanes> old;
      load<M::Lanes>(old, out + r * M::Queries + half * M::Lanes);
      sums[r][half] = old * factor;
    }
  }
  for (int key = 0; key < count; ++key) {
    Vector<M::Lanes> left, right;
    load<M::Lanes>(left, weights + key * M::Queries);
    load<M::Lanes>(right, weights + key * M::Queries + M::Lanes);
    const float* row = v + key * stride;
    for (int r = 0; r < Rows; ++r) {
      sums[r][0] += left * row[r];
      sums[r][1] += right * row[r];
    }
  }
  for (int r = 0; r < Rows; ++r) {
    store<M::Lanes>(out + r * M::Queries, sums[r][0]);
    store<M::Lanes>(out + r * M::Queries + M::Lanes, sums[r][1]);
  }
}

template <typename M>
CUDA_LLM_OPS_INLINE void multiply_values(const float* v, int64_t stride, int count, const float* weights,
                                         const float* shrink, int columns, float* out) {
  int d = 0;
  for (; d + M::Rows <= columns; d += M::Rows) {
    multiply_columns<M, M::Rows>(v + d, stride, count, weights, shrink, out + d * M::Queries);
  }
  for (; d < columns; ++d) multiply_columns<M, 1>(v + d, stride, count, weights, shrink, out + d * M::Queries);
}

// Query i sees the keys from i + low to before i + high.
struct Band {
  int64_t low, high;
};

constexpr int64_t kNoLimit = int64_t{1} << 40;

// Keys first_key + j that query first_query + i does not see become -inf.
template <typename M>
CUDA_LLM_OPS_INLINE void hide_keys(float* scores, int count, int64_t first_key, int64_t first_query, const Band& band) {
  for (int j = 0; j < count; ++j) {
    const int64_t from = std::clamp<int64_t>(first_key + j - band.high + 1 - first_query, 0, M::Queries);
    const int64_t to = std::clamp<int64_t>(first_key + j - band.low + 1 - first_query, 0, M::Queries);
    for (int64_t i = 0; i < from; ++i) scores[j * M::Queries + i] = -kInfinity;
    for (int64_t i = to; i < M::Queries; ++i) scores[j * M::Queries + i] = -kInfinity;
  }
}

template <typename M>
CUDA_LLM_OPS_INLINE void row_maximum(const float* scores, int count, float* maximum) {
  for (int j = 0; j < count; ++j) {
    for (int i = 0; i < M::Queries; ++i) maximum[i] = larger(scores[j * M::Queries + i], maximum[i]);
  }
}

// The rows of a block of keys as float32: where they are, or converted into `room`.
template <typename T>
CUDA_LLM_OPS_INLINE const float* as_floats(const T* rows, int64_t& stride, int count, int columns, float* room) {
  if constexpr (std::is_same_v<T, float>) {
    return rows;
  } else {
    for (int j = 0; j < count; ++j) {
      for (int d = 0; d < columns; ++d) room[j * columns + d] = to_float(rows[j * stride + d]);
    }
    stride = columns;
    return room;
  }
}

struct Task {
  const AttentionArguments* arguments;
  Band band;
  float* lse;  // of the head's first query, or nullptr
  int64_t batch, head;
  int64_t first_query, queries;
  float* room;
};

template <typename T>
const T* head_of(const void* tensor, const HeadStrides& stride, int64_t batch, int64_t head) {
  return static_cast<const T*>(tensor) + batch * stride.batch + head * stride.head;
}

// Floats of a task's room, for tiled and flash. That for values has head_dim columns too, which is enough.
template <typename M>
int64_t blocked_room(const AttentionArguments& a) {
  const int64_t of_panels = static_cast<int64_t>(kMaxPanels) * M::Queries * (2 * a.head_dim + 2);
  return of_panels + kKeys * M::Queries + M::Queries + 2 * static_cast<int64_t>(kKeys) * a.head_dim + 64;
}

template <typename M, typename T, Algorithm Which>
CUDA_LLM_OPS_INLINE void blocked(const Task& task) {
  constexpr int W = M::Queries;
  const AttentionArguments& a = *task.arguments;
  const int D = a.head_dim, value_dim = a.value_dim;
  const int64_t kv_head = task.head / (a.heads / a.kv_heads);
  const T* const q = head_of<T>(a.q, a.q_stride, task.batch, task.head);
  const T* const k = head_of<T>(a.k, a.k_stride, task.batch, kv_head);
  const T* const v = head_of<T>(a.v, a.v_stride, task.batch, kv_head);
  const int panels = static_cast<int>((task.queries + W - 1) / W);

  float* const all_q = task.room;
  float* const all_out = all_q + static_cast<int64_t>(kMaxPanels) * D * W;
  float* const maxima = all_out + static_cast<int64_t>(kMaxPanels) * D * W;
  float* const sums = maxima + kMaxPanels * W;
  float* const scores = sums + kMaxPanels * W;
  float* const shrink = scores + kKeys * W;
  float* const k_room = shrink + W;
  float* const v_room = k_room + static_cast<int64_t>(kKeys) * D;

  for (int panel = 0; panel < panels; ++panel) {
    float* const to = all_q + static_cast<int64_t>(panel) * D * W;
    for (int i = 0; i < W; ++i) {
      const int64_t query = panel * W + i;
      if (query < task.queries) {
        const T* const row = q + (task.first_query + query) * a.q_stride.seq;
        for (int d = 0; d < D; ++d) to[d * W + i] = to_float(row[d]) * a.scale;
      } else {
        for (int d = 0; d < D; ++d) to[d * W + i] = 0.0f;
      }
    }
  }
  std::fill(all_out, all_out + static_cast<int64_t>(panels) * D * W, 0.0f);
  std::fill(maxima, maxima + panels * W, -kInfinity);
  std::fill(sums, sums + panels * W, 0.0f);
  std::fill(shrink, shrink + W, 1.0f);

  const Band band = task.band;
  const int64_t key_begin = std::clamp<int64_t>(task.first_query + band.low, 0, a.seq_kv);
  const int64_t key_end = std::clamp<int64_t>(task.first_query + task.queries - 1 + band.high, 0, a.seq_kv);
  constexpr int kPasses = Which == Algorithm::tiled ? 2 : 1;
  for (int pass = 0; pass < kPasses; ++pass) {
    const bool last = pass == kPasses - 1;
    for (int64_t first_key = key_begin; first_key < key_end; first_key += kKeys) {
      const int block = static_cast<int>(std::min<int64_t>(kKeys, key_end - first_key));
      int64_t k_stride = a.k_stride.seq, v_stride = a.v_stride.seq;
      const float* const keys = as_floats(k + first_key * a.k_stride.seq, k_stride, block, D, k_room);
      const float* const values =
          last ? as_floats(v + first_key * a.v_stride.seq, v_stride, block, value_dim, v_room) : nullptr;
      for (int panel = 0; panel < panels; ++panel) {
        const int64_t first_query = task.first_query + panel * W;
        const int64_t last_query = first_query + W - 1;
        const int count = static_cast<int>(std::clamp<int64_t>(last_query + band.high - first_key, 0, block));
        if (count == 0 || first_key + count <= first_query + band.low) continue;
        float* const maximum = maxima + panel * W;
        float* const sum = sums + panel * W;
        multiply_keys<M>(keys, k_stride, count, all_q + static_cast<int64_t>(panel) * D * W, D, scores);
        if (first_key + count > first_query + band.high || first_key < last_query + band.low) {
          hide_keys<M>(scores, count, first_key, first_query, band);
        }

        alignas(kAlignment) float base[W], added[W];
        if (Which == Algorithm::flash || pass == 0) {
          alignas(kAlignment) float top[W];
          for (int i = 0; i < W; ++i) top[i] = maximum[i];
          row_maximum<M>(scores, count, top);
          for (int i = 0; i < W; ++i) {
            base[i] = base_of(top[i]);
            const float factor = exp_not_positive(maximum[i] - base[i]);
            sum[i] *= factor;
            if (Which == Algorithm::flash) shrink[i] = factor;
            maximum[i] = top[i];
          }
        } else {
          for (int i = 0; i < W; ++i) base[i] = base_of(maximum[i]);
        }
        for (int i = 0; i < W; ++i) added[i] = 0.0f;
        for (int j = 0; j < count; ++j) {
          for (int i = 0; i < W; ++i) {
            const float weight = exp_not_positive(scores[j * W + i] - base[i]);
            scores[j * W + i] = weight;
            added[i] += weight;
          }
        }
        if (Which == Algorithm::flash || pass == 0) {
          for (int i = 0; i < W; ++i) sum[i] += added[i];
        }
        if (last) {
          multiply_values<M>(values, v_stride, count, scores, shrink, value_dim,
                             all_out + static_cast<int64_t>(panel) * D * W);
        }
      }
    }
  }

  T* const out = const_cast<T*>(head_of<T>(a.out, a.out_stride, task.batch, task.head));
  for (int64_t query = 0; query < task.queries; ++query) {
    const int64_t panel = query / W, i = query % W;
    const float sum = sums[panel * W + i];
    const float inverse = sum == 0.0f ? 1.0f : 1.0f / sum;
    if (task.lse != nullptr) {
      const float logarithm = base_of(maxima[panel * W + i]) + std::log(sum);
      task.lse[task.first_query + query] = logarithm;  // -inf where the sum is 0
    }
    const float* const from = all_out + panel * D * W + i;
    T* const row = out + (task.first_query + query) * a.out_stride.seq;
    for (int d = 0; d < value_dim; ++d) row[d] = from_float<T>(from[d * W] * inverse);
  }
}

// One row of scores at a time. The room holds it and the row of the output.
template <typename M, typename T>
CUDA_LLM_OPS_INLINE void by_rows(const Task& task) {
  constexpr int W = M::Lanes;
  const AttentionArguments& a = *task.arguments;
  const int D = a.head_dim, value_dim = a.value_dim;
  const int64_t kv_head = task.head / (a.heads / a.kv_heads);
  const T* const q = head_of<T>(a.q, a.q_stride, task.batch, task.head);
  const T* const k = head_of<T>(a.k, a.k_stride, task.batch, kv_head);
  const T* const v = head_of<T>(a.v, a.v_stride, task.batch, kv_head);
  T* const out = const_cast<T*>(head_of<T>(a.out, a.out_stride, task.batch, task.head));
  float* const scores = task.room;
  float* const query = scores + a.seq_kv;
  float* const sums = query + D;

  for (int64_t i = task.first_query; i < task.first_query + task.queries; ++i) {
    for (int d = 0; d < D; ++d) query[d] = to_float(q[i * a.q_stride.seq + d]);
    float maximum = -kInfinity;
    for (int64_t j = 0; j < a.seq_kv; ++j) {
      const T* const row = k + j * a.k_stride.seq;
      float partial[W] = {};
      int d = 0;
      for (; d + W <= D; d += W) {
        for (int lane = 0; lane < W; ++lane) partial[lane] += query[d + lane] * to_float(row[d + lane]);
      }
      float score = 0.0f;
      for (; d < D; ++d) score += query[d] * to_float(row[d]);
      for (int lane = 0; lane < W; ++lane) score += partial[lane];
      score = score * a.scale + (a.causal && j > i ? -kInfinity : 0.0f);
      maximum = larger(score, maximum);
      scores[j] = score;
    }
    const float base = base_of(maximum);
    for (int64_t j = 0; j < a.seq_kv; ++j) scores[j] = exp_not_positive(scores[j] - base);
    float sum = 0.0f;
    for (int64_t j = 0; j < a.seq_kv; ++j) sum += scores[j];
    const float inverse = sum == 0.0f ? 1.0f : 1.0f / sum;
    std::fill(sums, sums + value_dim, 0.0f);
    for (int64_t j = 0; j < a.seq_kv; ++j) {
      const float weight = scores[j] * inverse;
      const T* const row = v + j * a.v_stride.seq;
      for (int d = 0; d < value_dim; ++d) sums[d] += weight * to_float(row[d]);
    }
    for (int d = 0; d < value_dim; ++d) out[i * a.out_stride.seq + d] = from_float<T>(sums[d]);
  }
}

template <typename M, typename T, Algorithm Which>
CUDA_LLM_OPS_INLINE void run_body(const Task& task) {
  if constexpr (Which == Algorithm::naive) {
    by_rows<M, T>(task);
  } else {
    blocked<M, T, Which>(task);
  }
}

template <typename T, Algorithm Which>
void run_baseline(const Task& task) {
  run_body<Baseline, T, Which>(task);
}
#if defined(CUDA_LLM_OPS_X86)
template <typename T, Algorithm Which>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512"))) void run_avx512(
    const Task& task) {
  run_body<Avx512, T, Which>(task);
}

template <typename T, Algorithm Which>
__attribute__((target("avx2,fma"))) void run_avx2(const Task& task) {
  run_body<Avx2, T, Which>(task);
}
#endif

struct Choice {
  void (*run)(const Task&);
  int64_t queries;  // of a panel
  int64_t room;     // floats
};

template <typename T, Algorithm Which>
Choice choose(const AttentionArguments& a) {
  const int64_t by_rows_room = static_cast<int64_t>(a.seq_kv) + 2 * a.head_dim;
  const auto room = [&](int64_t of_blocks) { return Which == Algorithm::naive ? by_rows_room : of_blocks; };
#if defined(CUDA_LLM_OPS_X86)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
    return {&run_avx512<T, Which>, Avx512::Queries, room(blocked_room<Avx512>(a))};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {&run_avx2<T, Which>, Avx2::Queries, room(blocked_room<Avx2>(a))};
  }
#endif
  return {&run_baseline<T, Which>, Baseline::Queries, room(blocked_room<Baseline>(a))};
}

// Memory of one thread, kept from call to call while calls need no less.
class Room {
 public:
  float* reserve(int64_t floats) {
    if (floats > floats_ || floats < floats_ / 8) {
      memory_.reset(static_cast<float*>(
          ::operator new(static_cast<size_t>(floats) * sizeof(float), std::align_val_t{kAlignment})));
      floats_ = floats;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* pointer) const { ::operator delete(pointer, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float, Free> memory_;
  int64_t floats_ = 0;
};

template <Algorithm Which>
void attention(const AttentionArguments& a, const Band& band, const AttentionOptions& options,
               const ParallelFor& parallel) {
  visit_scalar(a.type, [&](auto zero) {
    using T = decltype(zero);
    const Choice choice = choose<T, Which>(a);
    const int64_t pairs = static_cast<int64_t>(a.batch) * a.heads;
    // Large tasks share the conversion of K and V, small ones occupy more threads.
    const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 256);
    int64_t panels = kMaxPanels;
    const auto blocks_of = [&](int64_t of) { return (a.seq_q + of * choice.queries - 1) / (of * choice.queries); };
    while (panels > 1 && pairs * blocks_of(panels) < 2 * threads) panels /= 2;
    const int64_t rows = panels * choice.queries;
    const int64_t blocks = blocks_of(panels);
    parallel(0, pairs * blocks, 1, [&](int64_t begin, int64_t end) {
      thread_local Room room;
      Task task{};
      task.arguments = &a;
      task.band = band;
      task.room = room.reserve(choice.room);
      for (int64_t index = begin; index < end; ++index) {
        const int64_t pair = index / blocks;
        task.batch = pair / a.heads;
        task.head = pair % a.heads;
        task.lse = options.lse == nullptr
                       ? nullptr
                       : options.lse + task.batch * options.lse_stride_batch + task.head * options.lse_stride_head;
        task.first_query = index % blocks * rows;
        task.queries = std::min<int64_t>(rows, a.seq_q - task.first_query);
        choice.run(task);
      }
    });
  });
}

template <Algorithm Which>
void plain(const AttentionArguments& a, const ParallelFor& parallel) {
  attention<Which>(a, {-kNoLimit, a.causal ? 1 : kNoLimit}, {}, parallel);
}

const void* advanced(const void* tensor, int64_t elements, ScalarType type) {
  return static_cast<const char*>(tensor) + elements * (type == ScalarType::float32 ? 4 : 2);
}

}  // namespace

void naive_attention(const AttentionArguments& arguments, const ParallelFor& parallel) {
  plain<Algorithm::naive>(arguments, parallel);
}

void tiled_attention(const AttentionArguments& arguments, const ParallelFor& parallel) {
  plain<Algorithm::tiled>(arguments, parallel);
}

void flash_attention(const AttentionArguments& arguments, const ParallelFor& parallel) {
  plain<Algorithm::flash>(arguments, parallel);
}

void flash_attention_varlen(const AttentionArguments& arguments, const AttentionOptions& options,
                            const ParallelFor& parallel) {
  const auto run = [&](const AttentionArguments& a, const AttentionOptions& of) {
    const int64_t diagonal = of.bottom_right ? int64_t{a.seq_kv} - a.seq_q : 0;
    attention<Algorithm::flash>(a, {diagonal - of.left, diagonal + of.right + 1}, of, parallel);
  };
  if (options.cu_seqlens_q == nullptr) {
    run(arguments, options);
    return;
  }
  for (int32_t b = 0; b < arguments.batch; ++b) {
    const int64_t first_q = options.cu_seqlens_q[b], first_kv = options.cu_seqlens_kv[b];
    AttentionArguments one = arguments;
    one.batch = 1;
    one.seq_q = static_cast<int32_t>(options.cu_seqlens_q[b + 1] - first_q);
    one.seq_kv = static_cast<int32_t>(options.cu_seqlens_kv[b + 1] - first_kv);
    if (one.seq_q == 0) continue;
    one.q = advanced(one.q, first_q * one.q_stride.seq, one.type);
    one.k = advanced(one.k, first_kv * one.k_stride.seq, one.type);
    one.v = advanced(one.v, first_kv * one.v_stride.seq, one.type);
    one.out = const_cast<void*>(advanced(one.out, first_q * one.out_stride.seq, one.type));
    AttentionOptions its = options;
    its.lse = options.lse == nullptr ? nullptr : options.lse + first_q;
    run(one, its);
  }
}

}  // namespace cuda_llm_ops::cpu
