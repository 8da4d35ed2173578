// Split keys: which blocks of keys a thread block works on.
//
// All blocks of all units form one list, sequence after sequence, or head after head (ByHead). The partition gives
// every thread block an equal range of that list, as stream-K does for a matrix product: a range may begin and end
// inside a unit. The cursor walks through a range.
#pragma once

#include "sequences.cuh"

namespace cuda_llm_ops::cuda::decode {

// The partition of all blocks into one range for each thread block: the first `more` ranges have one block more.
struct Partition {
  int each, more;

  Partition() = default;
  __device__ __forceinline__ Partition(int total, int ranges)
      : each(quotient(total, ranges)), more(total - each * ranges) {}
  __device__ __forceinline__ int start(int range) const { return range * each + min(range, more); }
  __device__ __forceinline__ int range_of(int block) const {
    const int large = more * (each + 1);
    return block < large ? quotient(block, each + 1) : more + quotient(block - large, each);
  }

 private:
  static __device__ __forceinline__ int quotient(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
  }
};

template <int BlockKeys, bool ByHead = false>
__device__ __forceinline__ Cursor cursor_at(const MmaParameters& p, const Lists& lists, int position) {
  Cursor at;
  at.head = 0;
  if (ByHead) {
    at.head = static_cast<int>(static_cast<unsigned>(position) / static_cast<unsigned>(lists.total));
    position -= at.head * lists.total;
  }
  const int heads = ByHead ? 1 : p.unit_heads;  // of a sequence, side by side in the order
  int low = 0, high = p.batch;  // the last sequence that starts at or before it; empty ones start where the next does
#pragma unroll 1
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (lists.before(middle) * heads <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  at.sequence = low;
  at.length = lists.length(low);
  at.blocks = max(blocks_of<BlockKeys>(at.length), 1);
  at.block = position - lists.before(low) * heads;
  if (!ByHead) {
    at.head = static_cast<int>(static_cast<unsigned>(at.block) / static_cast<unsigned>(at.blocks));
    at.block -= at.head * at.blocks;
  }
  return at;
}

template <int BlockKeys, bool ByHead = false>
__device__ __forceinline__ void advance(const MmaParameters& p, const Lists& lists, Cursor& at) {
  if (++at.block < at.blocks) return;
  at.block = 0;
  if (!ByHead) {
    if (++at.head < p.unit_heads) return;
    at.head = 0;
  }
#pragma unroll 1
  do {
    if (++at.sequence == p.batch && ByHead && ++at.head < p.unit_heads) at.sequence = 0;
  } while (at.sequence < p.batch && lists.length(at.sequence) == 0);
  if (at.sequence < p.batch) {
    at.length = lists.length(at.sequence);
    at.blocks = blocks_of<BlockKeys>(at.length);
  }
}

}  // namespace cuda_llm_ops::cuda::decode
