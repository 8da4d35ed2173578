// Tensor maps: what TMA needs to know of a tensor in global memory. A map holds the raw pointer, so it is made at each
// call (some 0.1 microseconds); the driver's encoder is looked up once and libcuda is not linked.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cuda_llm_ops::cuda {

enum class TensorMapType : int32_t { float16, bfloat16, float32, bytes };

constexpr int kTensorMapMaxRank = 5;

struct TensorMapArguments {
  const void* pointer = nullptr;  // 16-byte aligned
  TensorMapType type = TensorMapType::float16;
  int rank = 0;                                   // 1 to 5
  uint64_t size[kTensorMapMaxRank] = {};          // elements, innermost first; the innermost stride is 1
  uint64_t stride_bytes[kTensorMapMaxRank] = {};  // stride_bytes[i] belongs to size[i]; [0] is ignored
  uint32_t box[kTensorMapMaxRank] = {};           // elements of one copy, each at most 256
  bool swizzle_128 = true;                        // then box[0] is at most 128 bytes wide
  bool promote = true;                            // L2 fetches 256 bytes at a time: for what other blocks soon ask for
};

// True when TMA can describe it: pointer and strides multiples of 16 bytes, strides below 2^40.
bool tensor_map_possible(const TensorMapArguments& arguments);

// Encodes into `map`. Returns nullptr, or a static string with the reason for the driver's refusal. Thread-safe.
const char* encode_tensor_map(CUtensorMap* map, const TensorMapArguments& arguments);

}  // namespace cuda_llm_ops::cuda
