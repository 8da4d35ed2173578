// Which Hopper kernel computes a product, and its launch. What is measured per GPU model is in plan_table.h; a shape or
// a card that is not there falls back to the cost model.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

struct Plan {
  const Kernel* kernel = nullptr;
  int split = 1;                     // blocks of a cluster that share k (split and shared kernels)
  int cluster_m = 1, cluster_n = 1;  // tiles of a cluster (persistent and shared kernels)
  int parts = 1;                     // of k, added by a second kernel (split and shared kernels)
};

const std::vector<const Kernel*>& all_kernels();

// The kernel's name, then split and cluster: `persistent 128x256x64/4 kk split 1 cluster 1x1`; and `parts 3`, if any.
std::string plan_name(const Plan& plan);

// Every plan that computes this product. `kernel` is nullptr in none. `parts`: with those that need a workspace.
std::vector<Plan> possible_plans(const GemmArguments& arguments, bool parts);

// Bytes of the workspace that a plan needs.
size_t parts_bytes(const GemmArguments& arguments, const Plan& plan);

// Whether the kernel reads b once and that takes long enough for the next grid to begin with fetching what it reads first
// (split_k.cuh).
bool fetches_ahead(const GemmArguments& arguments, const Plan& plan);

// The cost model: microseconds, for a card of `sms` multiprocessors.
double modelled_microseconds(const GemmArguments& arguments, const Plan& plan, int sms);

Plan choose_plan(const GemmArguments& arguments, int sms, bool parts);

const char* launch_plan(const GemmArguments& arguments, const Plan& plan, int sms, cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90
