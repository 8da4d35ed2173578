// An operand of a product as the Hopper path sees it: a matrix of mn x k in one of two storages, and what TMA asks of
// it.
#pragma once

#include <cstdint>

#include "../../../arithmetic.h"
#include "../../../kernels.h"
#include "../../tensor_map.h"

namespace cuda_llm_ops::cuda::sm90 {

// `mn` is m for a, n for b. Strides in elements.
struct Operand {
  const void* pointer;
  int64_t mn, k, batch;
  int64_t stride_mn, stride_k, stride_batch;

  // Stored with mn contiguous. A vector is both; K-major is preferred then.
  bool mn_major() const { return stride_k != 1 && k > 1; }

  // Its lines: runs of `inner` elements that are contiguous (see describable()), `outer` of them, `stride` apart.
  int64_t inner() const { return mn_major() ? mn : k; }
  int64_t outer() const { return mn_major() ? k : mn; }
  int64_t stride() const { return mn_major() ? stride_k : stride_mn; }
  bool contiguous_lines() const { return mn_major() ? stride_mn == 1 || mn == 1 : true; }
  int64_t batches() const { return batch > 1 && stride_batch != 0 ? batch : 1; }  // that differ
};

inline Operand operand_a(const GemmArguments& g) {
  return {g.a, g.m, g.k, g.batch, g.a_stride_m, g.a_stride_k, g.a_stride_batch};
}

inline Operand operand_b(const GemmArguments& g) {
  return {g.b, g.n, g.k, g.batch, g.b_stride_n, g.b_stride_k, g.b_stride_batch};
}

// The map without its box. A stride of a dimension of size 1 means nothing and is replaced by one that TMA accepts.
inline TensorMapArguments describe(const Operand& operand, ScalarType type) {
  TensorMapArguments map;
  map.pointer = operand.pointer;
  map.type = type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  map.rank = 3;
  const int64_t inner = operand.inner(), outer = operand.outer(), batches = operand.batches();
  map.size[0] = static_cast<uint64_t>(inner);
  map.size[1] = static_cast<uint64_t>(outer);
  map.size[2] = static_cast<uint64_t>(batches);
  map.stride_bytes[1] = static_cast<uint64_t>(outer > 1 ? operand.stride() * 2 : ceil_div(inner, 8) * 16);
  map.stride_bytes[2] = batches > 1 ? static_cast<uint64_t>(operand.stride_batch * 2) : map.stride_bytes[1];
  return map;
}

inline bool describable(const Operand& operand, ScalarType type) {
  return operand.contiguous_lines() && tensor_map_possible(describe(operand, type));
}

}  // namespace cuda_llm_ops::cuda::sm90
