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

// Sets the body if it is the small kernel before the main one, or the one behind.
template <typename T, int HeadDim, bool Packed>
bool is_small(const void* kernel, void** parameters) {
  if (kernel == reinterpret_cast<const void*>(&prepare<T, HeadDim, Packed>)) {
    set_body<PrepareParametersOf<Packed>>(kernel, parameters);
  } else if (kernel == reinterpret_cast<const void*>(&finish<T, HeadDim, Packed>)) {
    set_body<FinishParametersOf<Packed>>(kernel, parameters);
  } else {
    return false;
  }
  return true;
}

template <typename T>
bool is_small_of(const void* kernel, void** parameters) {
  return is_small<T, 64, false>(kernel, parameters) || is_small<T, 128, false>(kernel, parameters) ||
         is_small<T, 192, false>(kernel, parameters) || is_small<T, 256, false>(kernel, parameters) ||
         is_small<T, 64, true>(kernel, parameters) || is_small<T, 128, true>(kernel, parameters);
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
  } else if (!is_small_of<__half>(kernel, parameters) && !is_small_of<__nv_bfloat16>(kernel, parameters)) {
    fail("a kernel that nobody knows");
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
// The sequence and the place of as many tiles of packed sequences' keys, in the order in which they are begun.
void key_tiles(const int32_t* offsets, int sequences, int longest, bool by_rest, int count, int (*tiles)[2]) {
  emulated::body = [=] {
    const KeyTiles all{offsets, offsets[sequences], sequences, longest};
    const KeyTile tile = by_rest ? all.by_rest(blockIdx.x) : all.by_sequence(blockIdx.x);
    tiles[blockIdx.x][0] = tile.sequence, tiles[blockIdx.x][1] = tile.n;
  };
  emulated::run(dim3(count), 32, 0, 1);
}
const char* name_of_launched() { return launched.c_str(); }
void seed(int number) { emulated::random.seed(number); }
int bytes_of_arguments() { return sizeof(BackwardArguments); }
}
