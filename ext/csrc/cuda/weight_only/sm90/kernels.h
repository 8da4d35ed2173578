// The Hopper kernels of weight-only products as the host sees them.
#pragma once

#include <cstdint>

#include "../../../weight_only.h"
#include "../../array_view.h"
#include "../split.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

constexpr int kColumns = 128, kChunk = 128;  // of a thread block: columns of n, and k of a stage

// Parameters of a kernel, besides its tensor maps.
struct Parameters {
  const uint8_t* packed;
  const void* scales;  // with 8 bits
  void* out;
  float* partial;
  uint32_t* counters;  // one a tile
  int32_t m, n;
  int32_t column_tiles, depth_tiles;  // of the packed form
  int32_t row_tiles;                  // of x; those of the same columns follow each other
  bool has_zeros;
  uint32_t stage_arrives;  // bytes that TMA brings to a stage
  Split split;             // units are chunks of k of a tile
};

constexpr int kMostFewRows = 16;  // of x, that the kernel of few rows takes
constexpr int kFewRowsBlocksPerSm = 2, kFewRowsSharedBytes = 228 * 1024 / kFewRowsBlocksPerSm - 1024;  // at most
constexpr int kMostSharers = 8;       // warps, of all blocks, that share columns
constexpr int kFewRowsConsumers = 9;  // warps besides the producer, at most: more would leave each too few registers

// How the kernel of few rows shares a product. A block has `tiles` packed tiles of 16 columns beside each other, and
// its stages hold `parts` times `repeats` times 128 of k, `repeats` of them for each warp. `cluster` blocks share the k
// of their columns.
struct FewRowsPlan {
  int32_t tiles, parts, cluster;
  int32_t repeats = 1;
};

struct FewRowsParameters {
  const void* scales;  // with 8 bits
  void* out;
  int32_t m, n;
  int32_t column_tiles;                     // of the packed form
  int32_t column_blocks, chunks;            // of plan.tiles packed tiles; stages of all k
  int32_t stages, stage_bytes;              // of a block
  int32_t weights_at, scales_at, zeros_at;  // in a stage
  uint32_t stage_arrives;                   // bytes that TMA brings to a stage
  bool has_zeros;
  FewRowsPlan plan;
};

struct Kernel {
  const char* name;
  const void* function;
  ScalarType type;
  int32_t bits, group;                       // no group with 8 bits
  int32_t rows;                              // of x, of a tile
  int threads, shared_bytes, blocks_per_sm;  // few rows: at most
  int32_t repeats = 1;                       // few rows: of the plan
};

using KernelList = ArrayView<Kernel>;

KernelList float16_kernels();
KernelList bfloat16_kernels();
KernelList few_rows_float16_kernels();
KernelList few_rows_bfloat16_kernels();

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
