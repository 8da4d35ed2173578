// The FP8 products of ../../fp8.h: which kernel computes what.
#include "kernels.h"

namespace cuda_llm_ops::cuda {

size_t fp8_gemm_workspace_bytes(const Fp8GemmArguments&) { return 0; }

const char* fp8_gemm(const Fp8GemmArguments& arguments, void* stream) {
  return fp8::simt_gemm(arguments, static_cast<cudaStream_t>(stream));
}

void fp8_attributes(std::vector<KernelAttributes>& into) {
  fp8::simt_attributes(into);
  fp8::quantise_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
