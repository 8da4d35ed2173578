// The copies of sm90_repack.h.
//
//   a warp      32 chunks of 16 bytes of one line of the copy: each lane loads the aligned 16 bytes that hold the begin of
//               its chunk, has the next 16 from the lane above (the last lane loads them), and shifts the two together
//   the shift   is the same for a whole line, so choosing words costs two selections and four funnel shifts a chunk
#include "sm90_repack.h"

#include <cuda_runtime.h>

#include "../ptx/griddepcontrol.cuh"
#include "sm90_operand.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int64_t pitch_elements = 64;  // the copy's lines begin at multiples of 128 bytes

struct Copy {
  const uint8_t* from;
  const uint8_t* end;  // behind the last byte of the operand
  uint8_t* to;
  int64_t stride_bytes, batch_stride_bytes;  // of `from`
  int64_t pitch_bytes;                       // of `to`, whose batches follow each other
  int lines;                                 // of a batch
  int chunks;                                // of a line
  int segments;                              // of a line: 32 chunks, a warp's
  int warps;                                 // in all
};

struct Copies {
  Copy copy[2];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The 16 bytes at an address that is a multiple of 16; what lies at or behind `end` is not touched, and reads as zero.
__device__ __forceinline__ uint4 load_chunk(const uint8_t* address, const uint8_t* end) {
  if (address + 16 <= end) return *reinterpret_cast<const uint4*>(address);
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (address + 2 * i + 2 <= end) {
      words[i / 2] |= static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(address + 2 * i)) << (i % 2 * 16);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
#endif

__global__ void __launch_bounds__(threads) repack_lines(const __grid_constant__ Copies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  int task = blockIdx.x * warps + threadIdx.x / 32;
  const bool second = task >= copies.copy[0].warps;
  if (second) task -= copies.copy[0].warps;
  const Copy& copy = copies.copy[second];
  if (task >= copy.warps) return;
  const int lane = threadIdx.x % 32;
  const int row = task / copy.segments;  // of all batches
  const int chunk = (task - row * copy.segments) * 32 + lane;
  const int batch = row / copy.lines;

  const uint8_t* const line = copy.from + batch * copy.batch_stride_bytes + (row - batch * copy.lines) * copy.stride_bytes;
  const uint32_t shift = reinterpret_cast<uintptr_t>(line) % 16;
  const uint8_t* const aligned = line - shift + chunk * 16;
  const uint4 low = load_chunk(aligned, copy.end);
  uint4 high = make_uint4(__shfl_down_sync(0xffffffff, low.x, 1), __shfl_down_sync(0xffffffff, low.y, 1),
                          __shfl_down_sync(0xffffffff, low.z, 1), __shfl_down_sync(0xffffffff, low.w, 1));
  if (lane == 31) high = load_chunk(aligned + 16, copy.end);
  if (chunk >= copy.chunks) return;

  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
  }
  const uint32_t bits = shift % 4 * 8;
  *reinterpret_cast<uint4*>(copy.to + row * copy.pitch_bytes + chunk * 16) =
      make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                 __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
#endif
}

int64_t pitch_of(const Operand& operand) { return ceil_div(operand.inner(), pitch_elements) * pitch_elements; }

int64_t copy_bytes(const Operand& operand) { return operand.batches() * operand.outer() * pitch_of(operand) * 2; }

// Fills `copy` and turns `operand` into its result.
void plan_copy(Copy& copy, Operand& operand, uint8_t* to) {
  const int64_t inner = operand.inner(), outer = operand.outer(), pitch = pitch_of(operand);
  const int64_t stride = outer > 1 ? operand.stride() : 0;
  const int64_t batch_stride = operand.batches() > 1 ? operand.stride_batch : 0;
  copy.from = static_cast<const uint8_t*>(operand.pointer);
  copy.end = copy.from + ((operand.batches() - 1) * batch_stride + (outer - 1) * stride + inner) * 2;
  copy.to = to;
  copy.stride_bytes = stride * 2;
  copy.batch_stride_bytes = batch_stride * 2;
  copy.pitch_bytes = pitch * 2;
  copy.lines = static_cast<int>(outer);
  copy.chunks = static_cast<int>(ceil_div(inner, 8));
  copy.segments = static_cast<int>(ceil_div(copy.chunks, 32));
  copy.warps = static_cast<int>(operand.batches() * outer * copy.segments);
  operand.pointer = to;
  (operand.mn_major() ? operand.stride_k : operand.stride_mn) = pitch;
  if (operand.batches() > 1) operand.stride_batch = pitch * outer;
}

bool needs_copy(const Operand& operand, ScalarType type) {
  return operand.contiguous_lines() && !describable(operand, type);
}

}  // namespace

size_t repack_bytes(const GemmArguments& arguments) {
  const Operand a = operand_a(arguments), b = operand_b(arguments);
  if (arguments.in_type == ScalarType::float32 || !a.contiguous_lines() || !b.contiguous_lines()) return 0;
  int64_t bytes = 0;
  if (needs_copy(a, arguments.in_type)) bytes += copy_bytes(a);
  if (needs_copy(b, arguments.in_type)) bytes += copy_bytes(b);
  // Fitted to times on one NVIDIA H200 (docs/ladder-gemm-hopper.md): what a product takes longer on mma.sync with shifted
  // lines, against a launch and the copies' way through memory.
  const double seconds_saved = 2.0 * arguments.batch * arguments.m * arguments.n * arguments.k * 7.3e-15;
  const double seconds_spent = 2.0e-6 + 2.0 * static_cast<double>(bytes) / 3.5e12;
  return seconds_saved > seconds_spent ? static_cast<size_t>(bytes) : 0;
}

const char* repack(GemmArguments& arguments, cudaStream_t stream) {
  Copies copies{};
  Operand a = operand_a(arguments), b = operand_b(arguments);
  uint8_t* to = static_cast<uint8_t*>(arguments.workspace);
  int count = 0;
  for (Operand* operand : {&a, &b}) {
    if (!needs_copy(*operand, arguments.in_type)) continue;
    const int64_t bytes = copy_bytes(*operand);
    plan_copy(copies.copy[count++], *operand, to);
    to += bytes;
  }
  if (count == 0) return nullptr;
  const int64_t tasks = static_cast<int64_t>(copies.copy[0].warps) + copies.copy[1].warps;

  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ceil_div(tasks, warps)));
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, repack_lines, copies);
  if (error != cudaSuccess) return cudaGetErrorString(error);

  arguments.a = a.pointer, arguments.b = b.pointer;
  arguments.a_stride_m = a.stride_mn, arguments.a_stride_k = a.stride_k, arguments.a_stride_batch = a.stride_batch;
  arguments.b_stride_n = b.stride_mn, arguments.b_stride_k = b.stride_k, arguments.b_stride_batch = b.stride_batch;
  return nullptr;
}

}  // namespace cuda_llm_ops::cuda::sm90
