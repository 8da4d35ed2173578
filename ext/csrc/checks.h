// How the *_ops.cpp refuse a bad argument in one sentence: texts for tensors, and the error itself.
//
// The stable ABI knows one exception, std::runtime_error, which Python sees as RuntimeError. The message therefore
// begins with the name of the Python error it stands for ("ValueError: gemm: ..."); the Python face (errors.py)
// raises that one.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

namespace cuda_llm_ops {

using torch::stable::Tensor;
using Dtype = torch::headeronly::ScalarType;

inline constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();

// Texts are put together without iostreams: where a compiler brings a C++ library of its own beside torch's, the two
// disagree on locales, and printing a number crashes.
inline std::string text(const char* part) { return part; }
inline std::string text(const std::string& part) { return part; }
inline std::string text(int64_t part) { return std::to_string(part); }
inline std::string text(double part) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", part);
  return buffer;
}

template <class... Parts>
[[noreturn]] void fail(const char* error, const char* op, const Parts&... parts) {
  std::string message = std::string(error) + ": " + op + ": ";
  ((message += text(parts)), ...);
  throw std::runtime_error(message);
}

inline std::string shape_text(const int64_t* sizes, int64_t rank) {
  std::string shape = "(";
  for (int64_t i = 0; i < rank; ++i) {
    shape += (i == 0 ? "" : ", ") + text(sizes[i]);
  }
  return shape + (rank == 1 ? ",)" : ")");
}

inline std::string shape_text(const Tensor& tensor) { return shape_text(tensor.sizes().data(), tensor.dim()); }

// As torch's Python writes them, without "torch.".
inline std::string dtype_text(Dtype dtype) {
  switch (dtype) {
    case Dtype::Byte: return "uint8";
    case Dtype::Char: return "int8";
    case Dtype::Short: return "int16";
    case Dtype::Int: return "int32";
    case Dtype::Long: return "int64";
    case Dtype::Half: return "float16";
    case Dtype::Float: return "float32";
    case Dtype::Double: return "float64";
    case Dtype::ComplexHalf: return "complex32";
    case Dtype::ComplexFloat: return "complex64";
    case Dtype::ComplexDouble: return "complex128";
    case Dtype::Bool: return "bool";
    case Dtype::BFloat16: return "bfloat16";
    default: break;
  }
  std::string name = torch::headeronly::toString(dtype);
  for (char& letter : name) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return name;
}

inline std::string device_text(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return "cpu";
  }
  if (tensor.is_cuda()) {
    return "cuda:" + std::to_string(tensor.get_device_index());
  }
  return "another kind of device";
}

// One more than the offset of the last element, in elements; saturates instead of overflowing.
inline int64_t extent(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return last == std::numeric_limits<int64_t>::max() ? last : last + 1;
}

// None for a Tensor arrives as an undefined one.
inline void check_defined(const char* op, const char* name, const Tensor& tensor) {
  if (!tensor.defined()) {
    fail("TypeError", op, name, " is None; it must be a tensor");
  }
}

inline void check_rank(const char* op, const char* name, const Tensor& tensor, int64_t rank, const char* layout) {
  if (tensor.dim() != rank) {
    fail("ValueError", op, name, " has ", tensor.dim(), " dimensions ", shape_text(tensor), "; it must have ", rank,
         ": ", layout);
  }
}

// Kernels index in 32 bits: sizes, and the offset of every element, stay below 2**31.
inline void check_extent(const char* op, const char* name, const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (sizes[i] > kMaxElements) {
      fail("ValueError", op, name, " has shape ", shape_text(tensor), "; every size must be below 2**31");
    }
  }
  if (tensor.numel() > 0 && extent(tensor) > kMaxElements) {
    fail("ValueError", op, name, " of shape ", shape_text(tensor), " and strides ",
         shape_text(tensor.strides().data(), tensor.dim()),
         " has elements 2**31 or more from its first; offsets must stay below 2**31");
  }
}

inline void check_same_device(const char* op, const char* name, const Tensor& tensor, const char* first_name,
                              const Tensor& first) {
  if (tensor.is_cpu() != first.is_cpu() || tensor.is_cuda() != first.is_cuda() ||
      tensor.get_device_index() != first.get_device_index()) {
    fail("ValueError", op, name, " is on ", device_text(tensor), " but ", first_name, " is on ", device_text(first),
         "; all tensors must be on one device");
  }
}

inline void check_same_dtype(const char* op, const char* name, const Tensor& tensor, const char* first_name,
                             const Tensor& first) {
  if (tensor.scalar_type() != first.scalar_type()) {
    fail("TypeError", op, name, " is ", dtype_text(tensor.scalar_type()), " but ", first_name, " is ",
         dtype_text(first.scalar_type()), "; they must have one dtype");
  }
}

// alpha, beta, scale arrive as double and are used as float.
inline float to_float(const char* op, const char* name, double value) {
  const float narrowed = static_cast<float>(value);
  if (narrowed - narrowed != 0.0f && value - value == 0.0) {
    fail("ValueError", op, name, " is ", value, ", which float32 cannot hold; its magnitude must be at most ",
         static_cast<double>(std::numeric_limits<float>::max()));
  }
  return narrowed;
}

}  // namespace cuda_llm_ops
