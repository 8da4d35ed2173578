// The Hopper kernels of attention's backward on the host, as the dispatch launches them, in the fibers of
// emulated_block.h. Built and called by test_backward_wgmma.py.
#include "cuda/backward/sm90_backward.cuh"
#include "cuda/backward/sm90_wide.cuh"
#include "cuda/backward/small_kernels.cuh"
#include "cuda/device.h"
#include "emulated_tma.h"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda;
using namespace cuda_llm_ops::cuda::backward;

namespace {
std::string launched;

template <typename P>
void set_body(const void* kernel, void** parameters) {
  emulated::body = [=] {
    reinterpret_cast<void (*)(P)>(const_cast<void*>(kernel))(*static_cast<const P*>(parameters[0]));
  };
}

template <typename T>
bool is_prepare(const void* kernel) {
  for (const void* one :
       {reinterpret_cast<const void*>(&prepare<T, 64>), reinterpret_cast<const void*>(&prepare<T, 128>),
        reinterpret_cast<const void*>(&prepare<T, 192>), reinterpret_cast<const void*>(&prepare<T, 256>)}) {
    if (one == kernel) return true;
  }
  return false;
}
}  // namespace

namespace emulated {
void launch(const void* kernel, dim3 grid, int block, int bytes, int cluster, void** parameters) {
  const Instance* main = nullptr;
  for (const Family& family : {family_64(), family_128(), family_192_of_128(), family_192(), family_256()}) {
    for (int i = 0; i < family.count; ++i) {
      if (family.instances[i].kernel == kernel) main = &family.instances[i];
    }
  }
  in_order = false;
  if (main != nullptr) {
    launched = main->name;
    in_order = main->deterministic;
    set_body<Parameters>(kernel, parameters);
  } else if (is_prepare<__half>(kernel) || is_prepare<__nv_bfloat16>(kernel)) {
    set_body<PrepareParameters>(kernel, parameters);
  } else {
    set_body<FinishParameters>(kernel, parameters);
  }
  run(grid, block, bytes, cluster);
}
}  // namespace emulated

namespace cuda_llm_ops::cuda {
DeviceFacts current_device_or_none() { return {132, 90, 233472, 232448}; }
cudaError_t allow_dynamic_shared(const void*, int) { return cudaSuccess; }
}  // namespace cuda_llm_ops::cuda

extern "C" {
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "refused"; }

// The gradients; nullptr, or what went wrong.
const char* run(const BackwardArguments* arguments) {
  BackwardArguments a = *arguments;
  launched.clear();
  if (!sm90_takes(a)) return "these kernels do not take it";
  const size_t bytes = sm90_workspace_bytes(a);
  std::vector<uint8_t> workspace(bytes + 256, 0xff);  // NaN
  a.workspace = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
  emulated::maps.clear();
  return launch_sm90(a, nullptr);
}
const char* name_of_launched() { return launched.c_str(); }
void seed(int number) { emulated::random.seed(number); }
int bytes_of_arguments() { return sizeof(BackwardArguments); }
}
