// How many clusters of a kernel the current device holds at once.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// A cluster lies within one group of multiprocessors (GPC), and these do not divide evenly: of 132, some are left over.
// Asked of the driver once for each device, size and number of blocks that fit on a multiprocessor, which is all that the
// answer was seen to depend on: a question for every kernel would load every kernel. multiprocessors / size where the
// driver does not tell.
int clusters_at_once(const Kernel& kernel, int blocks_a_cluster, int multiprocessors);

}  // namespace cuda_llm_ops::cuda::sm90
