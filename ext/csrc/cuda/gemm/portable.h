// The portable (sm_80) GEMM behind cuda::gemm, with its choice of kernel open to be overridden for measurements.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "../../kernels.h"

namespace cuda_llm_ops::cuda::portable {

// As cuda::gemm. Types and alignments decide which kernel computes the product; the cost model chooses among the
// kernel's tile configurations (portable_instances.cuh). Lines that begin anywhere have plans of their own, below.
const char* gemm(const GemmArguments& arguments, cudaStream_t stream);

// How the kernels for lines that begin anywhere (mma/realigned.cuh) compute a product.
struct RealignedPlan {
  int config = 0;             // its number in portable_instances.cuh
  int split = 1;              // blocks of a cluster that share k
  bool transposed = false;    // the kernel's rows are the product's columns
  double microseconds = 0.0;  // by the cost model
};

// Every plan for the product, the quickest by the model first.
std::vector<RealignedPlan> realigned_plans(const GemmArguments& arguments);

// The first of them.
RealignedPlan realigned_plan(const GemmArguments& arguments);

// The product of 16-bit operands by one of them.
const char* realigned_gemm(const GemmArguments& arguments, const RealignedPlan& plan, cudaStream_t stream);

void gemm_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::portable
