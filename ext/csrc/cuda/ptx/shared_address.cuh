// Shared-memory addresses as the 32-bit numbers that PTX instructions take (PTX ISA: State Spaces, .shared).
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace cuda_llm_ops::ptx
