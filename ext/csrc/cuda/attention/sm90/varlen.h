// The Hopper kernels of flash_attention with AttentionOptions. instances/varlen_d*.cu compile them, varlen.cu chooses
// and launches one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "../../../kernels.h"
#include "../../array_view.h"
#include "../launch.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace varlen {

constexpr int kBlockM = 128;  // queries of a tile

struct Parameters {
  CUtensorMap q, k, v;  // 4-D: head_dim, token, head, batch
  void* out;
  int64_t out_batch, out_head, out_seq;  // strides in elements
  int32_t seq_q, seq_kv, value_dim;      // lengths of variable length: upper bounds
  int32_t heads, group;                  // query heads; query heads of one kv head
  int32_t m_tiles, batch_heads;          // query tiles of a head; heads of all the batch
  int32_t section;                       // heads that are worked on together
  float scale_log2;                      // scale * log2(e), above 0 and finite
  AttentionOptions options;
};

struct Instance {
  ScalarType type;
  int head_dim;   // computes any multiple of 8 up to this
  int value_dim;  // if less than head_dim: computes only a V with fewer columns than Q and K, at most this many
  int block_n;    // keys of a block
  attention::Kernel kernel;
};

// Instances of one element type; one file each in instances/.
using Instances = ArrayView<Instance> (*)(ScalarType type);

ArrayView<Instance> instances_d64(ScalarType type);
ArrayView<Instance> instances_d96(ScalarType type);
ArrayView<Instance> instances_d128(ScalarType type);
ArrayView<Instance> instances_d192(ScalarType type);
ArrayView<Instance> instances_d256(ScalarType type);

// In ascending order of head_dim: the choice (varlen.cu) takes the first that is large enough.
constexpr Instances kInstances[] = {instances_d64, instances_d96, instances_d128, instances_d192, instances_d256};

}  // namespace varlen

// As cuda::flash_attention_varlen, for what varlen_supported() says.
bool varlen_supported(const AttentionArguments& arguments, const AttentionOptions& options);
const char* flash_attention_varlen(const AttentionArguments& arguments, const AttentionOptions& options,
                                   cudaStream_t stream);
void varlen_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::sm90
