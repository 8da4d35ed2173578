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
  int32_t cluster;         // blocks of a tile, which are a cluster; 0 where sums go through the workspace
  uint32_t stage_arrives;  // bytes that TMA brings to a stage
  Split split;             // units are chunks of k of a tile
};

struct Kernel {
  const char* name;
  const void* function;
  ScalarType type;
  int32_t bits, group;  // no group with 8 bits
  int32_t rows;         // of x, of a tile
  int threads, shared_bytes, blocks_per_sm;
};

using KernelList = ArrayView<Kernel>;

KernelList float16_kernels();
KernelList bfloat16_kernels();

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
