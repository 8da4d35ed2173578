// The FP8 products of ../../fp8.h: the Hopper kernels where the device has them, else the portable one.
#include <atomic>

#include "../device.h"
#include "kernels.h"
#include "sm90/gemm.h"

namespace cuda_llm_ops::cuda {
namespace {

constexpr char kPortablePlan[] = "portable";
std::atomic<bool> portable_forced{false};

bool on_hopper(const Fp8GemmArguments& arguments) {
#ifdef CUDA_LLM_OPS_SM90_FP8
  return arguments.k > 0 && arguments.groups > 0 && current_device_or_none().capability == 90 &&
         !portable_forced.load();
#else
  return false;
#endif
}

}  // namespace

size_t fp8_gemm_workspace_bytes(const Fp8GemmArguments& arguments) {
  return on_hopper(arguments) ? fp8::sm90::realign_bytes(arguments) : 0;
}

const char* fp8_gemm(const Fp8GemmArguments& arguments, void* on) {
  const auto stream = static_cast<cudaStream_t>(on);
  if (on_hopper(arguments)) {
    Fp8GemmArguments aligned = arguments;
    if (aligned.workspace != nullptr) {
      if (const char* refused = fp8::sm90::realign(aligned, stream)) return refused;
    }
    if (fp8::sm90::supported(aligned)) return fp8::sm90::gemm(aligned, stream);
  }
  return fp8::simt_gemm(arguments, stream);
}

std::vector<std::string> fp8_gemm_plans(const Fp8GemmArguments& arguments) {
  return on_hopper(arguments) ? fp8::sm90::plans(arguments) : std::vector<std::string>{};
}

void force_fp8_gemm_plan(const std::string& name) {
  const bool portable = name == kPortablePlan;
  portable_forced.store(portable);
  fp8::sm90::force_plan(portable ? "" : name);
}

void fp8_attributes(std::vector<KernelAttributes>& into) {
  fp8::sm90::attributes(into);
  fp8::simt_attributes(into);
  fp8::quantise_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
