// From an error of the CUDA runtime to the text that the functions of ../kernels.h return.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_llm_ops::cuda {

// nullptr for success. Otherwise the runtime's text, and the runtime forgets the error: the caller reports it here, so
// the next caller that asks for the last error must not find it again.
inline const char* error_text(cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();
  return cudaGetErrorString(error);
}

}  // namespace cuda_llm_ops::cuda
