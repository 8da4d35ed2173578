// Copies of operands whose rows begin anywhere, with rows that TMA can describe: 16-byte aligned.
#include <algorithm>

#include "../../../arithmetic.h"
#include "../../error_text.h"
#include "../../tensor_map.h"
#include "gemm.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = 16;  // bytes of a thread

// Rows of `pitch` bytes from rows of k. The bytes behind k are anything: TMA is told that a row has k.
__global__ void __launch_bounds__(kThreads) fp8_realign(const uint8_t* from, uint8_t* to, int64_t rows, int64_t group,
                                                        int64_t stride, int64_t stride_group, int k, int64_t pitch) {
  const int64_t pieces = pitch / kPiece, all = rows * pieces;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / pieces, at = i % pieces * kPiece;
    const uint8_t* const source = from + row / group * stride_group + row % group * stride + at;
    uint32_t words[4] = {};
#pragma unroll
    for (int byte = 0; byte < kPiece; ++byte) {
      if (at + byte < k) words[byte / 4] |= static_cast<uint32_t>(source[byte]) << byte % 4 * 8;
    }
    *reinterpret_cast<uint4*>(to + row * pitch + at) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// An operand as its rows: `group` of each of its groups.
struct Operand {
  const void* pointer;
  int64_t rows, group, stride, stride_group;

  bool aligned() const {
    const bool by_row = group == 1 || (stride % kPiece == 0 && stride > 0);
    const bool by_group = rows == group || (stride_group % kPiece == 0 && stride_group > 0);
    return reinterpret_cast<uintptr_t>(pointer) % kPiece == 0 && by_row && by_group;
  }
};

Operand operand_a(const Fp8GemmArguments& g) { return {g.a, g.m, g.m, g.a_stride, 0}; }
Operand operand_b(const Fp8GemmArguments& g) {
  return {g.b, int64_t{g.n} * g.groups, g.n, g.b_stride, g.b_stride_group};
}

int64_t pitch_of(const Fp8GemmArguments& g) { return ceil_div(int64_t{g.k}, kPiece) * kPiece; }

// Rounded up, so that what follows is aligned as well.
size_t bytes_of(const Operand& operand, const Fp8GemmArguments& g) {
  return operand.aligned() ? 0 : static_cast<size_t>(ceil_div(operand.rows * pitch_of(g), int64_t{256}) * 256);
}

const char* copy(const Operand& operand, const Fp8GemmArguments& g, uint8_t* to, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 132 * 16;
  const int64_t pitch = pitch_of(g), pieces = operand.rows * (pitch / kPiece);
  const auto blocks = static_cast<unsigned>(std::min(ceil_div(pieces, int64_t{kThreads}), kMostBlocks));
  fp8_realign<<<blocks, kThreads, 0, stream>>>(static_cast<const uint8_t*>(operand.pointer), to, operand.rows,
                                               operand.group, operand.stride, operand.stride_group, g.k, pitch);
  return error_text(cudaGetLastError());
}

}  // namespace

size_t realign_bytes(const Fp8GemmArguments& g) {
  return g.k == 0 ? 0 : bytes_of(operand_a(g), g) + bytes_of(operand_b(g), g);
}

const char* realign(Fp8GemmArguments& g, cudaStream_t stream) {
  uint8_t* to = static_cast<uint8_t*>(g.workspace);
  const Operand a = operand_a(g), b = operand_b(g);
  const int64_t pitch = pitch_of(g);
  if (const size_t bytes = bytes_of(a, g); bytes > 0) {
    if (const char* refused = copy(a, g, to, stream)) return refused;
    g.a = to, g.a_stride = pitch;
    to += bytes;
  }
  if (bytes_of(b, g) > 0) {
    if (const char* refused = copy(b, g, to, stream)) return refused;
    g.b = to, g.b_stride = pitch, g.b_stride_group = pitch * g.n;
  }
  return nullptr;
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
