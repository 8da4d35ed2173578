// Launches of rows.cuh.
#include "rows.cuh"

#include "../error_text.h"
#include "../launch_config.h"

namespace cuda_llm_ops::cuda::backward {
namespace {

template <typename T>
__global__ void __launch_bounds__(rows_threads) rows_kernel(const __grid_constant__ RowParameters p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (rows_threads / 32) + threadIdx.x / 32;
  if (row < p.rows) rows_body<T>(p, row, static_cast<int>(threadIdx.x % 32));
}

const void* kernel_of(GradientType type) {
  switch (type) {
    case GradientType::float16: return reinterpret_cast<const void*>(&rows_kernel<__half>);
    case GradientType::bfloat16: return reinterpret_cast<const void*>(&rows_kernel<__nv_bfloat16>);
    default: return reinterpret_cast<const void*>(&rows_kernel<float>);
  }
}

}  // namespace

const char* launch_rows(const RowParameters& p, GradientType type, cudaStream_t stream) {
  constexpr int warps = rows_threads / 32;
  void* arguments[] = {const_cast<RowParameters*>(&p)};
  const dim3 blocks(static_cast<unsigned>((p.rows + warps - 1) / warps));
  return error_text(LaunchConfig(blocks, rows_threads, 0, stream).launch(kernel_of(type), arguments));
}

}  // namespace cuda_llm_ops::cuda::backward
