// The Hopper kernels of flash_attention with options as data: sm90_general_d*.cu define them, sm90_general.cu chooses and
// launches.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "../../kernels.h"
#include "launch.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace general {

constexpr int block_m = 128;  // queries of a tile

struct Parameters {
  CUtensorMap q, k, v;                   // 4-D: head_dim, sequence (of all packed ones), head, batch
  void* out;
  int64_t out_batch, out_head, out_seq;  // strides in elements
  int32_t seq_q, seq_kv, head_dim;       // of packed sequences, upper bounds
  int32_t heads, group;                  // query heads; query heads of one kv head
  int32_t m_tiles, batch_heads;          // query tiles of a head; heads of all the batch
  int32_t section;                       // heads that are worked on together
  float scale_log2;                      // scale * log2(e), above 0 and finite
  AttentionOptions options;
};

struct Instance {
  ScalarType type;
  int head_dim;  // computes any multiple of 8 up to this
  int block_n;   // keys of a block
  attention::Kernel kernel;
};

// One file each; float16, then bfloat16.
struct Pair {
  const Instance* instances;
};
Pair pair_64();
Pair pair_96();
Pair pair_128();
Pair pair_192();
Pair pair_256();

}  // namespace general

// As cuda::flash_attention_general, for what general_supported() says.
bool general_supported(const AttentionArguments& arguments, const AttentionOptions& options);
const char* flash_attention_general(const AttentionArguments& arguments, const AttentionOptions& options,
                                    cudaStream_t stream);
void general_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::sm90
