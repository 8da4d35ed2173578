// The decode operator of ../../decode.h: which kernel computes what.
#include "decode.h"

namespace cuda_llm_ops::cuda {

size_t decode_workspace_bytes(const DecodeArguments&) { return 0; }

const char* flash_decode(const DecodeArguments& arguments, void* stream) {
  return decode::simt(arguments, static_cast<cudaStream_t>(stream));
}

void decode_attributes(std::vector<KernelAttributes>& into) { decode::simt_attributes(into); }

}  // namespace cuda_llm_ops::cuda
