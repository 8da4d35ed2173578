// The Hopper path of cuda::gemm (wgmma, TMA), for devices of compute capability 9.0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

#include "../../../kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// True if gemm() below can compute this problem: by types, sizes, strides and alignments, not by the device.
bool gemm_supported(const GemmArguments& arguments);

// The cost model's time of gemm() without a workspace, if the operands were in memory as TMA needs them.
double modelled_microseconds(const GemmArguments& arguments);

// As cuda::gemm_workspace_bytes and cuda::gemm, for arguments that gemm_supported() accepts.
size_t workspace_bytes(const GemmArguments& arguments);
const char* gemm(const GemmArguments& arguments, cudaStream_t stream);

// As cuda::gemm_plans and cuda::force_gemm_plan, for arguments that gemm_supported() accepts. Not thread-safe.
std::vector<GemmPlanFacts> plan_facts(const GemmArguments& arguments, int sms);
void force_plan(const std::string& name);
bool plan_is_forced();

// Appends one entry for every kernel instance of this path.
void gemm_attributes(std::vector<KernelAttributes>& into);

}  // namespace cuda_llm_ops::cuda::sm90
