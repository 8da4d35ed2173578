// The backward's Hopper kernels for head_dim 128 alone, called through ctypes (lab.py).
#include <cuda_runtime.h>

#include "cuda/backward/sm90_backward.h"
#include "cuda/device.h"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda::backward;

namespace cuda_llm_ops::cuda::backward {
Family family_64() { return {nullptr, 0}; }
Family family_192_of_128() { return {nullptr, 0}; }
Family family_192() { return {nullptr, 0}; }
Family family_256() { return {nullptr, 0}; }
}  // namespace cuda_llm_ops::cuda::backward

extern "C" {
int bytes_of_arguments() { return sizeof(BackwardArguments); }
long long workspace_bytes(const BackwardArguments* a) {
  return sm90_takes(*a) ? static_cast<long long>(sm90_workspace_bytes(*a)) : -1;
}
// a->workspace is set.
const char* launch(const BackwardArguments* a, void* stream) {
  return launch_sm90(*a, static_cast<cudaStream_t>(stream));
}
}
