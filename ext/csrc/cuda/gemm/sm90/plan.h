// The choice of the Hopper kernel for a product. plan_table.h has what was measured on a GPU model; a shape or a card
// that is not there goes by the cost model (cost_model.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

struct Plan {
  const Kernel* kernel = nullptr;
  int split = 1;                     // split-K: blocks of a cluster that share k (split-K and multicast kernels)
  int cluster_m = 1, cluster_n = 1;  // tiles of a cluster (persistent and multicast kernels)
  int parts = 1;                     // split-K through the workspace: parts of k that a second kernel adds
};

// The product as a kernel sees it: D = P Q.
struct Shape {
  int64_t rows, columns, k, batch;
};

inline Shape shape_of(const GemmArguments& arguments, const Kernel& kernel) {
  if (kernel.swap) return {arguments.n, arguments.m, arguments.k, arguments.batch};
  return {arguments.m, arguments.n, arguments.k, arguments.batch};
}

// Bytes of the workspace that a plan needs.
inline size_t parts_bytes(const GemmArguments& arguments, const Plan& plan) {
  return plan.parts > 1 ? sizeof(float) * plan.parts * arguments.m * arguments.n : 0;
}

// True if the kernel reads b once, and takes long enough for the next grid to begin by prefetching what it reads
// first (split_k.cuh).
bool fetches_ahead(const GemmArguments& arguments, const Plan& plan);

const std::vector<const Kernel*>& all_kernels();

// The kernel's name, then split and cluster: `persistent 128x256x64/4 kk split 1 cluster 1x1`; and `parts 3`, if any.
std::string plan_name(const Plan& plan);

// Every plan that computes this product; their `kernel` is never nullptr. `parts`: also those that need a workspace.
std::vector<Plan> possible_plans(const GemmArguments& arguments, bool parts);

// The cost model's microseconds on the current device, a card of `sms` multiprocessors.
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms);

Plan choose_plan(const GemmArguments& arguments, int sms, bool parts);

}  // namespace cuda_llm_ops::cuda::sm90
