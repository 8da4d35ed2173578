// The Hopper GEMM kernels as the host sees them: what each expects, and where it is.
//
// The kernels compute D = P Q with P of rows x k and Q of k x columns. Usually P is `a` and Q is `b`. A kernel with
// `swap` computes the transposed product, P = b^T and Q = a^T, so that a few rows of `a` are the narrow side of the
// instruction (its n may be 8) while the weights fill the 64 rows that it always has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../kernels.h"
#include "../../array_view.h"

namespace cuda_llm_ops::cuda::sm90 {

// Parameters of a kernel, besides its tensor maps.
struct KernelArguments {
  int rows = 0, columns = 0;         // of D = P Q
  int k_blocks = 0;                  // ceil(k / tile_k)
  int tiles_m = 0, tiles_n = 0;      // in units of cluster tiles
  int tiles = 0;                     // tiles_m * tiles_n * batch
  int group = 1;                     // cluster tiles along m that are walked together, so that they share Q in L2
  int cluster_m = 1, cluster_n = 1;  // tiles of a cluster: columns share Q, rows share P. Parts of 8 rows or more
  // Operands that the kernel prefetches into L2 as a whole before griddepcontrol.wait, and their bytes: multiples of
  // 16, or 0 for no prefetch.
  const void* prefetch_p = nullptr;
  const void* prefetch_q = nullptr;
  uint32_t prefetch_p_bytes = 0, prefetch_q_bytes = 0;
  // The operand that is read once (`ahead_q`: Q, else P): each block prefetches the first `ahead_blocks` k blocks of
  // its first tile into L2 before griddepcontrol.wait. Here are the operand's memory, the bytes from line to line and
  // of a line, and the number of lines.
  const void* ahead = nullptr;
  int64_t ahead_stride = 0, ahead_line_bytes = 0;
  int ahead_lines = 0, ahead_blocks = 0, ahead_q = 0;
  int late_blocks = -1;   // the next grid may start when every block has this many k blocks left to load; -1: at once
  int clipped_bytes = 0;  // bytes of a stage that no load fills: rows of the tile beyond the operand's last
  int p_batched = 0, q_batched = 0;  // 0: one operand for all of the batch
  int parts = 1;                     // more than 1: the grid's batch dimension holds parts of k, which parts.h adds
  int out_float = 0;                 // 1: out and c are float32, 0: they are of the input type
  int tma_store = 0;                 // persistent kernels: beta is 0 and out can be described to TMA
  int vector_store = 0;              // split kernels: rows of out are 16-byte aligned
  void* out = nullptr;               // rows x columns (swap: columns x rows), row-major and dense
  const void* c = nullptr;
  int64_t c_stride_batch = 0, c_stride_m = 0, c_stride_n = 0;  // as in GemmArguments: of out, never swapped
  float alpha = 1.0f, beta = 0.0f;
};

// Numbers of blocks that may split k in a cluster. The owned rows of a tile are multiples of eight, so other numbers
// would waste shared memory.
constexpr int kSplits[] = {1, 2, 3, 4, 8};

// The most parts of k that the second kernel adds.
constexpr int kMostParts = 4;

struct Kernel {
  const char* name;
  const void* function;
  ScalarType type;
  bool p_mn_major, q_mn_major;  // P stored k x rows; Q stored k x columns
  bool persistent;              // else: one tile a cluster, the blocks of the cluster splitting k
  bool swap;
  bool pingpong;  // persistent: two warpgroups take whole tiles in turn
  int tile_m, tile_n, tile_k, stages;
  int threads;
  int shared_bytes;
  int blocks_per_sm;
  int splits;               // not persistent: bit s is set if s blocks of a cluster can split k
  bool multicasts = false;  // not persistent: tiles of a cluster share operands by multicast
};

using KernelList = ArrayView<Kernel>;

// One list a translation unit that instantiates kernels.
KernelList persistent_float16();
KernelList persistent_bfloat16();
KernelList swapped_float16();
KernelList swapped_bfloat16();
KernelList swapped_columns_float16();
KernelList swapped_columns_bfloat16();
KernelList split_k_float16();
KernelList split_k_bfloat16();
KernelList skinny_float16();
KernelList skinny_bfloat16();
KernelList multicast_float16();
KernelList multicast_bfloat16();

}  // namespace cuda_llm_ops::cuda::sm90
