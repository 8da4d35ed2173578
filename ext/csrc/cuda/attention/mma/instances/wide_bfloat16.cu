// Explicit instantiation, in a file of its own so that the lists compile in parallel.
#include "../instances.cuh"

namespace cuda_llm_ops::cuda::flash_mma {

template ArrayView<Instance> wide<__nv_bfloat16>();

}  // namespace cuda_llm_ops::cuda::flash_mma
