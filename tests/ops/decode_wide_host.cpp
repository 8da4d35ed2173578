// Decode of many rows, and of any number against 8-bit caches, on the host, as the dispatch launches it: its kernels run
// in the fibers of emulated_block.h. Built and called by test_decode_wide.py.
#include "cuda/counters.h"
#include "cuda/decode/decode.h"
#include "cuda/decode/mma/instances.cuh"
#include "cuda/decode/mma/residency.h"
#include "cuda/decode/quantised/instances.cuh"
#include "cuda/decode/quantised/kernels.h"
#include "cuda/device.h"
#include "emulated_tma.h"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda;
namespace d = cuda_llm_ops::cuda::decode;

namespace {
int multiprocessors = 1, clusters = 0;
uint32_t counters[kCounters];
std::string launched;
}  // namespace

namespace emulated {

void launch(const void* kernel, dim3 grid, int block, int bytes, int cluster, void** parameters) {
  bool quantised = false;
  for (const d::QuantisedInstances* all : {&d::quantised_e4m3_float16(), &d::quantised_int8_bfloat16()}) {
    for (const d::QuantisedInstance& one : *all) {
      if (one.address == kernel) quantised = true, launched = one.name;
    }
  }
  for (const d::MmaInstance& one : d::mma_float16()) {
    if (one.address == kernel) launched = one.name;
  }
  if (cluster > 1) launched += " in pairs";
  if (quantised) {
    body = [=] {
      reinterpret_cast<void (*)(d::QuantisedParameters)>(const_cast<void*>(kernel))(
          *static_cast<d::QuantisedParameters*>(parameters[0]));
    };
  } else {
    body = [=] {
      reinterpret_cast<void (*)(d::MmaParameters)>(const_cast<void*>(kernel))(
          *static_cast<d::MmaParameters*>(parameters[0]));
    };
  }
  run(grid, block, bytes, cluster);
}

}  // namespace emulated

namespace cuda_llm_ops::cuda {
uint32_t* counters_for(cudaStream_t, cudaError_t*) { return counters; }
cudaError_t current_device_facts(DeviceFacts* facts) {
  *facts = {multiprocessors, 90, 233472, 232448};
  return cudaSuccess;
}
namespace decode {
cudaError_t prepare(const MmaInstance&, int) { return cudaSuccess; }
int cluster_size(const MmaInstance&, const DeviceFacts&, int64_t) { return clusters; }

// Of many rows, and the one that the dispatch looks for first.
const MmaInstances& mma_float16() {
  static const MmaInstances all{tma_instance<ScalarType::float16, 64, 16, 4, 6>("d64 16 rows"),
                                tma_instance<ScalarType::float16, 128, 16, 4, 3>("d128 16 rows"),
                                wide_instance<ScalarType::float16, 64, 64, 8, 8>("d64 64 rows"),
                                wide_instance<ScalarType::float16, 128, 32, 8, 5>("d128 32 rows"),
                                wide_instance<ScalarType::float16, 128, 64, 8, 5>("d128 64 rows")};
  return all;
}
const MmaInstances& mma_bfloat16() { return mma_float16(); }
const QuantisedInstances& quantised_e4m3_float16() {
  static const QuantisedInstances all{CUDA_LLM_OPS_QUANTISED_INSTANCES(E4m3, float16, "e4m3")};
  return all;
}
const QuantisedInstances& quantised_int8_bfloat16() {
  static const QuantisedInstances all{CUDA_LLM_OPS_QUANTISED_INSTANCES(Int8, bfloat16, "int8")};
  return all;
}
const QuantisedInstances& quantised_e4m3_bfloat16() { return quantised_e4m3_float16(); }
const QuantisedInstances& quantised_int8_float16() { return quantised_int8_bfloat16(); }
}  // namespace decode
}  // namespace cuda_llm_ops::cuda

extern "C" {
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "refused"; }

// pointers: q, k, v, out, cache_lens, block_table, k_scale, v_scale. sizes: batch, heads, kv_heads, seq_q, head_dim,
// capacity, page_size, num_pages. strides: q (3), k, v, k_scale, v_scale (3 each: page, slot, head), table. kind: 0 float16, 1 e4m3, 2 int8
// with bfloat16. The name of what was launched, or nullptr if nothing was or counters are left.
// cluster: thread blocks of a cluster that computes a unit, or 0 if none does.
const char* decode(void** pointers, const int64_t* sizes, const int64_t* strides, float scale, int kind, int devices,
                   int cluster, int seed) {
  QuantisedDecodeArguments a;
  a.q = pointers[0], a.k = pointers[1], a.v = pointers[2], a.out = pointers[3];
  a.cache_lens = static_cast<const int32_t*>(pointers[4]), a.block_table = static_cast<const int32_t*>(pointers[5]);
  a.k_scale = static_cast<const float*>(pointers[6]), a.v_scale = static_cast<const float*>(pointers[7]);
  int32_t* const into[] = {&a.batch,    &a.heads,    &a.kv_heads,  &a.seq_q,
                           &a.head_dim, &a.capacity, &a.page_size, &a.num_pages};
  for (int i = 0; i < 8; ++i) *into[i] = static_cast<int32_t>(sizes[i]);
  a.q_stride = {strides[0], strides[1], strides[2]};
  CacheStrides* const caches[] = {&a.k_stride, &a.v_stride, &a.k_scale_stride, &a.v_scale_stride};
  for (int i = 0; i < 4; ++i) *caches[i] = {strides[3 + 3 * i], strides[4 + 3 * i], strides[5 + 3 * i]};
  a.table_stride_batch = strides[15];
  a.scale = scale;
  a.type = kind == 2 ? ScalarType::bfloat16 : ScalarType::float16;
  a.cache_type = kind == 2 ? CacheType::int8 : CacheType::e4m3;
  multiprocessors = devices, clusters = cluster;
  emulated::random.seed(seed);
  emulated::maps.clear(), launched.clear();
  if (!(kind == 0 ? d::mma_supported(a) : d::quantised_mma_supported(a))) return nullptr;
  const size_t bytes = kind == 0 ? d::mma_workspace_bytes(a) : d::quantised_mma_workspace_bytes(a);
  std::vector<uint8_t> workspace(bytes + 256, 0xff);  // NaN
  a.workspace = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
  if ((kind == 0 ? d::mma(a, nullptr) : d::quantised_mma(a, nullptr)) != nullptr) return nullptr;
  for (const uint32_t counter : counters) {
    if (counter != 0) return nullptr;
  }
  return launched.c_str();
}
}
