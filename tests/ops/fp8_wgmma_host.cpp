// The Hopper kernels of FP8 products on the host, as the dispatch launches them, in the fibers of emulated_block.h. Built
// and called by test_fp8_wgmma.py.
#include "cuda/device.h"
#include "cuda/fp8/sm90/gemm.h"
#include "cuda/fp8/sm90/kernels.h"
#include "cuda/kernel_attributes.h"
#include "emulated_tma.h"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda;

namespace {
constexpr int kMultiprocessors = 8;  // fewer than the tiles of most cases
std::string names;
}  // namespace

namespace emulated {
void launch(const void* kernel, dim3 grid, int block, int bytes, int cluster, void** parameters) {
  using Map = const CUtensorMap;
  body = [=] {
    reinterpret_cast<void (*)(Map, Map, Map, const fp8::sm90::KernelArguments)>(const_cast<void*>(kernel))(
        *static_cast<Map*>(parameters[0]), *static_cast<Map*>(parameters[1]), *static_cast<Map*>(parameters[2]),
        *static_cast<const fp8::sm90::KernelArguments*>(parameters[3]));
  };
  // A map is known by its bytes, so a copy of it serves.
  run(grid, block, bytes, cluster);
}
}  // namespace emulated

namespace cuda_llm_ops::cuda {
cudaError_t current_device_facts(DeviceFacts* facts) {
  *facts = {kMultiprocessors, 90, 233472, 232448};
  return cudaSuccess;
}
cudaError_t allow_dynamic_shared(const void*, int) { return cudaSuccess; }
bool tensor_map_possible(const TensorMapArguments& arguments) {
  bool possible = reinterpret_cast<uintptr_t>(arguments.pointer) % 16 == 0;
  for (int i = 1; i < arguments.rank; ++i) possible = possible && arguments.stride_bytes[i] % 16 == 0;
  return possible;
}
}  // namespace cuda_llm_ops::cuda

extern "C" {
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "refused"; }

Fp8GemmArguments arguments_of(void** pointers, const int64_t* numbers) {
  Fp8GemmArguments g;
  g.a = pointers[0], g.b = pointers[1], g.bias = pointers[4], g.out = pointers[5];
  g.scale_a = static_cast<const float*>(pointers[2]), g.scale_b = static_cast<const float*>(pointers[3]);
  g.group_sizes = static_cast<const int32_t*>(pointers[6]);
  int32_t* const sizes[] = {&g.m, &g.n, &g.k, &g.groups, &g.capacity, &g.scale_b_columns};
  for (int32_t* size : sizes) *size = static_cast<int32_t>(*numbers++);
  int64_t* const strides[] = {&g.a_stride,         &g.b_stride,         &g.b_stride_group,   &g.scale_a_stride_m,
                              &g.scale_a_stride_k, &g.scale_b_stride_n, &g.scale_b_stride_k, &g.scale_b_stride_group};
  for (int64_t* stride : strides) *stride = *numbers++;
  g.bias_stride = 1;
  g.a_type = static_cast<Fp8Type>(*numbers++);
  g.out_type = static_cast<ScalarType>(*numbers++);
  g.block_scales = *numbers++ != 0;
  return g;
}

// The plans of a product, a line each.
const char* plans(void** pointers, const int64_t* numbers) {
  names.clear();
  for (const std::string& name : fp8::sm90::plans(arguments_of(pointers, numbers))) names += name + "\n";
  return names.c_str();
}

// pointers: a, b, scale_a, scale_b, bias, out, group_sizes. numbers: as arguments_of takes them. nullptr, or why not.
const char* product(void** pointers, const int64_t* numbers, const char* plan, int seed) {
  const Fp8GemmArguments g = arguments_of(pointers, numbers);
  if (!fp8::sm90::supported(g)) return "TMA cannot describe it";
  emulated::random.seed(seed);
  emulated::maps.clear();
  fp8::sm90::force_plan(plan);
  const char* refused = fp8::sm90::gemm(g, nullptr);
  fp8::sm90::force_plan("");
  return refused;
}
}
