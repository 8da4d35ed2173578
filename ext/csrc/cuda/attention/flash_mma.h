// The instances of flash_mma.cuh as data: the files flash_mma_*.cu define them, flash_mma.cu chooses among them.
#pragma once

#include "launch.h"

namespace cuda_llm_ops::cuda::flash_mma {

struct Instance {
  attention::Kernel kernel;
  int head_dim;  // columns it computes with; serves any head_dim up to it
  int rows;      // query rows a block
  bool realign;  // takes rows that start anywhere
};

struct Instances {
  const Instance* first;
  int count;
};

// One file each, so that they compile side by side. Sorted by head_dim.
Instances aligned_float16();
Instances aligned_bfloat16();
Instances wide_float16();  // head_dim over 128
Instances wide_bfloat16();
Instances realigning_float16();
Instances realigning_bfloat16();
Instances general_float16();  // with AttentionOptions; those that realign come last
Instances general_bfloat16();

// The instance for the arguments on the current device; nullptr, and why, where there is none.
const Instance* choose(const AttentionArguments& arguments, const char*& refused);
const char* run(const Instance& instance, const AttentionArguments& arguments, cudaStream_t stream);

// The same with options, whose instances are others.
const Instance* choose_general(const AttentionArguments& arguments, const char*& refused);
const char* run_general(const Instance& instance, const AttentionArguments& arguments, const AttentionOptions& options,
                        cudaStream_t stream);

}  // namespace cuda_llm_ops::cuda::flash_mma
