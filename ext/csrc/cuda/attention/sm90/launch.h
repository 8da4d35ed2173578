// Launch of a Hopper flash kernel by its plan: tensor maps and parameters.
#pragma once

#include <cuda_runtime.h>

#include "instance.h"
#include "schedule.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// Whether TMA can describe the inputs, and 16-byte stores the output.
bool describable(const AttentionArguments& arguments);

const char* launch(const Instance& instance, const Plan& plan, const AttentionArguments& arguments,
                   cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::sm90::flash
