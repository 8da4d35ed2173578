// The rows of a group, read on the device. Sizes out of range are taken as the nearest possible ones.
#pragma once

#include "../../fp8.h"

namespace cuda_llm_ops::cuda::fp8 {

struct GroupRows {
  int first, end;
};

__device__ __forceinline__ GroupRows group_rows(const int32_t* sizes, int group, int capacity, int rows) {
  if (sizes == nullptr) return {0, rows};
  if (capacity > 0) {
    const int first = group * capacity;
    return {first, first + min(max(sizes[group], 0), capacity)};
  }
  const int first = group == 0 ? 0 : min(max(sizes[group - 1], 0), rows);
  return {first, min(max(sizes[group], first), rows)};
}

}  // namespace cuda_llm_ops::cuda::fp8
