// The decode operator of ../../../decode_quantised.h: which kernel computes what.
#include "kernels.h"

namespace cuda_llm_ops::cuda {

size_t quantised_decode_workspace_bytes(const QuantisedDecodeArguments& arguments) {
  return decode::quantised_mma_supported(arguments) ? decode::quantised_mma_workspace_bytes(arguments) : 0;
}

const char* quantised_decode(const QuantisedDecodeArguments& arguments, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return decode::quantised_mma_supported(arguments) ? decode::quantised_mma(arguments, on)
                                                    : decode::quantised_simt(arguments, on);
}

void quantised_decode_attributes(std::vector<KernelAttributes>& into) {
  decode::quantised_mma_attributes(into);
  decode::quantised_simt_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
