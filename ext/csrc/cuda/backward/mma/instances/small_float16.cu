// Explicit instantiation, in a file of its own so that the lists compile in parallel.
#include "../instances.cuh"

namespace cuda_llm_ops::cuda::backward {

template ArrayView<MmaInstance> mma_small<__half>();

}  // namespace cuda_llm_ops::cuda::backward
