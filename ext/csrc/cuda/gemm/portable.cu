// From GemmArguments to a launch: layouts and alignments, the kernel, its tile configuration, the parameters.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "../../arithmetic.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "../launch_config.h"
#include "portable.h"
#include "portable_instances.cuh"
#include "tile_cost.h"

namespace cuda_llm_ops::cuda::portable {
namespace {

template <typename Config>
constexpr TileCost cost_of(int blocks_per_sm, double flops_per_clock, int step_latency, int round_latency) {
  return {Config::tile_m, Config::tile_n,  Config::tile_k, Config::shared_bytes,
          blocks_per_sm,  flops_per_clock, step_latency,   round_latency};
}

// Order as in portable_instances.cuh; the figures were fitted to times measured on an H200 (docs/ladder-gemm.md).
constexpr TileCost kAlignedCosts[kAlignedConfigs] = {
    cost_of<MmaLarge>(1, 2150.0, 1900, 5000), cost_of<MmaSquare>(2, 2050.0, 1300, 4000),
    cost_of<MmaWide>(2, 1900.0, 680, 2500),   cost_of<MmaMedium>(3, 1400.0, 480, 2000),
    cost_of<MmaSmall>(2, 1100.0, 700, 1500),  cost_of<MmaSkinny>(2, 400.0, 500, 1200),
};
constexpr TileCost kSimtCosts[kSimtConfigs] = {cost_of<SimtLarge>(2, 196.0, 3000, 3000),
                                               cost_of<SimtSmall>(3, 140.0, 900, 2000)};

bool multiple_of_16(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// How a kernel that copies whole 16-byte chunks along one dimension sees an operand.
struct Lines {
  bool k_major;
  int64_t leading;  // elements from line to line
  bool aligned;     // every line of every batch begins at a multiple of 16 bytes
};

Lines lines_of(const void* pointer, int element_bytes, int64_t batch, int64_t stride_batch, int64_t extent,
               int64_t stride_extent, int64_t k, int64_t stride_k) {
  const int64_t unit = 16 / element_bytes;
  const bool base = multiple_of_16(pointer) && (batch == 1 || stride_batch % unit == 0);
  // The stride of a dimension of size 1 is never taken.
  const int64_t along_extent = extent == 1 ? 0 : stride_extent;
  const int64_t along_k = k == 1 ? 0 : stride_k;
  const Lines k_major{true, along_extent, base && (stride_k == 1 || k == 1) && along_extent % unit == 0};
  const Lines extent_major{false, along_k, base && (stride_extent == 1 || extent == 1) && along_k % unit == 0};
  if (k_major.aligned || extent_major.aligned) return k_major.aligned ? k_major : extent_major;
  return stride_k == 1 || k == 1 ? k_major : extent_major;
}

template <int Count>
int cheapest(const TileCost (&costs)[Count], const DeviceFacts& device, const GemmArguments& arguments) {
  int best = 0;
  double best_clocks = 0.0;
  for (int i = 0; i < Count; ++i) {
    const double clocks = estimated_clocks(costs[i], device, arguments.batch, arguments.m, arguments.n, arguments.k);
    if (i == 0 || clocks < best_clocks) {
      best = i;
      best_clocks = clocks;
    }
  }
  return best;
}

constexpr int kPortableCluster = 8;

// `hopper`: by clusters of problem.split blocks, beginning while the grid before it ends.
cudaError_t launch(const KernelInstance& instance, GemmProblem& problem, int batch, void** parameters,
                   cudaStream_t stream, bool hopper = false) {
  problem.tiles_m = ceil_div(problem.m, instance.tile_m);
  problem.tiles_n = ceil_div(problem.n, instance.tile_n);
  if (const cudaError_t error = allow_dynamic_shared(instance.function, instance.shared_bytes); error != cudaSuccess) {
    return error;
  }
  const dim3 grid(static_cast<unsigned>(batch) * problem.tiles_m * problem.tiles_n);
  if (!hopper) {
    return cudaLaunchKernel(instance.function, grid, dim3(instance.threads), parameters, instance.shared_bytes, stream);
  }
  if (problem.split > kPortableCluster) {
    const cudaError_t error =
        cudaFuncSetAttribute(instance.function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  LaunchConfig config(dim3(grid.x * problem.split), instance.threads, instance.shared_bytes, stream);
  config.early();
  if (problem.split > 1) config.cluster(problem.split);
  return config.launch(instance.function, parameters);
}

template <typename T>
const KernelInstance* aligned_row(bool a_k_major, bool b_k_major) {
  return a_k_major ? aligned_instances<T, true>()[b_k_major] : aligned_instances<T, false>()[b_k_major];
}

// A problem as the kernels are given it, and its operands' lines.
struct Described {
  GemmProblem problem;
  Lines a, b;
};

Described described(const GemmArguments& arguments) {
  GemmProblem problem{};
  problem.a = arguments.a, problem.b = arguments.b, problem.c = arguments.c, problem.out = arguments.out;
  problem.m = arguments.m, problem.n = arguments.n, problem.k = arguments.k;
  problem.a_batch = arguments.a_stride_batch, problem.b_batch = arguments.b_stride_batch;
  problem.c_batch = arguments.c_stride_batch, problem.c_m = arguments.c_stride_m, problem.c_n = arguments.c_stride_n;
  problem.out_m = arguments.n, problem.out_n = 1;
  problem.split = 1;
  problem.alpha = arguments.alpha, problem.beta = arguments.beta;
  problem.out_float = arguments.out_type == ScalarType::float32;

  const int width = 16 / element_bytes(arguments.out_type);
  problem.out_vector = multiple_of_16(arguments.out) && arguments.n % width == 0;
  if (arguments.c != nullptr) {
    const Lines c = lines_of(arguments.c, element_bytes(arguments.out_type), arguments.batch, arguments.c_stride_batch,
                             arguments.m, arguments.c_stride_m, arguments.n, arguments.c_stride_n);
    problem.out_vector = problem.out_vector && c.aligned && c.k_major;
  }

  const int in_bytes = element_bytes(arguments.in_type);
  const auto end = [&](const void* pointer, int64_t stride_batch, int64_t rows, int64_t stride_rows, int64_t columns,
                       int64_t stride_columns) {
    const int64_t last =
        (arguments.batch - 1) * stride_batch + (rows - 1) * stride_rows + (columns - 1) * stride_columns;
    return static_cast<const char*>(pointer) + (last + 1) * in_bytes;
  };
  problem.a_end =
      end(arguments.a, arguments.a_stride_batch, arguments.m, arguments.a_stride_m, arguments.k, arguments.a_stride_k);
  problem.b_end =
      end(arguments.b, arguments.b_stride_batch, arguments.k, arguments.b_stride_k, arguments.n, arguments.b_stride_n);
  const Lines a = lines_of(arguments.a, in_bytes, arguments.batch, arguments.a_stride_batch, arguments.m,
                           arguments.a_stride_m, arguments.k, arguments.a_stride_k);
  const Lines b = lines_of(arguments.b, in_bytes, arguments.batch, arguments.b_stride_batch, arguments.n,
                           arguments.b_stride_n, arguments.k, arguments.b_stride_k);
  problem.a_leading = a.leading;
  problem.b_leading = b.leading;
  return {problem, a, b};
}

// The transposed product: the kernel computes out^T = b^T a^T.
Described transposed(const Described& of) {
  Described other{of.problem, of.b, of.a};
  GemmProblem& problem = other.problem;
  std::swap(problem.a, problem.b);
  std::swap(problem.a_end, problem.b_end);
  std::swap(problem.a_batch, problem.b_batch);
  std::swap(problem.a_leading, problem.b_leading);
  std::swap(problem.m, problem.n);
  std::swap(problem.c_m, problem.c_n);
  std::swap(problem.out_m, problem.out_n);
  return other;
}

// A configuration of mma/realigned.cuh as the cost model sees it, in the order of portable_instances.cuh.
struct RealignedCost {
  int m, n, k, blocks_per_sm;
  double latency, work;  // microseconds of a tile along k: of a block alone, and of a multiprocessor's time
};

template <typename Config>
constexpr RealignedCost realigned_cost(double latency, double work) {
  return {Config::tile_m, Config::tile_n, Config::tile_k, Config::blocks_per_sm, latency, work};
}

// Fitted to 3,461 times on one NVIDIA H200 (docs/ladder-gemm-hopper.md, step 19).
constexpr RealignedCost kRealignedCosts[kRealignedConfigs] = {
    realigned_cost<RealignedLarge>(1.572, 1.682), realigned_cost<RealignedMedium>(1.497, 0.892),
    realigned_cost<RealignedFew>(2.47, 0.181), realigned_cost<RealignedFewest>(1.646, 1.09)};
constexpr int kSplits[] = {1, 2, 4, 8, 16};
static_assert(kSplits[4] == kMostRealignedSplit);

// The other constants of that model, fitted to the same times. Times are microseconds.
struct RealignedCosts {
  double outside = 3.188;   // launch, first loads and drain
  double exchange = 0.038;  // of split-K, for each block of a cluster
  double epilogue_an_element = 1.326 / 4096;
  double memory_bytes_a_microsecond = 3.782e6;  // of the card
  double idle = 0.01;  // share of the multiprocessors that a cluster leaves idle, for each block
};

// A tile along k costs its latency, or the time for which it keeps a multiprocessor busy. The whole is not faster than
// memory. Large clusters leave some multiprocessors idle, because not all of these come in groups of the cluster's
// size.
double realigned_microseconds(const GemmArguments& g, const RealignedCost& cost, int split, bool transposed, int sms) {
  constexpr RealignedCosts kCosts;
  const int64_t m = transposed ? g.n : g.m, n = transposed ? g.m : g.n;
  const int64_t blocks = ceil_div(m, cost.m) * ceil_div(n, cost.n) * g.batch * split;
  const int64_t sharing = std::min<int64_t>(cost.blocks_per_sm, ceil_div(blocks, sms));
  const auto usable = std::max<int64_t>(1, static_cast<int64_t>(sms * (split > 1 ? 1.0 - kCosts.idle * split : 1.0)));
  const double waves = static_cast<double>(ceil_div(blocks, usable * sharing));
  const double tiles = static_cast<double>(ceil_div(ceil_div(g.k, cost.k), split));
  const double loop = waves * (tiles * std::max(cost.latency, static_cast<double>(sharing) * cost.work) +
                               kCosts.epilogue_an_element * cost.m * cost.n);
  const double elements = (static_cast<double>(m) + static_cast<double>(n)) * g.k + static_cast<double>(m) * n;
  const double memory = 2.0 * g.batch * elements / kCosts.memory_bytes_a_microsecond;
  const auto fourth = [](double value) { return value * value * value * value; };
  return kCosts.outside + (split > 1 ? kCosts.exchange * split : 0.0) +
         std::sqrt(std::sqrt(fourth(loop) + fourth(memory)));
}

template <typename Take>
void each_realigned_plan(const GemmArguments& arguments, Take&& take) {
  const DeviceFacts device = current_device_or_none();
  const int sms = std::max(device.multiprocessors, 1);
  for (int config = 0; config < kRealignedConfigs; ++config) {
    for (const int split : kSplits) {
      if (split > 1 && (device.capability != 90 || (split - 1) * kRealignedCosts[config].k >= arguments.k)) break;
      for (const bool transposed : {false, true}) {
        take(RealignedPlan{config, split, transposed,
                           realigned_microseconds(arguments, kRealignedCosts[config], split, transposed, sms)});
      }
    }
  }
}

}  // namespace

std::vector<RealignedPlan> realigned_plans(const GemmArguments& arguments) {
  std::vector<RealignedPlan> plans;
  each_realigned_plan(arguments, [&](const RealignedPlan& plan) { plans.push_back(plan); });
  std::stable_sort(plans.begin(), plans.end(),
                   [](const RealignedPlan& x, const RealignedPlan& y) { return x.microseconds < y.microseconds; });
  return plans;
}

RealignedPlan realigned_plan(const GemmArguments& arguments) {
  RealignedPlan best;
  best.microseconds = std::numeric_limits<double>::infinity();
  each_realigned_plan(arguments, [&](const RealignedPlan& plan) {
    if (plan.microseconds < best.microseconds) best = plan;
  });
  return best;
}

const char* realigned_gemm(const GemmArguments& arguments, const RealignedPlan& plan, cudaStream_t stream) {
  DeviceFacts device;
  if (const cudaError_t error = current_device_facts(&device); error != cudaSuccess) return error_text(error);
  Described of = described(arguments);
  if (plan.transposed) of = transposed(of);
  of.problem.split = plan.split;
  const auto& instances =
      arguments.in_type == ScalarType::float16 ? realigned_instances<__half>() : realigned_instances<__nv_bfloat16>();
  void* parameters[] = {&of.problem};
  return error_text(launch(instances[of.a.k_major][of.b.k_major][plan.config], of.problem, arguments.batch, parameters,
                           stream, device.capability == 90));
}

const char* gemm(const GemmArguments& arguments, cudaStream_t stream) {
  DeviceFacts device;
  if (const cudaError_t error = current_device_facts(&device); error != cudaSuccess) return error_text(error);
  auto [problem, a, b] = described(arguments);
  if (arguments.in_type == ScalarType::float32) {
    SimtStrides strides{};
    strides.a_m = arguments.a_stride_m, strides.a_k = arguments.a_stride_k;
    strides.b_k = arguments.b_stride_k, strides.b_n = arguments.b_stride_n;
    strides.a_vector = a.aligned && !a.k_major;
    strides.b_vector = b.aligned && !b.k_major;
    const int chosen = cheapest(kSimtCosts, device, arguments);
    void* parameters[] = {&problem, &strides};
    return error_text(launch(simt_instances()[chosen], problem, arguments.batch, parameters, stream));
  }
  if (a.aligned && b.aligned) {
    void* parameters[] = {&problem};
    const int chosen = cheapest(kAlignedCosts, device, arguments);
    const KernelInstance* const row = arguments.in_type == ScalarType::float16
                                          ? aligned_row<__half>(a.k_major, b.k_major)
                                          : aligned_row<__nv_bfloat16>(a.k_major, b.k_major);
    return error_text(launch(row[chosen], problem, arguments.batch, parameters, stream));
  }
  return realigned_gemm(arguments, realigned_plan(arguments), stream);
}

void gemm_attributes(std::vector<KernelAttributes>& into) {
  static std::deque<std::string> names;  // KernelAttributes keeps pointers to them
  static const bool named = [] {
    const auto name = [](const std::string& kernel, const KernelInstance& instance, const std::string& rest) {
      names.push_back(kernel + " " + std::to_string(instance.tile_m) + "x" + std::to_string(instance.tile_n) + "x" +
                      std::to_string(instance.tile_k) + " " + rest);
    };
    for (const char* type : {"float16", "bfloat16"}) {
      for (const bool a : {false, true}) {
        for (const bool b : {false, true}) {
          const KernelInstance* const row = aligned_row<__half>(a, b);
          for (int i = 0; i < kAlignedConfigs; ++i) {
            name("mma_aligned", row[i], std::string(type) + (a ? " a:k" : " a:m") + (b ? " b:k" : " b:n"));
          }
        }
      }
      for (const bool a : {false, true}) {
        for (const bool b : {false, true}) {
          for (const KernelInstance& instance : realigned_instances<__half>()[a][b]) {
            name("mma_realigned", instance, std::string(type) + (a ? " a:k" : " a:m") + (b ? " b:k" : " b:n"));
          }
        }
      }
    }
    for (const KernelInstance& instance : simt_instances()) name("simt", instance, "float32");
    return true;
  }();
  static_cast<void>(named);

  size_t next = 0;
  const auto append = [&](const KernelInstance& instance) {
    add_kernel_attributes("gemm", names[next++].c_str(), instance.function, instance.shared_bytes, into);
  };
  const auto append_type = [&](auto zero) {
    using T = decltype(zero);
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        for (int i = 0; i < kAlignedConfigs; ++i) append(aligned_row<T>(a, b)[i]);
      }
    }
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        for (const KernelInstance& instance : realigned_instances<T>()[a][b]) append(instance);
      }
    }
  };
  append_type(__half{});
  append_type(__nv_bfloat16{});
  for (const KernelInstance& instance : simt_instances()) append(instance);
}

}  // namespace cuda_llm_ops::cuda::portable
