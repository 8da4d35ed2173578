// Every plan of the Hopper GEMM on products that are awkward for it, without torch, so that compute-sanitizer has little
// to watch. Each product twice in a row, against a plain kernel. Prints a line a plan; exits with 1 where one is wrong.
//
//   src=ext/csrc/cuda; gemm=$src/gemm
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DCUDA_LLM_OPS_SM90_GEMM -I ext/csrc -cudart static
//     tests/ops/gemm_plans.cu $gemm/sm90.cu $gemm/sm90_plan.cu $gemm/sm90_clusters.cu $gemm/sm90_persistent_*16.cu
//     $gemm/sm90_s{wapped,plit,kinny}_*16.cu $src/tensor_map.cu $src/device.cu -o gemm_plans
//   compute-sanitizer --tool racecheck --error-exitcode 9 ./gemm_plans ragged 3/16       # the fourth of 16 parts
//
// PRODUCTS is ragged, few-k, ahead or few-rows; PART n/of takes every of-th plan from the n-th on; NAME takes plans whose
// names have it in them. racecheck takes 1 to 10 s a plan.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/gemm/sm90.h"

using namespace cuda_llm_ops;

namespace {

struct Product {
  int m, n, k;
  bool a_columns, b_rows;  // a stored k x m; b stored k x n
  ScalarType type;
};

std::vector<Product> products_of(const std::string& name) {
  std::vector<Product> products;
  const auto add = [&](int m, int n, int k, int layout, ScalarType type) {
    products.push_back({m, n, k, (layout & 1) != 0, (layout & 2) != 0, type});
  };
  for (const ScalarType type : {ScalarType::float16, ScalarType::bfloat16}) {
    for (int layout = 0; layout < 4; ++layout) {
      if (name == "ragged") {
        add(200, 328, 392, layout, type);
        add(8, 264, 1032, layout, type);
        add(56, 200, 1096, layout, type);
      }
      if (name == "few-k" && type == ScalarType::float16) add(4104, 4112, 72, layout, type);
      if (name == "ahead" && type == ScalarType::float16 && (layout & 1) == 0) {
        for (const int m : {8, 40, 72, 136}) add(m, 4104, 4136, layout, type);
      }
      if (name == "few-rows" && layout == 0) {
        for (const int m : {17, 33, 64}) add(m, 5128, 1160, layout, type);
      }
    }
  }
  return products;
}

__device__ size_t first() { return blockIdx.x * size_t{blockDim.x} + threadIdx.x; }
__device__ size_t step() { return gridDim.x * size_t{blockDim.x}; }

// Between -0.5 and 0.5, by a hash of the place.
template <typename T>
__global__ void fill(T* values, size_t count, unsigned seed) {
  for (size_t i = first(); i < count; i += step()) {
    unsigned hash = static_cast<unsigned>(i) * 2654435761u + seed * 40503u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    hash = (hash ^ hash >> 13) * 3266489917u;
    values[i] = T(static_cast<float>((hash ^ hash >> 16) & 0xffff) / 65536.0f - 0.5f);
  }
}

template <typename T>
__global__ void multiply(const T* a, const T* b, T* out, GemmArguments g) {
  for (size_t i = first(); i < size_t(g.m) * g.n; i += step()) {
    const int64_t row = i / g.n, column = i % g.n;
    float sum = 0.0f;
    for (int64_t k = 0; k < g.k; ++k) {
      sum += static_cast<float>(a[row * g.a_stride_m + k * g.a_stride_k]) *
             static_cast<float>(b[k * g.b_stride_k + column * g.b_stride_n]);
    }
    out[i] = T(sum);
  }
}

template <typename T>
__global__ void count_far(const T* one, const T* other, size_t count, float allowed, int* far) {
  for (size_t i = first(); i < count; i += step()) {
    if (!(fabsf(static_cast<float>(one[i]) - static_cast<float>(other[i])) <= allowed)) atomicAdd(far, 1);
  }
}

struct Tally {
  int plans = 0, ran = 0, wrong = 0;
};

// allowed: what rounding and the order of a sum of up to 4136 products can come to.
template <typename T>
bool run(const Product& product, float allowed, int part, int parts, const char* name, int multiprocessors, int* far,
         Tally& tally) {
  GemmArguments g;
  g.m = product.m, g.n = product.n, g.k = product.k;
  g.in_type = g.out_type = product.type;
  g.a_stride_m = product.a_columns ? 1 : g.k, g.a_stride_k = product.a_columns ? g.m : 1;
  g.b_stride_k = product.b_rows ? g.n : 1, g.b_stride_n = product.b_rows ? 1 : g.k;
  const size_t of_a = size_t(g.m) * g.k, of_b = size_t(g.n) * g.k, of_out = size_t(g.m) * g.n;
  T *a, *b, *out[2], *right;
  cudaMalloc(&a, of_a * sizeof(T)), cudaMalloc(&b, of_b * sizeof(T)), cudaMalloc(&right, of_out * sizeof(T));
  for (T*& one : out) cudaMalloc(&one, of_out * sizeof(T));
  fill<<<64, 256>>>(a, of_a, 1u);
  fill<<<64, 256>>>(b, of_b, 2u);
  bool known = false;
  g.a = a, g.b = b;
  for (const std::string& plan : cuda::sm90::plan_names(g, multiprocessors)) {
    if (plan.find(name) == std::string::npos || tally.plans++ % parts != part) continue;
    if (!known) multiply<<<264, 256>>>(a, b, right, g);
    known = true;
    cuda::sm90::force_plan(plan);
    cudaMemset(far, 0, sizeof(int));
    const char* refused = nullptr;
    for (T* one : out) cudaMemsetAsync(one, 0xff, of_out * sizeof(T));  // NaN
    for (T* one : out) {
      g.out = one;
      if (const char* said = cuda::sm90::gemm(g, nullptr)) refused = said;
    }
    for (T* one : out) count_far<<<64, 256>>>(one, right, of_out, allowed, far);
    int elements = 0;
    if (const cudaError_t error = cudaMemcpy(&elements, far, sizeof(int), cudaMemcpyDeviceToHost); error != cudaSuccess) {
      std::printf("%s: %s\n", plan.c_str(), cudaGetErrorString(error));
      return false;
    }
    const bool right_one = elements == 0 && refused == nullptr;
    ++tally.ran;
    if (!right_one) ++tally.wrong;
    std::printf("%s %dx%dx%d %s%s%s\n", right_one ? "ok" : "wrong", g.m, g.n, g.k, plan.c_str(),
                refused == nullptr ? "" : ": ", refused == nullptr ? "" : refused);
    std::fflush(stdout);
  }
  for (T* one : {a, b, out[0], out[1], right}) cudaFree(one);
  return true;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<Product> products = products_of(count > 1 ? words[1] : "");
  int part = 0, parts = 1;
  if (products.empty() || (count > 2 && std::sscanf(words[2], "%d/%d", &part, &parts) != 2) || parts < 1) {
    std::fprintf(stderr, "usage: %s ragged|few-k|ahead|few-rows [PART/PARTS] [NAME]\n", words[0]);
    return 2;
  }
  cudaDeviceProp properties;
  int* far = nullptr;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9 ||
      cudaMalloc(&far, sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "needs a GPU of compute capability 9.0\n");
    return 2;
  }
  Tally tally;
  for (const Product& product : products) {
    const char* const name = count > 3 ? words[3] : "";
    const int sms = properties.multiProcessorCount;
    const bool went = product.type == ScalarType::float16
                          ? run<__half>(product, 0.02f, part, parts, name, sms, far, tally)
                          : run<__nv_bfloat16>(product, 0.15f, part, parts, name, sms, far, tally);
    if (!went) return 1;
  }
  std::printf("ran %d of %d plans, %d wrong\n", tally.ran, tally.plans, tally.wrong);
  return tally.wrong != 0;
}
