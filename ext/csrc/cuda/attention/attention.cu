// The attention operators of kernels.h: which kernel computes what.
#include <cuda_runtime.h>

#include <cfloat>

#include "../../arithmetic.h"
#include "mma/flash.h"
#include "simt/simt.h"
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
#include "sm90/flash.h"
#include "sm90/varlen.h"
#endif

namespace cuda_llm_ops::cuda {
namespace {

// The flash kernels mask with -inf and multiply by scale * log2(e) afterwards. That must not be 0 (0 * -inf is NaN; a
// masked score must not be, an infinite one must) nor infinite.
bool scale_folds(float scale) {
  const float folded = scale * kLog2E;
  return folded > 0.0f && folded <= FLT_MAX;
}

}  // namespace

size_t naive_attention_workspace_bytes(const AttentionArguments& a) {
  return static_cast<size_t>(a.batch) * a.heads * a.seq_q * a.seq_kv * sizeof(float);
}

bool takes_narrow_values([[maybe_unused]] const AttentionArguments& arguments,
                         [[maybe_unused]] const AttentionOptions* options) {
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  if (options != nullptr) return sm90::varlen_supported(arguments, *options);
  return scale_folds(arguments.scale) && sm90::takes_narrow_values(arguments);
#else
  return false;
#endif
}

size_t flash_attention_workspace_bytes(const AttentionArguments& arguments) {
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  if (scale_folds(arguments.scale)) return sm90::flash_attention_workspace_bytes(arguments);
#endif
  return 0;
}

const char* naive_attention(const AttentionArguments& arguments, void* stream) {
  return attention::naive(arguments, static_cast<cudaStream_t>(stream));
}

const char* tiled_attention(const AttentionArguments& arguments, void* stream) {
  return attention::tiled(arguments, static_cast<cudaStream_t>(stream));
}

const char* flash_attention(const AttentionArguments& arguments, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (!scale_folds(arguments.scale)) return attention::tiled(arguments, on);
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  if (sm90::flash_attention_supported(arguments)) return sm90::flash_attention(arguments, on);
#endif
  return arguments.type == ScalarType::float32 ? attention::flash_simt(arguments, on)
                                               : attention::flash_mma(arguments, on);
}

const char* flash_attention_varlen(const AttentionArguments& arguments, const AttentionOptions& options, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  if (sm90::varlen_supported(arguments, options)) return sm90::flash_attention_varlen(arguments, options, on);
#endif
  return arguments.type == ScalarType::float32 ? attention::flash_simt_varlen(arguments, options, on)
                                               : attention::flash_mma_varlen(arguments, options, on);
}

void attention_attributes(std::vector<KernelAttributes>& into) {
  attention::naive_attributes(into);
  attention::tiled_attributes(into);
  attention::flash_simt_attributes(into);
  attention::flash_mma_attributes(into);
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  sm90::attention_attributes(into);
  sm90::varlen_attributes(into);
#endif
}

}  // namespace cuda_llm_ops::cuda
