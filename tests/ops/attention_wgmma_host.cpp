// The Hopper kernels of attention's forward for head_dim 192 on the host, chosen and launched by the dispatch, in the
// fibers of emulated_block.h. Built and called by test_attention_wgmma.py.
#define __CUDACC__  // for the kernels' divisions
#include "cuda/attention/sm90/instance.h"
#undef __CUDACC__
#include "cuda/attention/sm90/flash.cu"
#include "cuda/attention/sm90/instances/d192.cu"
#include "cuda/attention/sm90/instances/varlen_d192.cu"
#include "cuda/attention/sm90/launch.cu"
#include "cuda/attention/sm90/realigned.cu"
#include "cuda/attention/sm90/schedule.cu"
#include "cuda/attention/sm90/stream_k.cu"
#include "cuda/attention/sm90/varlen.cu"
#include "emulated_tma.h"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda;

namespace {
std::string launched;
int multiprocessors;

template <typename Instance, typename P>
bool set_body(const Instance& instance, const void* kernel, void** parameters, P) {
  if (instance.kernel.address != kernel) return false;
  launched = instance.kernel.name;
  emulated::body = [=] {
    reinterpret_cast<void (*)(P)>(const_cast<void*>(kernel))(*static_cast<const P*>(parameters[0]));
  };
  return true;
}
}  // namespace

namespace emulated {
void launch(const void* kernel, dim3 grid, int block, int bytes, int cluster, void** parameters) {
  bool found = false;
  for (const ScalarType type : {ScalarType::float16, ScalarType::bfloat16}) {
    for (const auto& one : sm90::flash::instances_d192(type)) {
      found = found || set_body(one, kernel, parameters, sm90::flash::Parameters{});
    }
    for (const auto& one : sm90::varlen::instances_d192(type)) {
      found = found || set_body(one, kernel, parameters, sm90::varlen::Parameters{});
    }
  }
  if (!found) fail("a launch of an unknown kernel");
  run(grid, block, bytes, cluster);
}
}  // namespace emulated

namespace cuda_llm_ops::cuda {
DeviceFacts current_device_or_none() { return {multiprocessors, 90, 233472, 232448}; }
uint32_t* counters_for(cudaStream_t, cudaError_t*) { return nullptr; }
namespace sm90 {
namespace flash {
#define NONE(name) \
  ArrayView<Instance> instances_##name(ScalarType) { return {}; }
NONE(d64)
NONE(d64_192_rows)
NONE(d80)
NONE(d96)
NONE(d112)
NONE(d128)
NONE(d144)
NONE(d160)
NONE(d256)
NONE(realigned_d64_d112)
NONE(realigned_d128_d136)
NONE(realigned_d160_d192)
bool worth_padding(const AttentionArguments&) { return false; }
size_t padded_workspace_bytes(const AttentionArguments&) { return 0; }
const char* pad(const AttentionArguments&, AttentionArguments&, cudaStream_t) { return "padded"; }
const char* unpad(const AttentionArguments&, const AttentionArguments&, cudaStream_t) { return "padded"; }
}  // namespace flash
namespace varlen {
NONE(d64)
NONE(d96)
NONE(d128)
NONE(d256)
}  // namespace varlen
}  // namespace sm90
}  // namespace cuda_llm_ops::cuda

extern "C" {
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "refused"; }

// Whether a v narrower than q and k is taken; options: nullptr for the plain kernels.
bool takes(const AttentionArguments* a, const AttentionOptions* options) {
  multiprocessors = 132;
  return options == nullptr ? sm90::takes_narrow_values(*a) : sm90::varlen_supported(*a, *options);
}

// nullptr, or what went wrong.
const char* run(const AttentionArguments* a, const AttentionOptions* options, int on_multiprocessors, int seed) {
  multiprocessors = on_multiprocessors;
  launched.clear();
  emulated::maps.clear();
  emulated::random.seed(seed);
  if (options == nullptr) {
    return sm90::flash_attention_supported(*a) ? sm90::flash_attention(*a, nullptr) : "not supported";
  }
  return sm90::varlen_supported(*a, *options) ? sm90::flash_attention_varlen(*a, *options, nullptr) : "not supported";
}
const char* name_of_launched() { return launched.c_str(); }
int bytes_of_arguments() { return sizeof(AttentionArguments); }
}
