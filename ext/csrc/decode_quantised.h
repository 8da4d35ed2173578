// The interface between the decode operator (decode_ops.cpp) and its kernels for 8-bit caches.
#pragma once

#include "decode.h"

namespace cuda_llm_ops {

enum class CacheType : int32_t { e4m3 = 0, int8 = 1 };

// As DecodeArguments, which this extends, with caches of 8-bit numbers: a key is k_scale times the number in memory, a
// value v_scale times it. `type` is that of q and out. Key j of sequence b, head h has the scale at
//   page(b, j / page_size) * stride.page + (j % page_size) * stride.slot + h * stride.head
// of the scales; strides are 0 along what shares a scale. Without scales (nullptr, both) they are 1.
struct QuantisedDecodeArguments : DecodeArguments {
  CacheType cache_type = CacheType::e4m3;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  CacheStrides k_scale_stride, v_scale_stride;

  bool scale_per_token() const {
    const auto of_token = [](const CacheStrides& stride) { return stride.page != 0 || stride.slot != 0; };
    return of_token(k_scale_stride) || of_token(v_scale_stride);
  }
};

namespace cpu {
// Lengths and pages as of flash_decode.
void quantised_decode(const QuantisedDecodeArguments& arguments, const ParallelFor& parallel);
}  // namespace cpu

namespace cuda {
// Lengths and pages as of flash_decode.
size_t quantised_decode_workspace_bytes(const QuantisedDecodeArguments& arguments);
const char* quantised_decode(const QuantisedDecodeArguments& arguments, void* stream);
void quantised_decode_attributes(std::vector<KernelAttributes>& into);
}  // namespace cuda

}  // namespace cuda_llm_ops
