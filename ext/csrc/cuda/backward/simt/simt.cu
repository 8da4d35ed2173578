// Launches of the float32 backward.
#include "../../device.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "tiles.cuh"

namespace cuda_llm_ops::cuda::backward {
namespace simt {
namespace {

template <typename C>
__global__ void __launch_bounds__(threads) sums_kernel(const __grid_constant__ GeneralParameters p, int tiles) {
  extern __shared__ float memory[];
  sums_body<C>(p, tiles, memory, static_cast<int>(blockIdx.x));
}

template <typename C>
__global__ void __launch_bounds__(threads) keys_kernel(const __grid_constant__ GeneralParameters p, int tiles) {
  extern __shared__ float memory[];
  keys_body<C>(p, tiles, memory, static_cast<int>(blockIdx.x));
}

template <typename C>
__global__ void __launch_bounds__(threads) queries_kernel(const __grid_constant__ GeneralParameters p, int tiles) {
  extern __shared__ float memory[];
  queries_body<C>(p, tiles, memory, static_cast<int>(blockIdx.x));
}

struct Instance {
  int dim, tile, shared_bytes;
  const void *sums, *keys, *queries;
  const char *sums_name, *keys_name, *queries_name;
};

template <typename C>
Instance instance(const char* sums_name, const char* keys_name, const char* queries_name) {
  return {C::dim,
          C::tile,
          C::shared_bytes,
          reinterpret_cast<const void*>(&sums_kernel<C>),
          reinterpret_cast<const void*>(&keys_kernel<C>),
          reinterpret_cast<const void*>(&queries_kernel<C>),
          sums_name,
          keys_name,
          queries_name};
}

const Instance instances[] = {
    instance<Config<64, 32>>("simt_backward_sums_64", "simt_backward_keys_64", "simt_backward_queries_64"),
    instance<Config<128, 32>>("simt_backward_sums_128", "simt_backward_keys_128", "simt_backward_queries_128"),
    instance<Config<256, 16>>("simt_backward_sums_256", "simt_backward_keys_256", "simt_backward_queries_256"),
};

const char* launch(const Instance& instance, const void* kernel, const GeneralParameters& p, int heads, int rows,
                   cudaStream_t stream) {
  int tiles = (rows + instance.tile - 1) / instance.tile;
  void* arguments[] = {const_cast<GeneralParameters*>(&p), &tiles};
  cudaError_t error = allow_dynamic_shared(kernel, instance.shared_bytes);
  if (error == cudaSuccess) {
    const dim3 blocks(static_cast<unsigned>(tiles) * static_cast<unsigned>(heads));
    error = LaunchConfig(blocks, threads, instance.shared_bytes, stream).launch(kernel, arguments);
  }
  return error_text(error);
}

}  // namespace
}  // namespace simt

const char* launch_simt(const BackwardArguments& a, const GeneralParameters& p, cudaStream_t stream) {
  for (const simt::Instance& one : simt::instances) {
    if (one.dim < a.head_dim) continue;
    const char* refusal = simt::launch(one, one.sums, p, p.batch * p.heads, p.seq_q, stream);
    if (refusal == nullptr) refusal = simt::launch(one, one.keys, p, p.batch * p.kv_heads, p.seq_kv, stream);
    return refusal != nullptr ? refusal : simt::launch(one, one.queries, p, p.batch * p.heads, p.seq_q, stream);
  }
  return "no float32 backward for this head_dim";
}

void simt_attributes(std::vector<KernelAttributes>& into) {
  for (const simt::Instance& one : simt::instances) {
    const char* const family = "flash_attention_backward";
    add_kernel_attributes(family, one.sums_name, one.sums, one.shared_bytes, into);
    add_kernel_attributes(family, one.keys_name, one.keys, one.shared_bytes, into);
    add_kernel_attributes(family, one.queries_name, one.queries, one.shared_bytes, into);
  }
}

}  // namespace cuda_llm_ops::cuda::backward
