// A view of a constant array with static lifetime: how a translation unit hands its list of kernels to the host code.
#pragma once

#include <cstddef>

namespace cuda_llm_ops::cuda {

template <typename T>
class ArrayView {
 public:
  constexpr ArrayView() = default;
  template <size_t Count>
  constexpr ArrayView(const T (&array)[Count]) : first_(array), count_(static_cast<int>(Count)) {}

  constexpr const T* begin() const { return first_; }
  constexpr const T* end() const { return first_ + count_; }
  constexpr int size() const { return count_; }
  constexpr const T& operator[](int index) const { return first_[index]; }

 private:
  const T* first_ = nullptr;
  int count_ = 0;
};

}  // namespace cuda_llm_ops::cuda
