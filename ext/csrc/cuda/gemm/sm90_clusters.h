// How many clusters of a kernel the current device holds at once.
#pragma once

#include "sm90_kernels.h"

namespace cuda_llm_ops::cuda::sm90 {

// A cluster lies within one group of multiprocessors (GPC), and these do not divide evenly: of 132 multiprocessors, some
// are left over. Asked of the driver once per kernel, size and device; multiprocessors / size where it does not tell.
int clusters_at_once(const Kernel& kernel, int blocks_a_cluster, int multiprocessors);

}  // namespace cuda_llm_ops::cuda::sm90
