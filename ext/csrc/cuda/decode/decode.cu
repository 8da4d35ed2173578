// The decode operator of ../../decode.h: which kernel computes what.
#include "decode.h"

namespace cuda_llm_ops::cuda {

size_t decode_workspace_bytes(const DecodeArguments& arguments) {
  return decode::mma_supported(arguments) ? decode::mma_workspace_bytes(arguments) : 0;
}

const char* flash_decode(const DecodeArguments& arguments, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return decode::mma_supported(arguments) ? decode::mma(arguments, on) : decode::simt(arguments, on);
}

void decode_attributes(std::vector<KernelAttributes>& into) {
  decode::mma_attributes(into);
  decode::simt_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
