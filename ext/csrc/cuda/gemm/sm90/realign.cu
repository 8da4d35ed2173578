// The copies of sm90/realign.h. Those of lines:
//
//   a warp      32 chunks of 16 bytes of one line of the copy: each lane loads the aligned 16 bytes that hold the begin
//               of its chunk, has the next 16 from the lane above (the last lane loads them), and shifts the two
//               together
//   the shift   is the same for a whole line, so choosing words costs two selections and four funnel shifts a chunk
#include "realign.h"

#include <cuda_runtime.h>

#include "../../error_text.h"
#include "../../launch_config.h"
#include "../../ptx/griddepcontrol.cuh"
#include "../lines.cuh"
#include "operand.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int64_t kPitchElements = 64;  // the copy's lines begin at multiples of 128 bytes

struct Copy {
  const char* from;
  const char* end;  // behind the last byte of the operand
  char* to;
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

__global__ void __launch_bounds__(kThreads) realign_lines(const __grid_constant__ Copies copies) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  int task = blockIdx.x * kWarps + threadIdx.x / 32;
  const bool second = task >= copies.copy[0].warps;
  if (second) task -= copies.copy[0].warps;
  const Copy& copy = copies.copy[second];
  if (task >= copy.warps) return;
  const int lane = threadIdx.x % 32;
  const int row = task / copy.segments;  // of all batches
  const int chunk = (task - row * copy.segments) * 32 + lane;
  const int batch = row / copy.lines;

  const char* const line = copy.from + batch * copy.batch_stride_bytes + (row - batch * copy.lines) * copy.stride_bytes;
  const uint32_t shift = reinterpret_cast<uintptr_t>(line) % 16;
  const char* const aligned = line - shift + chunk * 16;
  const auto load = [&](const char* granule) {
    return granule + 16 <= copy.end ? *reinterpret_cast<const uint4*>(granule) : load_until(granule, copy.end);
  };
  const uint4 low = load(aligned);
  uint4 high = of_next_lane(low);
  if (lane == 31) high = load(aligned + 16);
  if (chunk >= copy.chunks) return;
  *reinterpret_cast<uint4*>(copy.to + row * copy.pitch_bytes + chunk * 16) = shifted_chunk(low, high, shift);
#endif
}

// Rows of k from an `a` that is stored k x m; elements have two bytes.
struct Turn {
  const uint16_t* from;
  uint16_t* to;
  int64_t stride;  // of `from`: elements from one k to the next
  int64_t pitch;   // of `to`: elements from row to row
  int32_t rows, k;
};

// A thread has eight elements of a row, and its neighbours the same of the next rows.
__global__ void __launch_bounds__(kThreads) turn_rows(const __grid_constant__ Turn turn) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int32_t task = static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
  const int32_t first = task / turn.rows * 8, row = task % turn.rows;
  if (first >= turn.k) return;
  const uint16_t* const from = turn.from + first * turn.stride + row;
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (first + i < turn.k) words[i / 2] |= static_cast<uint32_t>(from[i * turn.stride]) << (i % 2 * 16);
  }
  *reinterpret_cast<uint4*>(turn.to + row * turn.pitch + first) = make_uint4(words[0], words[1], words[2], words[3]);
#endif
}

int64_t turned_pitch(const GemmArguments& arguments) {
  return ceil_div(int64_t{arguments.k}, kPitchElements) * kPitchElements;
}

int64_t pitch_of(const Operand& operand) { return ceil_div(operand.inner(), kPitchElements) * kPitchElements; }

int64_t copy_bytes(const Operand& operand) { return operand.batches() * operand.outer() * pitch_of(operand) * 2; }

// Fills `copy` and turns `operand` into its result.
void plan_copy(Copy& copy, Operand& operand, char* to) {
  const int64_t inner = operand.inner(), outer = operand.outer(), pitch = pitch_of(operand);
  const int64_t stride = outer > 1 ? operand.stride() : 0;
  const int64_t batch_stride = operand.batches() > 1 ? operand.stride_batch : 0;
  copy.from = static_cast<const char*>(operand.pointer);
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

size_t realign_bytes(const GemmArguments& arguments) {
  const Operand a = operand_a(arguments), b = operand_b(arguments);
  if (arguments.in_type == ScalarType::float32 || !a.contiguous_lines() || !b.contiguous_lines()) return 0;
  int64_t bytes = 0;
  if (needs_copy(a, arguments.in_type)) bytes += copy_bytes(a);
  if (needs_copy(b, arguments.in_type)) bytes += copy_bytes(b);
  return static_cast<size_t>(bytes);
}

double realign_microseconds(size_t bytes) { return 1.5 + 2.0 * static_cast<double>(bytes) / 4.4e6; }

const char* realign(GemmArguments& arguments, cudaStream_t stream) {
  Copies copies{};
  Operand a = operand_a(arguments), b = operand_b(arguments);
  char* to = static_cast<char*>(arguments.workspace);
  int count = 0;
  for (Operand* operand : {&a, &b}) {
    if (!needs_copy(*operand, arguments.in_type)) continue;
    const int64_t bytes = copy_bytes(*operand);
    plan_copy(copies.copy[count++], *operand, to);
    to += bytes;
  }
  if (count == 0) return nullptr;
  const int64_t tasks = static_cast<int64_t>(copies.copy[0].warps) + copies.copy[1].warps;

  void* parameters[] = {&copies};
  const cudaError_t error = LaunchConfig(dim3(static_cast<unsigned>(ceil_div(tasks, kWarps))), kThreads, 0, stream)
                                .early()
                                .launch(reinterpret_cast<const void*>(&realign_lines), parameters);
  if (error != cudaSuccess) return error_text(error);

  arguments.a = a.pointer, arguments.b = b.pointer;
  arguments.a_stride_m = a.stride_mn, arguments.a_stride_k = a.stride_k, arguments.a_stride_batch = a.stride_batch;
  arguments.b_stride_n = b.stride_mn, arguments.b_stride_k = b.stride_k, arguments.b_stride_batch = b.stride_batch;
  return nullptr;
}

size_t turn_bytes(const GemmArguments& arguments) {
  constexpr int kMostRows = 128;  // with more, most lines of 128 bytes are full
  const Operand a = operand_a(arguments);
  const bool few = arguments.m > 1 && arguments.m <= kMostRows && arguments.m % 64 != 0;
  if (!few || arguments.batch != 1 || !a.mn_major() || !a.contiguous_lines()) return 0;
  return static_cast<size_t>(turned_pitch(arguments) * arguments.m * 2);
}

GemmArguments turned(const GemmArguments& arguments, const void* to) {
  GemmArguments made = arguments;
  made.a = to;
  made.a_stride_m = turned_pitch(arguments);
  made.a_stride_k = 1;
  made.workspace = nullptr;  // it is full
  return made;
}

const char* turn(GemmArguments& arguments, cudaStream_t stream) {
  Turn made{static_cast<const uint16_t*>(arguments.a),
            static_cast<uint16_t*>(arguments.workspace),
            arguments.a_stride_k,
            turned_pitch(arguments),
            arguments.m,
            arguments.k};
  const int64_t threads = ceil_div(int64_t{arguments.k}, 8) * arguments.m;
  void* parameters[] = {&made};
  const cudaError_t error = LaunchConfig(dim3(static_cast<unsigned>(ceil_div(threads, kThreads))), kThreads, 0, stream)
                                .early()
                                .launch(reinterpret_cast<const void*>(&turn_rows), parameters);
  if (error != cudaSuccess) return error_text(error);
  arguments = turned(arguments, arguments.workspace);
  return nullptr;
}

}  // namespace cuda_llm_ops::cuda::sm90
