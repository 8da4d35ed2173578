// The Hopper kernels of attention's backward: what they are told, and how the host finds them.
//
// A tile is `block_m` queries by `block_n` keys. dQ is summed in float32 in the workspace, in blocks of 64 queries by
// 64 columns that lie there as wgmma leaves them in registers: element e of group j of thread t at (j * 128 + t) * 4 +
// e, see ptx/wgmma.cuh. So every addition is 16 bytes a thread and 512 contiguous bytes a warp.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "../../backward.h"

namespace cuda_llm_ops::cuda::backward {

constexpr int sum_rows = 64;         // queries of a block of dQ's sums
constexpr int sum_floats = 64 * 64;  // of a block
constexpr int row_padding = 128;     // rows of a head in lse and d_sum are padded to a multiple of this

struct Parameters {
  CUtensorMap q, d_out, k, v;  // 4-D: head_dim, sequence, head, batch
  const float* lse;            // (batch * heads, padded_q): log2 of the rows' sums; +inf
                               // past the sequence
  const float* d_sum;          // the same shape: rowsum(d_out * out) - d_lse; 0 past the sequence
  float* dq_sums;              // (batch * heads, padded_q / 64, the instance's head_dim /
                               // 64, sum_floats)
  uint32_t* turns;             // (batch * heads, padded_q / 64, the same / 64): how many
                               // key tiles were added
  void* dk;
  void* dv;
  int32_t head_dim, value_dim;  // at most the instance's
  int32_t seq_q, seq_kv, padded_q;
  int32_t kv_heads, group;   // query heads of one key head
  int32_t m_tiles, n_tiles;  // of a head
  int32_t batch_heads;       // batch * kv_heads
  int32_t section;           // key heads that are worked on together
  float scale, scale_log2;   // scale * log2(e)
  bool causal;               // of packed sequences: every query behind a key sees it
  int32_t low, high;         // of instances with a window: query i sees keys i + low <=
                             // j < i + high
  // Of packed sequences alone: seq_q and seq_kv are bounds of lengths, padded_q is all slots of queries (sm90_slots.cuh),
  // n_tiles a bound of their tiles, and batch_heads is kv_heads.
  AttentionOptions options;
  HeadStrides dk_stride, dv_stride;
  int32_t sequences;
};

struct Instance {
  GradientType type;
  int head_dim, value_dim, block_m, block_n, cluster;
  bool deterministic, windowed, packed;
  const void* kernel;
  int threads, shared_bytes;
  const char* name;
};

struct Family {
  const Instance* instances;
  int count;
};
Family family_64();
Family family_128();
Family family_192_of_128();
Family family_192();
Family family_256();

// Whether these kernels compute it on the current device: head_dim up to 256, packed up to 128; with a window in free
// order alone.
bool sm90_takes(const BackwardArguments& a);
size_t sm90_workspace_bytes(const BackwardArguments& a);
const char* launch_sm90(const BackwardArguments& a, cudaStream_t stream);
void sm90_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::backward
