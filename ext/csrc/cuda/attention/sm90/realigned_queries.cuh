// Realignment of queries: the producer's warp loads the raw rows of a tile to where the realigned ones will be, and the
// consumers realign them there before they begin the tile.
//
// Barriers: q_full (arrivals of the producer and of its bulk copies) and q_empty of each slot. Each slot also holds the
// number of its tile.
#pragma once

#include <cstdint>

#include "../../ptx/barrier.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/tma.cuh"
#include "eight_rows.cuh"
#include "schedule.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// A warpgroup's 64 raw queries. One bulk copy brings them if they follow one another and fit; otherwise the consumers
// copy them.
template <typename C>
struct RawQueries {
  Source source;

  __device__ __forceinline__ RawQueries(const Parameters& p, const Tile& tile, int group)
      : source{address_of(p.q_rows, tile.batch, tile.head, tile.m * C::block_m + group * 64), p.q_rows.seq * 2,
               p.q_rows.end, p.seq_q - tile.m * C::block_m - group * 64} {}

  __device__ __forceinline__ bool run(int head_dim) const {
    return is_run(source, head_dim) && (head_dim < C::chunks * 8 || source.from % 16 == 0);
  }
};

// By the producer's warp, for the thread block's tiles after the first.
template <typename C, typename Layout>
struct QueryProducer {
  static_assert(C::q_tiles == 2);
  const Parameters& p;
  const Layout& shared;
  const int lane;
  int place = 0;        // of the tile, among the thread block's tiles; -1: nothing is left to do
  uint32_t number = 1;  // tiles before it
  Tile tile;

  __device__ __forceinline__ bool more() const { return place >= 0; }

  // Loads the queries of the next tile, if there is room for them. Returns whether there was.
  __device__ __forceinline__ bool step() {
    if (place < 0) return false;
    if (place == 0) next_tile();
    const uint32_t slot = number % C::q_slots, full = shared.q_full(slot);
    if (!__all_sync(0xffffffffu, ptx::mbarrier_test_wait(shared.q_empty(slot), number / C::q_slots & 1 ^ 1)))
      return false;
    const RawQueries<C> first(p, tile, 0), second(p, tile, 1);
    const bool runs[2] = {first.run(p.head_dim), second.run(p.head_dim)};
    if (lane == 0) {
      const uint32_t to = shared.next_tile(slot);
      ptx::store_shared(to, tile.valid ? tile.m : -1);
      ptx::store_shared(to + 4, tile.head);
      ptx::store_shared(to + 8, tile.batch);
      if (tile.valid) {
        ptx::store_shared(to + 12, runs[0] + 2 * runs[1]);
        ptx::mbarrier_arrive_expect_tx(
            full, (runs[0] ? bytes_of_run(first.source) : 0) + (runs[1] ? bytes_of_run(second.source) : 0));
        const uint32_t image = shared.q + slot * (2 * C::q_bytes);
        if (runs[0]) load_run(image, first.source, full);
        if (runs[1]) load_run(image + C::q_bytes, second.source, full);
      } else {
        ptx::mbarrier_arrive(full);
      }
    }
    __syncwarp();
    ++number;
    if (tile.valid) {
      if (!runs[0] || !runs[1]) prefetch_rows<C>(first.source, C::block_m, p.head_dim, lane);
      next_tile();
    } else {
      place = -1;
    }
    return true;
  }

 private:
  __device__ __forceinline__ void next_tile() {
    do tile = tile_at<C>(p, ++place);
    while (tile.valid && tile.m < 0);
  }
};

// By a consumer warp: the tile of a slot that is full.
__device__ __forceinline__ Tile tile_of(uint32_t slot_words) {
  const uint64_t place = ptx::load_shared_64(slot_words);
  Tile tile;
  tile.m = static_cast<int>(place);
  tile.head = static_cast<int>(place >> 32);
  tile.batch = ptx::load_shared(slot_words + 8);
  tile.valid = tile.m >= 0;
  return tile;
}

// Realigns this warp's sixteen of a warpgroup's queries. image: of the warpgroup. The product of the scores may begin
// when all warps of the warpgroup are done.
template <typename C>
__device__ __forceinline__ void realign_queries(const Parameters& p, const Tile& tile, int group, bool run,
                                                uint32_t image, uint32_t barrier) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const EightRows<C> rows{lane, p.head_dim};
  const uint32_t mine = image + warp * (2 * rows.group_bytes), pitch = static_cast<uint32_t>(p.q_rows.seq) * 2;
  const RawQueries<C> raw(p, tile, group);
  const uint32_t begin = static_cast<uint32_t>(raw.source.from) & 15;
  typename EightRows<C>::Loaded first, second;
  if (run) {
    rows.load(first, image + rows.run_part(begin, warp * 2));
    rows.load(second, image + rows.run_part(begin, warp * 2 + 1));
  } else {
    // Eight at a time, in the room of sixteen realigned ones.
    static_assert(8 * C::raw_pitch <= 2 * rows.group_bytes);
    const auto fetch = [&](typename EightRows<C>::Loaded& z, int at) {
      const Source part{raw.source.from + static_cast<uint64_t>(at * raw.source.pitch), raw.source.pitch,
                        raw.source.end, raw.source.valid - at};
      rows.fetch_checked(rows.place_in(part), part.end, part.valid, mine + rows.copied_part());
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<0>();
      __syncwarp();
      rows.load(z, mine + rows.raw_part());
      __syncwarp();
    };
    fetch(first, warp * 2);
    fetch(second, warp * 2 + 1);
  }
  // In a run, each warp reads rows from all over the image.
  ptx::bar_sync(barrier, 128);
  const uint32_t offset = begin + warp * 2 * pitch;
  rows.store_queries(first, offset & 15, mine);
  rows.store_queries(second, offset + pitch & 15, mine + rows.group_bytes);
  ptx::fence_proxy_async_shared();
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
