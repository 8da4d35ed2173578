// The interface between the weight-only product (weight_only_ops.cpp) and its kernels.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops {

// Packed weights are tiles of 16 columns of n by 64 of k, those of the same 16 columns side by side along k. A tile is
// what one warp feeds to four mma.sync m16n8k16 as their first operand, so that each lane reads whole 16 bytes.
//
// Element (column j, k index c) of a tile: step = c / 16, hi = c % 2, lane = 4 * (j % 8) + c % 8 / 2, and its register
// of the fragment is i = j / 8 + 2 * (c % 16 / 8).
//   4 bits: nibble i + 4 * hi of the 32-bit word `step` of the lane's 16 bytes; 512 bytes a tile
//   8 bits: byte i % 2 + 2 * hi of word 2 * (step % 2) + i / 2 of the lane's 16 bytes in half `step / 2`; 1024 bytes
constexpr int32_t kWeightColumns = 16, kWeightDepth = 64;
constexpr int32_t weight_tile_bytes(int32_t bits) { return kWeightColumns * kWeightDepth * bits / 8; }

// Byte of the tile, and for 4 bits the shift in it.
struct WeightPlace {
  int32_t byte, shift;
};
constexpr WeightPlace weight_place(int32_t bits, int32_t j, int32_t c) {
  const int32_t step = c / 16, hi = c % 2, lane = 4 * (j % 8) + c % 8 / 2, i = j / 8 + 2 * (c % 16 / 8);
  if (bits == 4) {
    const int32_t nibble = i + 4 * hi;
    return {lane * 16 + step * 4 + nibble / 2, 4 * (nibble % 2)};
  }
  return {step / 2 * 512 + lane * 16 + (2 * (step % 2) + i / 2) * 4 + i % 2 + 2 * hi, 0};
}

// out[i, j] = sum over groups of k of scales[group, j] * sum over the group of x[i, k] * (q[k, j] - zeros[group, j]),
// in float32. 4 bits: q and zeros lie in 0..15, zeros are 8 where nullptr. 8 bits: q is signed, one group, no zeros.
struct WeightOnlyArguments {
  const void* x = nullptr;       // m x k, dense along k
  const void* packed = nullptr;  // ceil(n / 16) x k / 64 tiles; what lies behind column n is read, and not used
  const void* scales = nullptr;  // of `type`: groups x n, dense; n with 8 bits
  const void* zeros = nullptr;   // bytes, groups x n, dense; or nullptr
  void* out = nullptr;           // m x n, dense, of `type`
  int32_t m = 0, n = 0, k = 0;   // k is a multiple of 64
  int32_t group = 128;           // 64 or 128; not read with 8 bits
  int32_t bits = 4;              // 4 or 8
  int64_t x_stride = 0;          // of rows
  ScalarType type = ScalarType::bfloat16;
  void* workspace = nullptr;  // on CUDA, where weight_only_workspace_bytes() is not 0: so many bytes, 256-byte aligned
};

namespace cpu {
void weight_only_gemm(const WeightOnlyArguments& arguments, const ParallelFor& parallel);
}  // namespace cpu

namespace cuda {
// x and packed are 16-byte aligned, x_stride is a multiple of 8.
size_t weight_only_workspace_bytes(const WeightOnlyArguments& arguments);
const char* weight_only_gemm(const WeightOnlyArguments& arguments, void* stream);
void weight_only_attributes(std::vector<KernelAttributes>& into);
}  // namespace cuda

}  // namespace cuda_llm_ops
