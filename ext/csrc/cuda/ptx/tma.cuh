// TMA: bulk copies between global and shared memory. PTX ISA, "cp.async.bulk.tensor", "cp.async.bulk",
// "prefetch.tensormap". One thread issues; a load completes on an mbarrier (bytes), a store on a bulk group.
//
// The tensor map comes from tensor_map.h, as a `const __grid_constant__ CUtensorMap` kernel parameter. Coordinates are
// in elements, innermost first; what lies outside the tensor reads as zero (its bytes count for the mbarrier all the
// same) and is not written. With the 128-byte swizzle the shared memory address is a multiple of 1024.
//
// `policy` is an L2 eviction policy as createpolicy makes it; the three below are what it gives for a whole range.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cuda_llm_ops::ptx {

constexpr uint64_t evict_normal = 0x1000000000000000ull;
constexpr uint64_t evict_first = 0x12F0000000000000ull;
constexpr uint64_t evict_last = 0x14F0000000000000ull;

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load_3d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y,
                                            int z, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_load_4d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y,
                                            int z, int w, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_load_5d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y,
                                            int z, int w, int v, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "l"(policy)
      : "memory");
}

// Multicast: the box lands, and its bytes count, at the same shared memory offsets in every block of `mask`.
__device__ __forceinline__ void tma_load_3d_multicast(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x,
                                                      int y, int z, uint16_t mask, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(mask), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_load_4d_multicast(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x,
                                                      int y, int z, int w, uint16_t mask, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(mask), "l"(policy)
      : "memory");
}

// Stores: after fence_proxy_async_shared() of the writers and a barrier; then bulk_commit_group() by the same thread.
__device__ __forceinline__ void tma_store_3d(const CUtensorMap* map, uint32_t shared, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(shared), "r"(x), "r"(y), "r"(z)
               : "memory");
}

__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `Pending` of this thread's groups have not yet *read* their shared memory: it may be overwritten.
template <int Pending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// Waits until at most `Pending` groups are not complete: their writes to global memory included.
template <int Pending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// Without a tensor map: `bytes`, and both addresses, are multiples of 16.
__device__ __forceinline__ void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

// Fetches `bytes` into L2 and nowhere else: a hint, without completion. Since L2 is where all writes meet, it may run
// before griddepcontrol.wait, when the data may still change. Section "cp.async.bulk.prefetch".
__device__ __forceinline__ void bulk_prefetch(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// From this block's shared memory to another's: `remote` and `remote_barrier` are shared::cluster addresses (mapa) of
// one block. The sender may not end before the receiver has seen the bytes arrive.
__device__ __forceinline__ void bulk_copy_to_cluster(uint32_t remote, uint32_t shared, uint32_t bytes,
                                                     uint32_t remote_barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote),
      "r"(shared), "r"(bytes), "r"(remote_barrier)
      : "memory");
}

// The same by the load path, one line of 128 bytes a thread. Section "prefetch".
__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory");
}

__device__ __forceinline__ void bulk_store(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
               : "memory");
}

// Adds float32 numbers of shared memory to global memory, each by itself, in no order against other additions. A store
// in what concerns fences, groups and waits. Section "cp.reduce.async.bulk".
__device__ __forceinline__ void bulk_add(float* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global), "r"(shared),
               "r"(bytes)
               : "memory");
}

}  // namespace cuda_llm_ops::ptx
