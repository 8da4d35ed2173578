// How many thread blocks of a decode kernel are on a multiprocessor at once, and how many clusters on the device.
#pragma once

#include "../../device.h"
#include "mma.h"

namespace cuda_llm_ops::cuda::decode {

// Allows this much dynamic shared memory, and asks for the largest carve-out of shared memory, so that thread blocks of
// the next launch fit beside those of this one.
cudaError_t prepare(const MmaInstance& instance, int bytes);

// The size of the largest clusters of which `units` run at once, one thread block on each multiprocessor; 0 if even
// clusters of one do not.
int cluster_size(const MmaInstance& instance, const DeviceFacts& facts, int64_t units);

}  // namespace cuda_llm_ops::cuda::decode
