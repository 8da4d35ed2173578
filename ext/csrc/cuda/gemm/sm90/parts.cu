// The sum of parts.h.
//
//   a thread    8 elements along a row of out: two 16-byte loads a part, all parts' loads at once, added in the order
//               of k
//   a grid      one such piece a thread; it starts beside the grid that computes the parts, and waits for its end
#include "parts.h"

#include <cuda_runtime.h>

#include "../../error_text.h"
#include "../../launch_config.h"
#include "operand.h"
#include "split_k_exchange.cuh"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

constexpr int kThreads = 128;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_parts(const __grid_constant__ KernelArguments arguments, const float* __restrict__ from) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::griddepcontrol_launch_dependents();
  const int chunks = arguments.columns / 8;
  const int piece = blockIdx.x * kThreads + threadIdx.x;
  const int row = piece / chunks, column = (piece - row * chunks) * 8;
  const int64_t part = static_cast<int64_t>(arguments.rows) * arguments.columns;
  from += static_cast<int64_t>(row) * arguments.columns + column;
  ptx::griddepcontrol_wait();
  if (row >= arguments.rows) return;
  float4 low[kMostParts], high[kMostParts];
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {
    if (i < arguments.parts) {
      low[i] = __ldcg(reinterpret_cast<const float4*>(from + i * part));
      high[i] = __ldcg(reinterpret_cast<const float4*>(from + i * part) + 1);
    }
  }
  float value[8] = {};
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {
    if (i < arguments.parts) {
      value[0] += low[i].x, value[1] += low[i].y, value[2] += low[i].z, value[3] += low[i].w;
      value[4] += high[i].x, value[5] += high[i].y, value[6] += high[i].z, value[7] += high[i].w;
    }
  }
  store_chunk<T>(arguments, 0, row, column, arguments.rows, arguments.columns, value);
#endif
}

}  // namespace

const char* add_parts(const GemmArguments& g, int parts, cudaStream_t stream) {
  KernelArguments arguments;
  arguments.rows = g.m;
  arguments.columns = g.n;
  arguments.parts = parts;
  arguments.out_float = g.out_type == ScalarType::float32;
  arguments.out = g.out;
  arguments.c = g.c;
  arguments.c_stride_m = g.c_stride_m;
  arguments.c_stride_n = g.c_stride_n;
  arguments.alpha = g.alpha;
  arguments.beta = g.c == nullptr ? 0.0f : g.beta;
  arguments.vector_store = reinterpret_cast<uintptr_t>(g.out) % 16 == 0;

  const auto kernel = g.in_type == ScalarType::bfloat16 ? &sum_parts<__nv_bfloat16> : &sum_parts<__half>;
  const dim3 blocks(static_cast<unsigned>(ceil_div(static_cast<int64_t>(g.m) * g.n / 8, kThreads)));
  const auto* parts_of_c = static_cast<const float*>(g.workspace);
  void* parameters[] = {&arguments, &parts_of_c};
  const cudaError_t error =
      LaunchConfig(blocks, kThreads, 0, stream).early().launch(reinterpret_cast<const void*>(kernel), parameters);
  return error_text(error);
}

}  // namespace cuda_llm_ops::cuda::sm90
