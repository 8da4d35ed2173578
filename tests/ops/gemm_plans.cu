// Every plan of the Hopper GEMM on products that are awkward for it, without torch, so that compute-sanitizer has
// little to watch. Each product twice in a row, against a plain kernel. Prints a line a plan; exits with 1 where one is
// wrong.
//
//   src=ext/csrc/cuda; gemm=$src/gemm
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DCUDA_LLM_OPS_SM90_GEMM -I ext/csrc -cudart static
//     tests/ops/gemm_plans.cu $gemm/sm90/{gemm,plan,cost_model,parts,clusters}.cu $gemm/sm90/instances/*.cu
//     $src/tensor_map.cu $src/device.cu -o gemm_plans
//   compute-sanitizer --tool racecheck --error-exitcode 9 ./gemm_plans each 3/16       # the fourth of 16 parts
//
// PRODUCTS is each, ragged, few-k, ahead or few-rows; PART n/of takes every of-th plan from the n-th on, of `each`
// every of-th kernel with all of its plans; NAME takes plans whose names have it in them; after SECONDS no further plan
// begins and the last line says how many are left, so that a tool that is given a time limit still comes to its
// summary.
//
// `each` is for racecheck, which needs 6 to 15 s for a process, about one for a plan, and a TMPDIR of its own where
// several run at once (16 on an H200 took 50 s for a third of the plans): every plan once, of either type, on a product
// made for it. That has two tiles by three (of few rows, two by one; for clusters that share, as many as a cluster has,
// and two by two at least), the last of them cut off, on so few multiprocessors that a persistent kernel's blocks have
// several tiles each; both parts of a cluster; and for every block of a split a k that goes round its ring of stages
// and a little further. The first plan of a kernel also computes alpha a b + beta c in float32, which most epilogues do
// in another way.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuda/gemm/sm90/gemm.h"
#include "cuda/gemm/sm90/launch.h"
#include "cuda/gemm/sm90/plan.h"
#include "device_products.cuh"

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

struct Tally {
  int plans = 0, ran = 0, wrong = 0, left = 0;
};

// The request of the command line, and its progress.
struct Request {
  int part = 0, parts = 1;
  std::string name;
  double seconds = 1e9;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  int* far = nullptr;
  Tally tally;

  bool names(const std::string& plan) const { return plan.find(name) != std::string::npos; }
  bool over() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds;
  }
};

GemmArguments arguments_of(const Product& product) {
  GemmArguments g;
  g.m = product.m, g.n = product.n, g.k = product.k;
  g.in_type = g.out_type = product.type;
  g.a_stride_m = product.a_columns ? 1 : g.k, g.a_stride_k = product.a_columns ? g.m : 1;
  g.b_stride_k = product.b_rows ? g.n : 1, g.b_stride_n = product.b_rows ? 1 : g.k;
  return g;
}

// A product's operands and what is right, on the device.
template <typename T, typename Out>
struct Operands {
  GemmArguments g;
  size_t of_out;
  void* workspace = nullptr;
  T *a, *b;
  Out *c, *out[2], *right;

  Operands(const GemmArguments& of, bool with_c) : g(of), of_out(size_t(of.m) * of.n) {
    const size_t of_a = size_t(g.m) * g.k, of_b = size_t(g.n) * g.k;
    cudaMalloc(&a, of_a * sizeof(T)), cudaMalloc(&b, of_b * sizeof(T));
    for (Out** one : {&c, &out[0], &out[1], &right}) cudaMalloc(one, of_out * sizeof(Out));
    fill<<<64, 256>>>(a, of_a, 1u, 0.5f);
    fill<<<64, 256>>>(b, of_b, 2u, 0.5f);
    fill<<<64, 256>>>(c, of_out, 3u, 0.5f);
    g.a = a, g.b = b;
    size_t bytes = 0;
    for (const cuda::sm90::Plan& plan : cuda::sm90::possible_plans(g, true)) {
      bytes = std::max(bytes, cuda::sm90::parts_bytes(g, plan));
    }
    if (bytes > 0) cudaMalloc(&workspace, bytes);
    g.workspace = workspace;
    if (with_c) g.c = c, g.c_stride_m = g.n, g.c_stride_n = 1, g.alpha = 0.5f, g.beta = 2.0f;
    multiply<<<264, 256>>>(a, b, right, g);
  }
  ~Operands() {
    for (void* one : {static_cast<void*>(a), static_cast<void*>(b), workspace}) cudaFree(one);
    for (Out* one : {c, out[0], out[1], right}) cudaFree(one);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Calls `launch` twice, which returns a refusal or nullptr. False if the device is lost.
  bool check(const std::string& plan, float allowed, Request& request,
             const std::function<const char*(const GemmArguments&)>& launch) {
    cudaMemset(request.far, 0, sizeof(int));
    const char* refused = nullptr;
    for (Out* one : out) cudaMemsetAsync(one, 0xff, of_out * sizeof(Out));  // NaN
    for (Out* one : out) {
      g.out = one;
      if (const char* said = launch(g)) refused = said;
    }
    for (Out* one : out) count_far<<<64, 256>>>(one, right, of_out, allowed, request.far);
    int elements = 0;
    if (const cudaError_t error = cudaMemcpy(&elements, request.far, sizeof(int), cudaMemcpyDeviceToHost);
        error != cudaSuccess) {
      std::printf("%s: %s\n", plan.c_str(), cudaGetErrorString(error));
      return false;
    }
    const bool right_one = elements == 0 && refused == nullptr;
    ++request.tally.ran;
    if (!right_one) ++request.tally.wrong;
    std::printf("%s %dx%dx%d%s %s%s%s\n", right_one ? "ok" : "wrong", g.m, g.n, g.k, g.c == nullptr ? "" : " with c",
                plan.c_str(), refused == nullptr ? "" : ": ", refused == nullptr ? "" : refused);
    std::fflush(stdout);
    return true;
  }
};

// allowed: what rounding and the order of a sum of up to 4136 products can come to.
template <typename T>
bool run(const Product& product, float allowed, int multiprocessors, Request& request) {
  Operands<T, T> operands(arguments_of(product), false);
  for (const GemmPlanFacts& facts : cuda::sm90::plan_facts(operands.g, multiprocessors)) {
    const std::string& plan = facts.name;
    if (!request.names(plan) || request.tally.plans++ % request.parts != request.part) continue;
    if (request.over()) {
      ++request.tally.left;
      continue;
    }
    cuda::sm90::force_plan(plan);
    const auto launch = [](const GemmArguments& g) { return cuda::sm90::gemm(g, nullptr); };
    if (!operands.check(plan, allowed, request, launch)) return false;
  }
  return true;
}

// The smallest product in which every block of a plan does all that it can: see the head of this file.
Product made_for(const cuda::sm90::Kernel& kernel, int split, int cluster_m, int cluster_n) {
  const int rows = (std::max(cluster_m, 2) - 1) * kernel.tile_m + 24;
  const int columns = (kernel.multicasts ? std::max(cluster_n, 2) - 1 : 2) * kernel.tile_n + 8;
  const int k_blocks = split * (kernel.stages + 2);
  Product product{rows,       columns, (k_blocks - 1) * kernel.tile_k + 24, kernel.p_mn_major, kernel.q_mn_major,
                  kernel.type};
  if (kernel.swap) {
    const bool one_tile = !kernel.persistent && kernel.tile_n < 80;  // the others may lie side by side
    product.m = one_tile ? kernel.tile_n - 3 : columns;
    product.n = rows;
    std::swap(product.a_columns, product.b_rows);
  }
  return product;
}

template <typename T>
bool run_each(const cuda::sm90::Kernel& kernel, float allowed, Request& request) {
  const int most = kernel.multicasts ? 4 : 2;  // tiles of a cluster along a side
  const Product widest = made_for(kernel, cuda::sm90::kSplits[std::size(cuda::sm90::kSplits) - 1], most, most);
  bool with_c = !(kernel.persistent && kernel.swap);  // that stores through TMA only, so neither c nor float32
  for (const cuda::sm90::Plan& plan : cuda::sm90::possible_plans(arguments_of(widest), true)) {
    const std::string name = cuda::sm90::plan_name(plan);
    if (plan.kernel != &kernel || !request.names(name)) continue;
    ++request.tally.plans;
    if (request.over()) {
      ++request.tally.left;
      continue;
    }
    const int cluster = plan.cluster_m * plan.cluster_n;
    const int multiprocessors = std::max(1, 2 * cluster / kernel.blocks_per_sm);  // two clusters at once
    const auto launch = [&](const GemmArguments& g) {
      return cuda::sm90::launch_plan(g, plan, multiprocessors, nullptr);
    };
    GemmArguments g = arguments_of(made_for(kernel, plan.split * plan.parts, plan.cluster_m, plan.cluster_n));
    if (!Operands<T, T>(g, false).check(name, allowed, request, launch)) return false;
    if (!with_c) continue;
    with_c = false;
    g.out_type = ScalarType::float32;
    if (!Operands<T, float>(g, true).check(name, 0.01f, request, launch)) return false;
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  const std::vector<Product> products = products_of(what);
  Request request;
  if (count > 3) request.name = words[3];
  if (count > 4) request.seconds = std::atof(words[4]);
  if ((products.empty() && what != "each") || request.seconds <= 0.0 ||
      (count > 2 && std::sscanf(words[2], "%d/%d", &request.part, &request.parts) != 2) || request.parts < 1) {
    std::fprintf(stderr, "usage: %s each|ragged|few-k|ahead|few-rows [PART/PARTS] [NAME] [SECONDS]\n", words[0]);
    return 2;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9 ||
      cudaMalloc(&request.far, sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "needs a GPU of compute capability 9.0\n");
    return 2;
  }
  constexpr float allowed_float16 = 0.02f, allowed_bfloat16 = 0.15f;
  const int sms = properties.multiProcessorCount;
  for (const Product& product : products) {
    const bool went = product.type == ScalarType::float16 ? run<__half>(product, allowed_float16, sms, request)
                                                          : run<__nv_bfloat16>(product, allowed_bfloat16, sms, request);
    if (!went) return 1;
  }
  if (what == "each") {
    int index = 0;
    for (const cuda::sm90::Kernel* kernel : cuda::sm90::all_kernels()) {
      if (index++ % request.parts != request.part) continue;
      const bool went = kernel->type == ScalarType::float16
                            ? run_each<__half>(*kernel, 2.0f * allowed_float16, request)
                            : run_each<__nv_bfloat16>(*kernel, 2.0f * allowed_bfloat16, request);
      if (!went) return 1;
    }
  }
  const Tally& tally = request.tally;
  std::printf("ran %d times, of %d plans %d left, %d wrong\n", tally.ran, tally.plans, tally.left, tally.wrong);
  return tally.wrong != 0;
}
