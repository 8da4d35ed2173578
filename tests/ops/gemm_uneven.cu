// Every plan of the kernels for products whose operands' lines begin at any element (mma/realigned.cuh), and the copies
// that let the Hopper GEMM take such products (sm90/realign.cu), without torch, so that compute-sanitizer has little to
// watch. Each product twice in a row, against a plain kernel. Prints a line a plan; exits with 1 where one is wrong.
//
//   src=ext/csrc/cuda; gemm=$src/gemm
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DCUDA_LLM_OPS_SM90_GEMM -I ext/csrc -cudart static
//     tests/ops/gemm_uneven.cu $gemm/{portable,tile_cost,simt/simt,sm90/realign}.cu $gemm/mma/instances/*.cu
//     $src/tensor_map.cu $src/device.cu -o gemm_uneven
//   compute-sanitizer --tool racecheck --error-exitcode 9 ./gemm_uneven 3/80       # the fourth of 80 parts
//
// Operands are allocations that end with their last element, so that memcheck sees whoever reads behind them; what lies
// between lines is NaN, so that whoever uses it is wrong.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <string>

#include "cuda/gemm/portable.h"
#include "cuda/gemm/sm90/realign.h"
#include "device_products.cuh"

using namespace cuda_llm_ops;

namespace {

struct Product {
  int m, n, k;
  bool a_columns, b_rows;  // a stored k x m; b stored k x n
  int offset, gap;         // elements before the first line; between lines
};

template <typename T>
__global__ void fill_lines(T* out, int64_t lines, int64_t length, int64_t pitch, unsigned seed) {
  for (size_t i = first(); i < size_t(lines) * length; i += step()) {
    unsigned x = (static_cast<unsigned>(i) + seed) * 2654435761u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    out[i / length * pitch + i % length] = T((static_cast<float>(x & 0xffff) / 32768.0f - 1.0f) * 0.5f);
  }
}

int part = 0, parts = 1, index = 0, ran = 0, wrong = 0;

template <typename T>
T* operand(int64_t lines, int64_t length, int offset, int gap, unsigned seed) {
  const int64_t pitch = length + gap, count = offset + (lines - 1) * pitch + length;
  T* memory = nullptr;
  cudaMalloc(&memory, count * sizeof(T));
  cudaMemset(memory, 0xff, count * sizeof(T));
  fill_lines<<<64, 256>>>(memory + offset, lines, length, pitch, seed);
  return memory;
}

template <typename T, typename Out>
bool run(const Product& p, ScalarType type, ScalarType out_type, bool with_c, float allowed) {
  GemmArguments g;
  g.m = p.m, g.n = p.n, g.k = p.k;
  g.in_type = type, g.out_type = out_type;
  const int64_t a_pitch = (p.a_columns ? p.m : p.k) + p.gap, b_pitch = (p.b_rows ? p.n : p.k) + p.gap;
  g.a_stride_m = p.a_columns ? 1 : a_pitch, g.a_stride_k = p.a_columns ? a_pitch : 1;
  g.b_stride_k = p.b_rows ? b_pitch : 1, g.b_stride_n = p.b_rows ? 1 : b_pitch;
  T* const a = operand<T>(p.a_columns ? p.k : p.m, p.a_columns ? p.m : p.k, p.offset, p.gap, 1u);
  T* const b = operand<T>(p.b_rows ? p.k : p.n, p.b_rows ? p.n : p.k, p.offset, p.gap, 2u);
  Out* const c = operand<Out>(p.n, p.m, 0, 0, 3u);  // its columns are lines
  g.a = a + p.offset, g.b = b + p.offset;
  if (with_c) g.c = c, g.c_stride_m = 1, g.c_stride_n = p.m, g.alpha = 0.5f, g.beta = 2.0f;
  const size_t of_out = size_t(p.m) * p.n;
  Out *out[2], *right;
  int* far;
  for (Out** one : {&out[0], &out[1], &right}) cudaMalloc(one, of_out * sizeof(Out));
  cudaMalloc(&far, sizeof(int));
  multiply<<<264, 256>>>(a + p.offset, b + p.offset, right, g);

  const auto check = [&](const std::string& name, auto&& launch) {
    cudaMemset(far, 0, sizeof(int));
    const char* refused = nullptr;
    for (Out* one : out) cudaMemsetAsync(one, 0xff, of_out * sizeof(Out));  // NaN
    for (Out* one : out) {
      g.out = one;
      if (const char* said = launch()) refused = said;
    }
    for (Out* one : out) count_far<<<64, 256>>>(one, right, of_out, allowed, far);
    int elements = 0;
    if (const cudaError_t error = cudaMemcpy(&elements, far, sizeof(int), cudaMemcpyDeviceToHost);
        error != cudaSuccess) {
      std::printf("%s: %s\n", name.c_str(), cudaGetErrorString(error));
      return false;
    }
    const bool right_one = elements == 0 && refused == nullptr;
    ++ran;
    wrong += !right_one;
    std::printf("%s %dx%dx%d %c%c offset %d gap %d%s %s%s%s\n", right_one ? "ok" : "wrong", p.m, p.n, p.k,
                p.a_columns ? 't' : 'n', p.b_rows ? 'n' : 't', p.offset, p.gap, with_c ? " with c" : "", name.c_str(),
                refused == nullptr ? "" : ": ", refused == nullptr ? "" : refused);
    std::fflush(stdout);
    return true;
  };
  bool alive = true;
  for (const cuda::portable::RealignedPlan& plan : cuda::portable::realigned_plans(g)) {
    if (!alive || index++ % parts != part) continue;
    const std::string name = "config " + std::to_string(plan.config) + " split " + std::to_string(plan.split) +
                             (plan.transposed ? " transposed" : "");
    alive = check(name, [&] { return cuda::portable::realigned_gemm(g, plan, nullptr); });
  }
  const size_t bytes = cuda::sm90::realign_bytes(g);
  if (alive && bytes > 0 && index++ % parts == part) {
    void* workspace = nullptr;
    cudaMalloc(&workspace, bytes);
    alive = check("copied", [&] {
      GemmArguments realigned = g;
      realigned.workspace = workspace;
      if (const char* refused = cuda::sm90::realign(realigned, nullptr)) return refused;
      multiply<<<264, 256>>>(static_cast<const T*>(realigned.a), static_cast<const T*>(realigned.b),
                             static_cast<Out*>(g.out), realigned);
      return static_cast<const char*>(nullptr);
    });
    cudaFree(workspace);
  }
  for (void* one : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c), static_cast<void*>(out[0]),
                    static_cast<void*>(out[1]), static_cast<void*>(right), static_cast<void*>(far)}) {
    cudaFree(one);
  }
  return alive;
}

}  // namespace

int main(int count, char** words) {
  if (count > 1 && (std::sscanf(words[1], "%d/%d", &part, &parts) != 2 || parts < 1)) {
    std::fprintf(stderr, "usage: %s [PART/PARTS]\n", words[0]);
    return 2;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major < 8) {
    std::fprintf(stderr, "needs a GPU of compute capability 8.0 or later\n");
    return 2;
  }
  bool alive = true;
  for (int layout = 0; alive && layout < 4; ++layout) {
    const bool a_columns = (layout & 1) != 0, b_rows = (layout & 2) != 0;
    for (const Product& p :
         {Product{131, 261, 411, a_columns, b_rows, 1, 1}, Product{9, 129, 1157, a_columns, b_rows, 3, 0}}) {
      const bool half = p.offset == 1;
      alive = alive &&
              (half ? run<__half, __half>(p, ScalarType::float16, ScalarType::float16, false, 0.02f)
                    : run<__nv_bfloat16, __nv_bfloat16>(p, ScalarType::bfloat16, ScalarType::bfloat16, true, 0.3f));
    }
    const Product one{1, 37, 70, a_columns, b_rows, 5, 2};
    alive = alive && run<__half, float>(one, ScalarType::float16, ScalarType::float32, true, 0.01f);
  }
  std::printf("ran %d times, %d wrong\n", ran, wrong);
  return !alive || wrong != 0;
}
