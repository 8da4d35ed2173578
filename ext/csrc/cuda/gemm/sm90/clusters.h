// How many clusters of a kernel the current device holds at once.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// A cluster lies within one group of multiprocessors (GPC), and these do not divide evenly: of 132, some are left over.
// The driver is asked once for each device, cluster size and number of blocks that fit on a multiprocessor: the answer
// was seen to depend on nothing else, and a question for every kernel would load every kernel. If the driver does not
// answer, the result is multiprocessors / size.
int clusters_at_once(const Kernel& kernel, int blocks_a_cluster, int multiprocessors);

}  // namespace cuda_llm_ops::cuda::sm90
