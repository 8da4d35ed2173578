// Counters in device memory that are 0 whenever no kernel uses them: for kernels whose last thread block finishes what
// the others began, and sets them back.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cuda_llm_ops::cuda {

constexpr int kCounters = 4096;  // of one call

// kCounters of them for a kernel about to be launched on `stream` of the current device. Calls that may run at the same
// time have different ones: there is a set for each stream, and for each capture of a stream into a graph, since the
// graph runs on streams of its own; it is given back when the graph is destroyed. nullptr if no set is left; *error is
// what CUDA refused.
uint32_t* counters_for(cudaStream_t stream, cudaError_t* error);

}  // namespace cuda_llm_ops::cuda
