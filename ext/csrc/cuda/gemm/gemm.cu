// cuda::gemm and cuda::tensor_core_gemm: the Hopper path where the device and the problem allow it, else the portable
// one.
#include "../../kernels.h"
#include "../device.h"
#include "../error_text.h"
#include "portable.h"
#include "sm90/gemm.h"
#include "sm90/realign.h"

namespace cuda_llm_ops::cuda {
#ifdef CUDA_LLM_OPS_SM90_GEMM
namespace {

// Bytes for copies of operands that TMA can describe, or 0 where they do not pay.
size_t copies(const GemmArguments& arguments) {
  const size_t bytes = sm90::realign_bytes(arguments);
  if (bytes == 0) return 0;
  const double copied = sm90::realign_microseconds(bytes) + sm90::modelled_microseconds(arguments);
  return copied < portable::realigned_plan(arguments).microseconds ? bytes : 0;
}

// Bytes for turned rows of `a`, or 0 where they do not pay, or a plan of the product as it is is forced.
size_t turns(const GemmArguments& arguments) {
  const size_t bytes = sm90::turn_bytes(arguments);
  if (bytes == 0 || sm90::plan_is_forced()) return 0;
  const GemmArguments copy = sm90::turned(arguments, arguments.b);  // any aligned place will do for its model
  const double copied = sm90::realign_microseconds(bytes) + sm90::modelled_microseconds(copy);
  return copied < sm90::modelled_microseconds(arguments) ? bytes : 0;
}

}  // namespace
#endif

size_t gemm_workspace_bytes(const GemmArguments& arguments) {
#ifdef CUDA_LLM_OPS_SM90_GEMM
  if (arguments.in_type == ScalarType::float32) return 0;
  DeviceFacts device;
  if (current_device_facts(&device) != cudaSuccess || device.capability != 90) return 0;
  if (!sm90::gemm_supported(arguments)) return copies(arguments);
  const size_t turned = turns(arguments);
  return turned > 0 ? turned : sm90::workspace_bytes(arguments);
#endif
  return 0;
}

const char* gemm(const GemmArguments& arguments, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
#ifdef CUDA_LLM_OPS_SM90_GEMM
  const bool supported = arguments.in_type != ScalarType::float32 && sm90::gemm_supported(arguments);
  if (!supported && arguments.workspace != nullptr) {
    GemmArguments realigned = arguments;
    if (const char* refused = sm90::realign(realigned, cuda_stream)) return refused;
    realigned.workspace = nullptr;  // it is full
    return sm90::gemm(realigned, cuda_stream);
  }
  if (supported) {
    DeviceFacts device;
    if (const cudaError_t error = current_device_facts(&device); error != cudaSuccess) return error_text(error);
    if (device.capability == 90) {
      if (arguments.workspace == nullptr || turns(arguments) == 0) return sm90::gemm(arguments, cuda_stream);
      GemmArguments turned = arguments;
      if (const char* refused = sm90::turn(turned, cuda_stream)) return refused;
      return sm90::gemm(turned, cuda_stream);
    }
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

std::vector<GemmPlanFacts> gemm_plans(const GemmArguments& arguments) {
#ifdef CUDA_LLM_OPS_SM90_GEMM
  DeviceFacts device;
  if (arguments.in_type != ScalarType::float32 && sm90::gemm_supported(arguments) &&
      current_device_facts(&device) == cudaSuccess && device.capability == 90) {
    return sm90::plan_facts(arguments, device.multiprocessors);
  }
#endif
  return {};
}

void force_gemm_plan(const std::string& name) {
#ifdef CUDA_LLM_OPS_SM90_GEMM
  sm90::force_plan(name);
#endif
}

void gemm_attributes(std::vector<KernelAttributes>& into) {
#ifdef CUDA_LLM_OPS_SM90_GEMM
  sm90::gemm_attributes(into);
#endif
  portable::gemm_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
