// How a quantiser's kernel is launched. What fits into registers has a plan; the other kernels need no choice.
#pragma once

#include "../../arithmetic.h"
#include "../../fp8.h"

namespace cuda_llm_ops::cuda::fp8 {

constexpr int kVector = 8;  // values that a thread loads at a time
constexpr int kVectorsOfScale = kFp8Block / kVector;
constexpr int kMostRowThreads = 1024;  // of a row, and of a block

// A scale for the whole tensor takes two launches: its maximum into scales_out[0] as an integer (which began as 0), then
// the numbers. Other kinds do both at once.
enum class Phase { both, maximum, numbers };

struct QuantisePlan {
  float top = 0.0f;  // the largest number
  Phase phase = Phase::both;
  // In registers: of a row, threads and vectors that each of them has; rows of a block. No threads: it does not fit.
  int threads = 0, vectors = 0, rows = 0;
  // Else: whether rows of x and other, and of numbers, begin at multiples of four values.
  bool aligned = false, out_aligned = false;
};

// Vectors of a thread: 64 bytes of each input.
constexpr int most_vectors(ScalarType type) { return type == ScalarType::float32 ? 2 : 4; }

// Threads of a row: a power of two up to 32, or whole warps.
inline int row_threads(int vectors, int each, bool blocks) {
  const int needed = ceil_div(vectors, each);
  if (needed > 32) return ceil_div(needed, 32) * 32;
  int threads = blocks ? kVectorsOfScale : 1;
  while (threads < needed) threads *= 2;
  return threads;
}

// Fills in threads, vectors and rows, for a card of so many multiprocessors. The most vectors keep enough bytes on their
// way, and little else is computed for each of them. Fewer leave fewer lanes idle at some lengths, and give few rows
// more of the card.
inline void plan_rows(const Fp8QuantiseArguments& q, int multiprocessors, QuantisePlan& plan) {
  const int64_t card = int64_t{multiprocessors} * kMostRowThreads;
  const int vectors = q.columns / kVector;
  for (int each = most_vectors(q.type); each > 0; each /= 2) {
    const int threads = row_threads(vectors, each, q.scales == Fp8Scales::row_block);
    if (threads > kMostRowThreads) return;
    const bool idles = plan.threads * plan.vectors > vectors + vectors / 8;
    const bool better = plan.threads == 0 || (idles && threads * each < plan.threads * plan.vectors) ||
                        int64_t{q.batch} * q.rows * plan.threads < card;
    if (!better) continue;
    plan.threads = threads;
    plan.vectors = each;
    plan.rows = threads < 128 ? 128 / threads : 1;
  }
}

}  // namespace cuda_llm_ops::cuda::fp8
