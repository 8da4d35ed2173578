// The counters of a launch that its thread blocks share.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "../../counters.h"
#include "../../error_text.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// Room for counters at the end of a workspace.
constexpr size_t kCounterBytes = kCounters * sizeof(uint32_t);

// Sets `counters` to kCounters zeros. Usually they are one of the sets that the process keeps for its streams and
// graphs. If all of those are in use, they are `spare`, which is set to zero on the stream. Returns what CUDA refused,
// or nullptr.
inline const char* take_counters(uint32_t*& counters, uint32_t* spare, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  counters = counters_for(stream, &error);
  if (error == cudaSuccess && counters == nullptr) {
    counters = spare;
    error = cudaMemsetAsync(counters, 0, kCounterBytes, stream);
  }
  return error_text(error);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
