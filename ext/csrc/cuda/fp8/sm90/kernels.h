// The Hopper kernels of FP8 products as the host sees them: what each expects, and where it is.
//
// Both compute D = P Q^T with P and Q K-major. The persistent kernel takes a as P and b as Q. The few-rows kernel
// computes the transposed product, P = b and Q = a: the weights fill the 64 rows that an instruction has, and its n may
// be as small as 8.
#pragma once

#include "../../../fp8.h"
#include "../../array_view.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

// Parameters of a kernel, besides its tensor maps. Scales, bias, out and groups are those of the operator, never
// swapped.
struct KernelArguments {
  Fp8GemmArguments g;
  int k_blocks = 0;   // of 128
  int tiles_n = 0;    // persistent: tiles along n, in units of cluster tiles; few rows: tiles of a's rows
  int raster = 1;     // persistent: tiles along m that are walked together, so that they share Q in L2
  int cluster = 1;    // persistent: blocks beside each other along n, which share P; few rows: blocks that split k
  int tma_store = 0;  // persistent: out can be described to TMA
};

struct Kernel {
  const char* name;
  const void* function;
  Fp8Type a_type;
  bool few_rows, block_scales;
  int tile_m, tile_n;  // of the product as the operator has it: rows of a, columns of out
  int stage_k, stages;
  int threads, shared_bytes, blocks_per_sm;
};

using KernelList = ArrayView<Kernel>;

KernelList persistent_e4m3();
KernelList persistent_e5m2();
KernelList few_rows_e4m3();
KernelList few_rows_e5m2();

}  // namespace cuda_llm_ops::cuda::fp8::sm90
