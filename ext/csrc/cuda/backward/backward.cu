// Attention's backward on CUDA: which kernels compute it.
#include <cuda_runtime.h>

#include "../device.h"
#include "general.h"
#include "sm90_backward.h"

namespace cuda_llm_ops::cuda {

const char* backward_refusal(const BackwardArguments& a) {
  using namespace backward;
  if (a.type == GradientType::float64) return "its dtype must be float32, float16 or bfloat16";
  return a.type == GradientType::float32 || sm90_takes(a) ? nullptr : mma_refusal(a);
}

bool backward_reads(const BackwardArguments& a, bool output, int32_t columns, const void* pointer,
                    const HeadStrides& strides) {
  if (a.type == GradientType::float32 || (output && !backward::sm90_takes(a))) return true;
  if (columns % 8 != 0) return false;
  const auto fits = [](int64_t stride) { return stride >= 0 && stride % 8 == 0 && stride < int64_t{1} << 38; };
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && fits(strides.batch) && fits(strides.head) &&
         fits(strides.seq);
}

size_t backward_workspace_bytes(const BackwardArguments& a) {
  using namespace backward;
  return sm90_takes(a) ? sm90_workspace_bytes(a) : static_cast<size_t>(row_count(a)) * row_floats(a) * sizeof(float);
}

const char* flash_attention_backward(const BackwardArguments& a, void* stream_pointer) {
  using namespace backward;
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  if (sm90_takes(a)) return launch_sm90(a, stream);
  float* const rows = static_cast<float*>(a.workspace);
  const char* const refusal = launch_rows(row_parameters(a, rows), a.type, stream);
  if (refusal != nullptr) return refusal;
  const GeneralParameters p = general_parameters(a, rows);
  return a.type == GradientType::float32 ? launch_simt(a, p, stream) : launch_mma(a, p, stream);
}

void backward_attributes(std::vector<KernelAttributes>& into) {
  backward::sm90_attributes(into);
  backward::mma_attributes(into);
  backward::simt_attributes(into);
}

}  // namespace cuda_llm_ops::cuda
