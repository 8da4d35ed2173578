// CUDA's part of a launch by attention/sm90/launch.cu, for programs that compile it for the host: nothing is launched,
// and what would have been is in `launched` and gridDim, which the program has defined.
#pragma once

namespace cuda_llm_ops::cuda {
const char* encode_tensor_map(CUtensorMap*, const TensorMapArguments&) { return nullptr; }
}  // namespace cuda_llm_ops::cuda

namespace {
cuda_llm_ops::cuda::sm90::flash::Parameters launched;
}  // namespace

extern "C" cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void** arguments) {
  gridDim.x = config->gridDim.x;
  launched = *static_cast<const cuda_llm_ops::cuda::sm90::flash::Parameters*>(arguments[0]);
  return cudaSuccess;
}
extern "C" cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "refused"; }
extern "C" cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
extern "C" cudaError_t cudaOccupancyMaxActiveClusters(int*, const void*, const cudaLaunchConfig_t*) {
  return cudaSuccess;
}
