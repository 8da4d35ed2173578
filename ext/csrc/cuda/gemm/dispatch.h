// The portable (sm_80) GEMM behind cuda::gemm, with its choice of kernel open to be overridden for measurements.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "../../kernels.h"

namespace cuda_llm_ops::cuda::portable {

// As cuda::gemm: the cost model chooses among the tile configurations (kernels.cuh) of the kernel family that the types and
// alignments ask for. Lines that begin anywhere have plans of their own, below.
const char* gemm(const GemmArguments& arguments, cudaStream_t stream);

// How the kernels for lines that begin anywhere (mma_shifted.cuh) compute a product.
struct ShiftedPlan {
  int config = 0;             // its number in kernels.cuh
  int split = 1;              // blocks of a cluster that share k
  bool transposed = false;    // the kernel's rows are the product's columns
  double microseconds = 0.0;  // by the cost model
};

// Every plan for the product, the quickest by the model first.
std::vector<ShiftedPlan> shifted_plans(const GemmArguments& arguments);

// The first of them.
ShiftedPlan shifted_plan(const GemmArguments& arguments);

// The product of 16-bit operands by one of them.
const char* shifted_gemm(const GemmArguments& arguments, const ShiftedPlan& plan, cudaStream_t stream);

void gemm_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::portable
