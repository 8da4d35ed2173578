// cp.async: copies from global to shared memory that do not pass through registers (PTX ISA 9.7.9.25, "Data Movement
// and Conversion Instructions: Asynchronous copy", sm_80 and later).
//
// `shared` (see shared_address.cuh) and `global` are aligned to the size of the copy. Only the first `source_bytes`
// bytes are read, the rest of the destination is filled with zeros; with 0 nothing is read.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::ptx {

// 16 bytes, cached in L2 only; L2 fetches the whole 128-byte line.
__device__ __forceinline__ void cp_async_cg_16(uint32_t shared, const void* global, int source_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(shared), "l"(global), "r"(source_bytes)
               : "memory");
}

__device__ __forceinline__ void cp_async_cg_16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" : : "r"(shared), "l"(global) : "memory");
}

// 4 bytes, cached in L1 and L2.
__device__ __forceinline__ void cp_async_ca_4(uint32_t shared, const void* global, int source_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(shared), "l"(global), "r"(source_bytes)
               : "memory");
}

// Closes the group of copies that this thread has issued since the last commit (an empty group is complete at once).
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }

// Waits until at most `Pending` of this thread's most recent groups are incomplete. Other threads see the data after
// a barrier.
template <int Pending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Pending) : "memory");
}

}  // namespace cuda_llm_ops::ptx
