// Shared by the files of operators: torch's allocations, streams and threads through the stable ABI, and how a tensor
// is described to a kernel. The first header such a file includes: it sets the ABI's version.
#pragma once

#define TORCH_TARGET_VERSION 0x020a000000000000ULL  // runs with torch 2.10 and later
#ifdef CUDA_LLM_OPS_WITH_CUDA
#define USE_CUDA  // declares the CUDA part of the shim
#endif

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/shim_utils.h>

#include "checks.h"
#include "kernels.h"

namespace cuda_llm_ops {

inline ScalarType kernel_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::Half: return ScalarType::float16;
    case Dtype::BFloat16: return ScalarType::bfloat16;
    default: return ScalarType::float32;
  }
}

inline void check_dtype(const char* op, const char* name, const Tensor& tensor, bool allow_float32) {
  const Dtype dtype = tensor.scalar_type();
  if (dtype == Dtype::Half || dtype == Dtype::BFloat16 || (allow_float32 && dtype == Dtype::Float)) {
    return;
  }
  fail("TypeError", op, name, " is ", dtype_text(dtype), "; it must be ", allow_float32 ? "float32, " : "",
       "float16 or bfloat16");
}

using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// A dense row-major tensor on the device of `like`. Straight from the C shim, here and below: torch's C++ wrappers
// report an allocation that fails through iostreams, see checks.h.
inline Tensor allocate(const char* op, const char* what, const Tensor& like, Dtype dtype, Sizes sizes) {
  constexpr size_t kMaxRank = 4;
  int64_t strides[kMaxRank] = {};
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  const int32_t code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  AtenTensorHandle handle = nullptr;
  if (aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides, code, device_type,
                               like.get_device_index(), &handle) != TORCH_SUCCESS) {
    fail("OutOfMemoryError", op, "cannot allocate the ", what, " of shape ",
         shape_text(sizes.data(), static_cast<int64_t>(sizes.size())), " and dtype ", dtype_text(dtype), " on ",
         device_text(like));
  }
  return Tensor(handle);
}

inline const Tensor& zero(const char* op, const Tensor& tensor) {
  if (aoti_torch_zero_(tensor.get()) != TORCH_SUCCESS) {
    fail("RuntimeError", op, "torch could not fill a tensor with zeros");
  }
  return tensor;
}

inline Tensor dense_copy(const char* op, const char* name, const Tensor& tensor) {
  if (tensor.numel() > kMaxElements) {
    fail("ValueError", op, name, " of shape ", shape_text(tensor), " and strides ",
         shape_text(tensor.strides().data(), tensor.dim()),
         " must be made contiguous, which needs fewer than 2**31 elements");
  }
  const std::string what = std::string("contiguous copy of ") + name;
  const Tensor copy = allocate(op, what.c_str(), tensor, tensor.scalar_type(), tensor.sizes());
  if (aoti_torch_copy_(copy.get(), tensor.get(), 0) != TORCH_SUCCESS) {
    fail("RuntimeError", op, "torch could not copy ", name, " of shape ", shape_text(tensor));
  }
  return copy;
}

inline void check_output_elements(const char* op, Sizes sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxElements) {
      fail("ValueError", op, "the output would have shape ",
           shape_text(sizes.data(), static_cast<int64_t>(sizes.size())), "; it must have fewer than 2**31 elements");
    }
  }
}

inline void parallel(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  torch::stable::parallel_for(begin, end, grain, body);
}

// Makes the device of a tensor the current one while this object lives; does nothing in an operator's CPU
// implementation.
template <bool cuda>
class OnDeviceOf {
 public:
  explicit OnDeviceOf([[maybe_unused]] const Tensor& tensor) {
#ifdef CUDA_LLM_OPS_WITH_CUDA
    if constexpr (cuda) guard_.emplace(tensor.get_device_index());
#endif
  }

#ifdef CUDA_LLM_OPS_WITH_CUDA
 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
#endif
};

#ifdef CUDA_LLM_OPS_WITH_CUDA
inline void* current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return stream;
}

inline void check_launch(const char* op, const char* refusal) {
  if (refusal == nullptr) {
    return;
  }
  if (std::strstr(refusal, "no kernel image") != nullptr) {
    fail("NotImplementedError", op,
         "the device's compute capability has no code in this build; build_info() names "
         "the architectures it has, and it needs 8.0 or newer");
  }
  fail("RuntimeError", op, "CUDA refused the launch: ", refusal);
}

// Calls `launch(arguments, stream)` with a workspace of `bytes` bytes, if that is not 0. The caching allocator keeps
// the memory for the kernels on the stream, so it may be freed here.
template <typename Arguments, typename Launch>
void launch_with_workspace(const char* op, const char* workspace_name, const Tensor& like, size_t bytes,
                           Arguments& arguments, const Launch& launch) {
  std::optional<Tensor> workspace;
  if (bytes > 0) {
    workspace = allocate(op, workspace_name, like, Dtype::Byte, {static_cast<int64_t>(bytes)});
    arguments.workspace = workspace->mutable_data_ptr();
  }
  check_launch(op, launch(arguments, current_stream(like)));
}
#endif

}  // namespace cuda_llm_ops
