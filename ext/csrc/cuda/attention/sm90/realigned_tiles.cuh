// Realignment of K and V: rows that TMA cannot read (it needs multiples of 16 bytes, also within a row) are brought to
// where one bulk copy can read them, by the kernel that uses them.
//
//   realigners  three warps beside the producer's. Each takes 64 rows of K or V at a time by a ticket. Tickets are
//               numbered in the order in which tiles are needed. The raw 16-byte chunks of eight rows arrive by
//               cp.async, are transposed (eight_rows.cuh) and go to a workspace in global memory, which holds tiles as
//               shared memory will. A counter for each tile (or a few tiles) counts the rows that are there.
//   producer    first loads raw rows into the rings, which are still empty, for the consumers. Then it waits for a
//               tile's counter, and loads the tile by one bulk copy. Meanwhile it loads the raw queries of the next
//               tile (realigned_queries.cuh).
//   consumers   begin with the queries of their block's first tile and with some tickets, because at the start they
//               have nothing else to do. One addition takes these tickets for the whole thread block. The queries of
//               later tiles are the consumers' work, too.
//
// Barriers: prologue_full and prologue_empty for raw rows at the start; kPrologueBarrier when the rings are free; then
// the rings' own.
//
// No deadlock: a warp that holds a ticket waits for nothing but its own copies. The realigners of a thread block take
// every ticket up to what the block's own tile needs without waiting for any other block. So the grid advances,
// whichever blocks are resident. Beyond that, realigners stay within what the block's next tiles need, so that the
// workspace is still in the L2 cache when it is read.
//
// The last of all realigner and producer warps sets the counters back. A block's producer loads no tile before its
// consumers have realigned what they began with.
#pragma once

#include <cstdint>

#include "../../ptx/atomic.cuh"
#include "../../ptx/cp_async.cuh"
#include "../../ptx/fence.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/shared_words.cuh"
#include "../../ptx/special_registers.cuh"
#include "../../ptx/tma.cuh"
#include "eight_rows.cuh"
#include "realigned_queries.cuh"
#include "ring.cuh"
#include "schedule.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

constexpr int kRealigners = 3;  // warps

constexpr int kTicketCounter = 0, kDoneCounter = 1, kFirstTileCounter = kRealignmentCounters;

// The counter of a tile's rows, and the number of groups of eight rows at which the tile is complete.
template <typename C>
__device__ __forceinline__ uint32_t tile_counter(const Realignment& w, int kv_head, int block, bool values) {
  if (w.counter_heads > 1) return kFirstTileCounter + kv_head / w.counter_heads;
  return kFirstTileCounter + kv_head * w.head_counters + ((2 * block + values) >> w.counter_shift);
}
template <typename C>
__device__ __forceinline__ uint32_t complete_count(const Realignment& w, int kv_head, int block, bool values) {
  if (w.counter_heads > 1) {
    const int first = kv_head / w.counter_heads * w.counter_heads;
    return min(w.counter_heads, w.kv_heads - first) * 2 * w.blocks * (C::block_n / 8);
  }
  const int first = (2 * block + values) >> w.counter_shift << w.counter_shift;
  return min(1 << w.counter_shift, 2 * w.blocks - first) * (C::block_n / 8);
}

// A tile's place in the workspace, in chunks of 16 bytes.
template <typename C>
__device__ __forceinline__ uint32_t realigned_tile(const Realignment& w, int kv_head, int block, bool values) {
  return (kv_head * w.blocks + block) * (2 * C::kv_bytes / 16) + (values ? C::kv_bytes / 16 : 0);
}

// The completeness of sixteen key blocks of a head, as the lanes of a warp last read their counters.
struct Window {
  int head = -1, base = 0;
  uint32_t complete = 0;  // bit l: K of block base + l, bit 16 + l: V of it

  // The bit of a tile; the window moves to where it has one.
  __device__ __forceinline__ uint32_t bit_of(int kv_head, int block, bool values) {
    if (kv_head != head || block < base || block - base > 15) {
      head = kv_head;
      base = max(block - 1, 0);  // the V of that block is asked for after this K
      complete = 0;
    }
    return 1u << (block - base + values * 16);
  }
  __device__ __forceinline__ int block_of(int lane) const { return base + lane % 16; }
};

// A ticket: 64 rows of K or V, eight groups of rows that are eight apart.
struct Ticket {
  Source source;     // the first group's; the next group's rows are one further
  uint32_t to;       // its place, in chunks of the workspace
  uint32_t counter;  // the tile's
  bool values;
};

template <typename C>
__device__ __forceinline__ Ticket read_ticket(const Parameters& p, uint32_t ticket) {
  const Realignment& w = p.realignment;
  const uint32_t section = w.by_section.divide(ticket);
  uint32_t rest = ticket - section * w.section_tickets;
  const bool last = section == w.last_section;
  const uint32_t half = (last ? w.by_last_half : w.by_half).divide(rest);  // half a block of all heads: K or V
  rest -= half * (last ? w.last_half : w.half);
  const uint32_t head = rest >> w.tile_shift, rows_before = (rest - (head << w.tile_shift)) * 64;
  const bool values = half % 2;
  const int kv_head = section * w.section + head, block = half / 2;
  const int batch = w.by_batch.divide(kv_head), in_batch = kv_head - batch * w.batch_heads;
  const int row = block * C::block_n + rows_before;
  const Rows& rows = values ? p.v_rows : p.k_rows;
  Ticket t;
  t.values = values;
  t.source.from = address_of(rows, batch, in_batch, row);
  t.source.pitch = rows.seq * 2;
  t.source.end = rows.end;
  t.source.valid = p.seq_kv - row;
  t.to = realigned_tile<C>(w, kv_head, block, values) + rows_before * C::chunks;
  t.counter = tile_counter<C>(w, kv_head, block, values);
  return t;
}

// Adds to a tile's counter after `groups` groups of it are written.
__device__ __forceinline__ void announce(const Realignment& w, uint32_t counter, uint32_t groups, int lane) {
  ptx::fence_proxy_async_global();
  __syncwarp();
  if (lane == 0) ptx::red_release_add(w.counters + counter, groups);
}

// The number of tickets, from the first one, that a tile needs.
template <typename C>
__device__ __forceinline__ uint32_t tickets_of(const Parameters& p, const Tile& tile) {
  const Realignment& w = p.realignment;
  const uint32_t section = (tile.batch * w.batch_heads + tile.head / p.group) / w.section;
  return min(w.tickets, (section + 1) * w.section_tickets);
}

// Takes the tickets with which a thread block's consumers begin: one addition for all of them.
__device__ __forceinline__ uint32_t claim_first_tickets(const Realignment& w) {
  return w.tickets > 0 ? atomicAdd(w.counters + kTicketCounter, static_cast<uint32_t>(w.first_tickets)) : 0;
}

// Realignment before a thread block's first tile: of some tickets, and of that tile's queries, 64 rows each. The rings
// are still empty, so raw rows go there, by one bulk copy if they follow one another and all exist. Each consumer warp
// realigns one of their eight groups.
template <typename C, typename Layout>
struct Prologue {
  const Parameters& p;
  const Layout& shared;
  const int lane;
  const Tile tile;

  static constexpr int slot_bytes = 8 * C::raw_bytes;

  // 64 rows; each lane keeps the item of its number.
  struct Item {
    Source source;     // of the first group
    uint64_t to;       // its core matrices: generic address, of queries the shared one
    uint32_t counter;  // of K's or V's tile
    bool ticket, run;  // run: by a bulk copy
  };
  int tickets, count;

  __device__ __forceinline__ Prologue(const Parameters& parameters, const Layout& layout)
      : p(parameters), shared(layout), lane(threadIdx.x % 32), tile(tile_at<C>(parameters, 0)) {}

  __device__ __forceinline__ Item item() {
    const Realignment& w = p.realignment;
    const uint32_t ticket = static_cast<uint32_t>(ptx::load_shared(shared.first_ticket())) + lane;
    Item mine{};
    mine.ticket = lane < w.first_tickets && ticket < w.tickets;
    tickets = __popc(__ballot_sync(0xffffffffu, mine.ticket));
    count = tickets + (tile.valid ? C::q_tiles : 0);
    if (mine.ticket) {
      const Ticket t = read_ticket<C>(p, ticket);
      mine.source = t.source;
      mine.to = reinterpret_cast<uint64_t>(w.workspace) + t.to * uint64_t{16};
      mine.counter = t.counter;
    } else if (lane < count) {
      const int group = lane - tickets, row = tile.m * C::block_m + group * 64;
      mine.source = {address_of(p.q_rows, tile.batch, tile.head, row), p.q_rows.seq * 2, p.q_rows.end, p.seq_q - row};
      mine.to = shared.q + group * C::q_bytes;
    }
    mine.run = is_run(mine.source, p.head_dim);
    return mine;
  }
  __device__ __forceinline__ uint32_t slot(int i) const { return shared.k + i % C::prologue_slots * slot_bytes; }

  // By the producer's warp.
  __device__ __forceinline__ void produce() {
    const Item mine = item();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (lane == i) {
        const uint32_t full = shared.prologue_full(i % C::prologue_slots);
        if (i >= C::prologue_slots)
          ptx::mbarrier_wait(shared.prologue_empty(i % C::prologue_slots), i / C::prologue_slots - 1 & 1);
        if (mine.run) {
          const uint64_t from = begin_of_run(mine.source);
          const uint32_t bytes = static_cast<uint32_t>(end_of_run(mine.source) - from);
          ptx::mbarrier_arrive_expect_tx(full, bytes);
          ptx::bulk_load(slot(i), reinterpret_cast<const void*>(from), bytes, full);
        } else {
          ptx::mbarrier_arrive(full);
        }
      }
      __syncwarp();
    }
  }

  // By a consumer warp. It copies rows itself if no bulk copy brings them.
  __device__ __forceinline__ void realign(int warp) {
    const EightRows<C> rows{lane, p.head_dim};
    Item mine = item();
    mine.source.from += static_cast<uint64_t>(warp * mine.source.pitch);
    mine.source.valid -= warp;
    mine.to += warp * rows.group_bytes;
    const auto fetch = [&](int i) {
      const Source s{__shfl_sync(0xffffffffu, mine.source.from, i), __shfl_sync(0xffffffffu, mine.source.pitch, i),
                     __shfl_sync(0xffffffffu, mine.source.end, i), __shfl_sync(0xffffffffu, mine.source.valid, i)};
      rows.fetch_checked(rows.place_in(s), s.end, min(s.valid, 64), slot(i) + warp * C::raw_bytes + rows.copied_part());
      ptx::cp_async_commit_group();
    };
    const uint32_t runs = __ballot_sync(0xffffffffu, mine.run);
#pragma unroll 1
    for (int i = 0; i < min(count, C::prologue_slots); ++i) {
      if (!(runs >> i & 1)) fetch(i);
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const uint64_t from = __shfl_sync(0xffffffffu, mine.source.from, i);
      const int64_t pitch = __shfl_sync(0xffffffffu, mine.source.pitch, i);
      const uint64_t to = __shfl_sync(0xffffffffu, mine.to, i);
      ptx::mbarrier_wait(shared.prologue_full(i % C::prologue_slots), i / C::prologue_slots & 1);
      uint32_t raw;
      if (runs >> i & 1) {
        raw = slot(i) + rows.run_part(static_cast<uint32_t>(from) - warp * static_cast<uint32_t>(pitch), warp);
      } else {
        if (i >= C::prologue_slots) fetch(i);
        ptx::cp_async_wait_group<0>();
        __syncwarp();
        raw = slot(i) + warp * C::raw_bytes + rows.raw_part();
      }
      typename EightRows<C>::Loaded z;
      rows.load(z, raw);
      if (i + C::prologue_slots < count) {
        ptx::fence_proxy_async_shared();
        ptx::mbarrier_arrive(shared.prologue_empty(i % C::prologue_slots));
      }
      if (i < tickets) {
        rows.store(z, static_cast<uint32_t>(from) & 15, reinterpret_cast<unsigned char*>(to) + rows.part());
      } else {
        rows.store_queries(z, static_cast<uint32_t>(from) & 15, static_cast<uint32_t>(to));
      }
    }
    ptx::fence_proxy_async_global();
    __syncwarp();
    if (mine.ticket) ptx::red_release_add(p.realignment.counters + mine.counter, 1);  // one of its eight groups
  }
};

// One warp's work: loads whole tiles of K and V from the workspace, in the order in which the consumers need them, and
// queries.
template <typename C, typename Layout>
__device__ __forceinline__ void produce_realigned(const Parameters& p, const Layout& shared) {
  const Realignment& w = p.realignment;
  const int lane = threadIdx.x % 32;
  QueryProducer<C, Layout> queries{p, shared, lane};
  uint32_t k_count = 0, v_count = 0;
  Window window;
  int i = -1, kv_head = 0, blocks = 0, done = 0;  // the tile at hand; of its K and V tiles so many are asked for
#ifdef CUDA_LLM_OPS_BOUNDED_WAITS
  uint32_t tries = 0;
#endif
  for (;;) {
    if (done == 2 * blocks && blocks >= 0) {
      Tile tile;
      do tile = tile_at<C>(p, ++i);
      while (tile.valid && tile.m < 0);
      kv_head = tile.batch * w.batch_heads + tile.head / p.group;
      blocks = tile.valid ? key_blocks<C::block_n>(p, min((tile.m + 1) * C::block_m, p.seq_q)) : -1;
      done = 0;
    }
    if (blocks >= 0) {
      // Scores run one block ahead of the product with V, so K leads by one.
      const bool values = done > 0 && (done % 2 == 0 || done == 2 * blocks - 1);
      const int block = values ? (done - 1) / 2 : (done + 1) / 2;
      const uint32_t bit = window.bit_of(kv_head, block, values);
      if (!(window.complete & bit)) {
        const int mine = window.block_of(lane);
        const bool there =
            mine < w.blocks &&
            (w.tickets == 0 || ptx::load_acquire(w.counters + tile_counter<C>(w, kv_head, mine, lane >= 16)) >=
                                   complete_count<C>(w, kv_head, mine, lane >= 16));
        window.complete = __ballot_sync(0xffffffffu, there);
        ptx::fence_proxy_async_global();
        __syncwarp();
      }
      const uint32_t count = values ? v_count : k_count, stage = ring_stage<C::stages>(count);
      const uint32_t empty = values ? shared.v_empty(stage) : shared.k_empty(stage),
                     parity = ring_parity<C::stages>(count) ^ 1;
      // The warp polls: asleep in a wait, it was late.
      if ((window.complete & bit) && __all_sync(0xffffffffu, ptx::mbarrier_test_wait(empty, parity))) {
        if (lane == 0) {
          const uint32_t full = values ? shared.v_full(stage) : shared.k_full(stage);
          ptx::mbarrier_arrive_expect_tx(full, C::kv_bytes);
          const uint64_t from = uint64_t{16} * realigned_tile<C>(w, kv_head, block, values);
          ptx::bulk_load((values ? shared.v : shared.k) + stage * C::kv_bytes,
                         static_cast<const unsigned char*>(w.workspace) + from, C::kv_bytes, full);
        }
        __syncwarp();
        (values ? v_count : k_count) += 1;
        ++done;
#ifdef CUDA_LLM_OPS_BOUNDED_WAITS
        tries = 0;
#endif
        continue;
      }
    } else if (!queries.more()) {
      return;
    }
    if (!queries.step()) __nanosleep(20);
#ifdef CUDA_LLM_OPS_BOUNDED_WAITS
    if (++tries > CUDA_LLM_OPS_BOUNDED_WAITS) CUDA_LLM_OPS_GIVE_UP(static_cast<uint32_t>(kv_head), done);
#endif
  }
}

template <typename C, typename Layout>
struct Realigner {
  static constexpr uint32_t none = ~0u;
  static constexpr int ahead = C::raw_buffers / kRealigners;  // groups of eight rows on their way

  // A job is 64 rows, eight groups of rows that are eight apart. A word describes it: 0 if there is nothing to do, else
  // its kind, + 16 * the tile's counter, + 2^20 * the number of existing rows, and these:
  enum : uint32_t {
    k_rows = 1,
    v_rows = 2,
    kinds = 3,
    whole = 4,              // all rows and all of their chunks exist, so no copy needs a check
    first_half = 1 << 18,   // of a tile of 128 rows, announced with ..
    second_half = 1 << 19,  // .. this
  };

  // State in shared memory, because registers are short: offsets from `state`, in bytes.
  static constexpr uint32_t position = 12;               // all tickets before are taken
  static constexpr uint32_t job_from = 16, job_to = 24;  // of the next job
  static constexpr uint32_t half_about = 32, half_from = 40,
                            half_to = 48;  // of the tile whose second half is left, if any

  const Parameters& p;
  const Layout& shared;
  const uint32_t raw;
  const uint32_t state;
  uint32_t taken = none;  // in lane 0 the next tickets, if there are any

  __device__ __forceinline__ Realigner(const Parameters& parameters, const Layout& layout, int number)
      : p(parameters),
        shared(layout),
        raw(layout.raw_rows() + number * ahead * C::raw_bytes),
        state(layout.realigner_state(number)) {
    Walk walk;
    keep(walk);
    if (lane() == 0) {
      ptx::store_shared(state + position, 0);
      ptx::store_shared(state + half_about, 0);
    }
    __syncwarp();
  }

  // Read anew each time, because registers are short.
  static __device__ __forceinline__ int lane() { return ptx::fresh_tid_x() % 32; }

  __device__ __forceinline__ uint32_t taken_before() const {
    return static_cast<uint32_t>(ptx::load_shared(state + position));
  }

  // How far this warp may go: up to what tile `count` of this thread block needs.
  struct Walk {
    int i = 0;           // of the tile after it, among the block's tiles; -1 past the last
    int count = -1;      // tiles before it
    uint32_t limit = 0;  // the tickets that it needs; all, where there is none
  };
  __device__ __forceinline__ Walk kept() const {
    return {ptx::load_shared(state), ptx::load_shared(state + 4), static_cast<uint32_t>(ptx::load_shared(state + 8))};
  }
  __device__ __forceinline__ void keep(const Walk& walk) const {
    __syncwarp();
    if (lane() == 0) {
      ptx::store_shared(state, walk.i);
      ptx::store_shared(state + 4, walk.count);
      ptx::store_shared(state + 8, static_cast<int>(walk.limit));
    }
    __syncwarp();
  }

  __device__ __forceinline__ void next_tile() const {
    Walk walk = kept();
    Tile tile;
    do {
      tile = tile_at<C>(p, walk.i++);
    } while (tile.valid && tile.m < 0);
    ++walk.count;
    walk.limit = tile.valid ? tickets_of<C>(p, tile) : p.realignment.tickets;
    if (!tile.valid) walk.i = -1;
    keep(walk);
  }

  // The number of this thread block's tiles whose outputs have left.
  __device__ __forceinline__ uint32_t tiles_left() const {
    return __shfl_sync(0xffffffffu, lane() == 0 ? ptx::atomic_load_shared(shared.tiles_left()) : 0, 0);
  }
  // While a tile is computed, rows for the next tile but one of this thread block may be realigned.
  __device__ __forceinline__ uint32_t limit_now(uint32_t before) const {
    Walk walk = kept();
    while (before >= walk.limit && walk.i >= 0 && static_cast<int>(tiles_left()) + 1 >= walk.count) {
      next_tile();
      walk = kept();
    }
    return walk.limit;
  }

  // The job of the rest of a tile that was begun, or of a ticket, if this thread block may take one.
  __device__ __forceinline__ uint32_t next_job() {
    Source source;
    uint64_t to;
    uint32_t about;
    if (const uint32_t rest = ptx::load_shared(state + half_about)) {
      // The second half of the tile at hand.
      about = rest;
      source.pitch = pitch_of(about);
      source.from = ptx::load_shared_64(state + half_from) + static_cast<uint64_t>(64 * source.pitch);
      source.end = end_of(about);
      source.valid = static_cast<int>(about >> 20) - 64;
      to = ptx::load_shared_64(state + half_to) + 64 * 16 * C::chunks;
      about = (about & 0xfffff) | second_half;
      __syncwarp();
      if (lane() == 0) ptx::store_shared(state + half_about, 0);
    } else {
      uint32_t ticket = __shfl_sync(0xffffffffu, taken, 0);
      const uint32_t before = taken_before();
      const uint32_t limit = ticket == none ? limit_now(before) : kept().limit;
      if (ticket == none && before < limit) ticket = __shfl_sync(0xffffffffu, claim_tile(), 0);
      taken = none;
      if (ticket == none) return 0;
      const uint32_t behind = ticket + (1u << p.realignment.tile_shift);
      __syncwarp();
      if (lane() == 0) ptx::store_shared(state + position, static_cast<int>(behind));
      __syncwarp();
      if (ticket >= p.realignment.tickets) return 0;
      if (behind < limit) taken = claim_tile();
      const Ticket t = read_ticket<C>(p, ticket);
      source = t.source;
      to = reinterpret_cast<uint64_t>(p.realignment.workspace) + t.to * uint64_t{16};
      about = (t.values ? v_rows : k_rows) + t.counter * 16;
      // The first rows of all realigners together would delay the rows with which the consumers begin.
      if (before > 0) prefetch_rows<C>(source, 64 << p.realignment.tile_shift, p.head_dim, lane());
      if (p.realignment.tile_shift > 0 && lane() == 0) {
        ptx::store_shared(state + half_about, static_cast<int>(about | max(min(source.valid, 128), 0) << 20));
        ptx::store_shared(state + half_from, source.from);
        ptx::store_shared(state + half_to, to);
      }
      if (p.realignment.tile_shift > 0) about |= first_half;
    }
    __syncwarp();
    if (lane() == 0) {
      ptx::store_shared(state + job_from, source.from);
      ptx::store_shared(state + job_to, to);
    }
    __syncwarp();
    return about | max(min(source.valid, 64), 0) << 20 | (inside<C>(source, 8) ? whole : 0);
  }
  __device__ __forceinline__ uint32_t claim_tile() const {
    return lane() == 0 ? atomicAdd(p.realignment.counters + kTicketCounter, 1u << p.realignment.tile_shift) : 0;
  }
  // Of the next job: where this lane's copies begin, and its chunks go to.
  __device__ __forceinline__ uint64_t next_place(int64_t pitch) const {
    return ptx::load_shared_64(state + job_from) + static_cast<uint64_t>(lane() / 4 * 8 * pitch) + lane() % 4 * 16;
  }

  __device__ __forceinline__ int64_t pitch_of(uint32_t about) const {
    const uint32_t kind = about & kinds;
    return (kind == k_rows ? p.k_rows.seq : p.v_rows.seq) * 2;
  }

  // One loop over groups, also across jobs: some groups are on their way while one is realigned. The code is short
  // because consumers and realigners share the instruction cache.
  __device__ __forceinline__ void run() {
    const EightRows<C> rows{lane(), p.head_dim};
    if (p.realignment.tickets > 0) taken = claim_tile();
    const uint32_t loaded_from = ptx::opaque(raw + rows.raw_part()), copied_to = ptx::opaque(raw + rows.copied_part());
    uint32_t now_about = 0, offset = 0;  // of the job at hand
    unsigned char* to = nullptr;         // of its next group to be realigned
    uint64_t place = 0;                  // of the next group to be copied
    uint32_t buffer = 0;
    for (bool begun = false;;) {
      const uint32_t next = next_job();
      if (now_about == 0 && next == 0 && begun) {
        // Nothing is left to take, now at least.
        if (kept().i < 0 || taken_before() >= p.realignment.tickets) return;
        __nanosleep(100);
        __syncwarp();
        continue;
      }
      uint32_t copied = now_about;
      int64_t pitch = pitch_of(now_about);
      const uint32_t step = static_cast<uint32_t>(pitch);
#pragma unroll 1
      for (int group = now_about == 0 ? 8 - ahead : 0; group < 8; ++group) {
        typename EightRows<C>::Loaded z;  // of no use where there is no job at hand
        ptx::cp_async_wait_group<ahead - 1>();
        __syncwarp();
        rows.load(z, buffer + loaded_from);
        __syncwarp();
        if (group == 8 - ahead) {
          copied = next;
          pitch = pitch_of(copied);
          place = next_place(pitch);
        }
        if (copied & whole) {
          rows.fetch_whole(place & ~uint64_t{15}, buffer + copied_to);
          ptx::cp_async_commit_group();
        }
        if (now_about != 0) {
          rows.store(z, offset, to);
          offset = offset + step & 15;
          to += rows.group_bytes;
        }
        if (!(copied & whole)) {
          if (copied != 0) {
            const int rows_before = (group + ahead) % 8;
            rows.fetch_checked(place, end_of(copied), static_cast<int>(copied >> 20) - rows_before, buffer + copied_to);
          }
          ptx::cp_async_commit_group();
        }
        place += static_cast<uint64_t>(pitch);
        buffer = buffer == (ahead - 1) * C::raw_bytes ? 0 : buffer + C::raw_bytes;
      }
      if (now_about != 0 && !(now_about & first_half)) {
        announce(p.realignment, now_about / 16 & 0x3fff, now_about & second_half ? 16 : 8, lane());
      }
      begun = true;
      now_about = next;
      offset = static_cast<uint32_t>(ptx::load_shared(state + job_from)) & 15;
      to = reinterpret_cast<unsigned char*>(ptx::load_shared_64(state + job_to) + EightRows<C>{lane(), 0}.part());
    }
  }
  __device__ __forceinline__ uint64_t end_of(uint32_t about) const {
    const uint32_t kind = about & kinds;
    return kind == k_rows ? p.k_rows.end : p.v_rows.end;
  }
};

// Called by every warp that uses the counters; the last one sets them back.
__device__ __forceinline__ void leave_counters(const Realignment& w, int lane) {
  uint32_t last = 0;
  __syncwarp();
  if (lane == 0) last = ptx::atomic_add_acq_rel(w.counters + kDoneCounter, 1) == gridDim.x * (kRealigners + 1) - 1;
  if (__shfl_sync(0xffffffffu, last, 0)) {
    for (int at = lane; at < w.used_counters; at += 32) w.counters[at] = 0;
  }
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
