// cuda::gemm and cuda::tensor_core_gemm: the Hopper path where the device and the problem allow it, else the portable
// one.
#include "../../kernels.h"
#include "device.h"
#include "dispatch.h"
#include "sm90.h"

namespace cuda_llm_ops::cuda {

const char* gemm(const GemmArguments& arguments, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
#ifdef CUDA_LLM_OPS_SM90_GEMM
  if (arguments.in_type != ScalarType::float32 && sm90::gemm_supported(arguments)) {
    DeviceFacts device;
    if (const cudaError_t error = current_device_facts(&device); error != cudaSuccess) return cudaGetErrorString(error);
    if (device.capability == 90) return sm90::gemm(arguments, cuda_stream);
  }
#endif
  return portable::gemm(arguments, cuda_stream);
}

const char* tensor_core_gemm(const GemmArguments& arguments, void* stream) {
  if (arguments.in_type == ScalarType::float32 || arguments.out_type != ScalarType::float32) {
    return "tensor_core_gemm takes float16 or bfloat16 and gives float32";
  }
  return gemm(arguments, stream);
}

void gemm_attributes(std::vector<KernelAttributes>& into) {
#ifdef CUDA_LLM_OPS_SM90_GEMM
  sm90::gemm_attributes(into);
#endif
  portable::gemm_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
