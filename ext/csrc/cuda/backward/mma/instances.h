// The compiled kernels of mma/, for the host.
#pragma once

#include "../../array_view.h"
#include "../general.h"

namespace cuda_llm_ops::cuda::backward {

struct MmaKernel {
  const char* name;
  const void* address;
  int threads, rows, shared_bytes;  // rows: keys of a thread block, or queries
};

// For head_dims up to these.
struct MmaInstance {
  int head_dim, value_dim;
  MmaKernel keys, queries;
};

template <typename T>
ArrayView<MmaInstance> mma_narrow();  // head_dim up to 128
template <typename T>
ArrayView<MmaInstance> mma_wide();  // up to 256
template <typename T>
ArrayView<MmaInstance> mma_small();  // for devices with little shared memory

}  // namespace cuda_llm_ops::cuda::backward
