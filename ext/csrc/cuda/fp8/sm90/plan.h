// A plan of a product: a kernel, and how many blocks its clusters have.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

struct Plan {
  const Kernel* kernel = nullptr;
  int cluster = 1;
  double microseconds = 0.0;  // by the model
};

// Tiles of all clusters; with groups, as many as there may be.
int64_t tiles_of(const Plan& plan, const Fp8GemmArguments& arguments);

}  // namespace cuda_llm_ops::cuda::fp8::sm90
