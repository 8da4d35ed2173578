// Rows that TMA cannot read (it wants multiples of 16 bytes, also within a row), brought to where one bulk copy can read
// them, by the kernel that uses them.
//
//   packers    three warps beside the producing one. They take 64 rows of K or V at a time, by a ticket, in the order in
//              which tiles are wanted; the raw 16-byte chunks of eight rows come by cp.async, are shifted to their place
//              and go to a workspace in global memory that holds tiles as shared memory will (below). A counter for each
//              tile (or a few) says how many of its rows are there. The queries of their block's next tiles they put
//              into shared memory themselves, 64 rows at a time in turn, between two tickets: consumers wait for them.
//   producer   at the start brings raw rows into the rings, which are empty yet, for the consumers; then one thread waits
//              for a tile's counter, and brings the tile by one bulk copy
//   consumers  begin with the queries of their block's first tile, and with some tickets that one addition took for the
//              whole block: at the start nothing else is there for them to do
//
// Barriers: begin_full, begin_empty of raw rows at the start; begun_barrier when the rings are free; q_full (32 arrivals
// for each 64 rows) and q_empty of queries; the rings' own.
//
// Tiles are core matrices of 8 rows by 16 bytes, without swizzle: [8 rows][chunk][row].
//
// Who holds a ticket waits for nothing but its own copies, and the packers of a block take every ticket up to what its
// own tile needs without waiting for anybody: whatever blocks are resident, they go on. Past that, packers stay within
// what their block's next tile needs, so that the workspace is still in L2 when it is read.
//
// The last warp of all packers and producers sets the counters back. A block's producer brings no tile before its
// consumers have packed what they began with.
// Included by sm90_flash.cuh, whose Layout and walk() it needs.
#pragma once

#include <cstdint>

#include "../ptx/atomic.cuh"
#include "../ptx/cp_async.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/shared_words.cuh"
#include "../ptx/special_registers.cuh"
#include "../ptx/tma.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

constexpr int packers = 3;  // warps

constexpr int ticket_counter = 0, done_counter = 1, first_tile_counter = packing_counters;

// Where the rows of a tile are counted, and how many groups of eight rows make it complete.
template <typename C>
__device__ __forceinline__ uint32_t tile_counter(const Packing& w, int kv_head, int block, bool values) {
  if (w.counter_heads > 1) return first_tile_counter + kv_head / w.counter_heads;
  return first_tile_counter + kv_head * w.head_counters + ((2 * block + values) >> w.counter_shift);
}
template <typename C>
__device__ __forceinline__ uint32_t complete_count(const Packing& w, int kv_head, int block, bool values) {
  if (w.counter_heads > 1) {
    const int first = kv_head / w.counter_heads * w.counter_heads;
    return min(w.counter_heads, w.kv_heads - first) * 2 * w.blocks * (C::block_n / 8);
  }
  const int first = (2 * block + values) >> w.counter_shift << w.counter_shift;
  return min(1 << w.counter_shift, 2 * w.blocks - first) * (C::block_n / 8);
}

// A tile's place in the workspace, in chunks of 16 bytes.
template <typename C>
__device__ __forceinline__ uint32_t packed_tile(const Packing& w, int kv_head, int block, bool values) {
  return (kv_head * w.blocks + block) * ((C::k_bytes + C::v_bytes) / 16) + (values ? C::k_bytes / 16 : 0);
}

// Sixteen blocks of a head whose counters the lanes of a warp have looked at.
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

// One warp's work: whole tiles of K and V from the workspace.
template <typename C>
__device__ __forceinline__ void produce_packed(const Parameters& p, const Layout<C>& shared) {
  const Packing& w = p.packing;
  const int lane = threadIdx.x % 32;
  uint32_t k_count = 0, v_count = 0;
  Window window;
  const auto load = [&](uint32_t tile, uint32_t full, uint32_t empty, uint32_t parity, uint32_t bytes, int row,
                        int head, int batch, bool values) {
    const int kv_head = batch * w.batch_heads + head, block = row / C::block_n;
    const uint32_t bit = window.bit_of(kv_head, block, values);
    for (uint32_t tries = 0; !(window.complete & bit); ++tries) {
      const int mine = window.block_of(lane);
      const bool there = mine < w.blocks &&
                         (w.tickets == 0 || ptx::load_acquire(w.counters + tile_counter<C>(w, kv_head, mine, lane >= 16)) >=
                                                complete_count<C>(w, kv_head, mine, lane >= 16));
      window.complete = __ballot_sync(0xffffffffu, there);
      if (!(window.complete & bit)) __nanosleep(20);
#ifdef CUDA_LLM_OPS_BOUNDED_WAITS
      if (tries > CUDA_LLM_OPS_BOUNDED_WAITS) CUDA_LLM_OPS_GIVE_UP(static_cast<uint32_t>(kv_head), 2 * block + values);
#endif
      ptx::fence_proxy_async_global();
      __syncwarp();
    }
    if (lane == 0) {
      ptx::mbarrier_wait(empty, parity);
      ptx::mbarrier_arrive_expect_tx(full, bytes);
      const uint64_t from = uint64_t{16} * packed_tile<C>(w, kv_head, block, values);
      ptx::bulk_load(tile, static_cast<const unsigned char*>(w.workspace) + from, bytes, full);
    }
    __syncwarp();
  };
  const auto load_k = [&](int row, int head, int batch) {
    const uint32_t stage = ring_stage<C::stages>(k_count), parity = ring_parity<C::stages>(k_count) ^ 1;
    load(shared.k + stage * C::k_bytes, shared.k_full(stage), shared.k_empty(stage), parity, C::k_bytes, row, head,
         batch, false);
    ++k_count;
  };
  const auto load_v = [&](int row, int head, int batch) {
    const uint32_t stage = ring_stage<C::stages>(v_count), parity = ring_parity<C::stages>(v_count) ^ 1;
    load(shared.v + stage * C::v_bytes, shared.v_full(stage), shared.v_empty(stage), parity, C::v_bytes, row, head,
         batch, true);
    ++v_count;
  };
  walk<C>(p, [](int, int, int, int) {}, load_k, load_v);
}

// The row, of 64, at a place of a packed tile. Rows eight apart are equally far from a multiple of 16 bytes, whatever
// their pitch: a warp shifts eight such rows by one distance, and they become neighbours. Keys may come in any order, if
// V's do in the same; masks and outputs know it.
__host__ __device__ constexpr int packed_row(int place) { return place % 8 * 8 + place / 8; }

// What the 64 rows at hand are.
struct Source {
  uint64_t from;  // the first of eight rows that are eight apart
  int64_t pitch;  // of rows, bytes
  uint64_t end;   // of the tensor
  int valid;      // so many rows from there on are there
};

// Eight rows, a warp's work at a time: a lane has a quarter of a row's chunks, one after another; where they are one more
// than a multiple of four, the lane of the last quarter has it, and that of the third the chunk of zeros behind it.
template <typename C>
struct EightRows {
  static constexpr bool one_more = C::v_chunks % 4 == 1;
  static constexpr int own = (C::v_chunks + 2) / 4;  // chunks of a lane
  // Whether a row may end in the k-th chunk of some lane.
  static __host__ __device__ constexpr bool may_end(int k) {
    for (int q = 0; q < 4; ++q) {
      if (q * own + k < C::v_chunks && (q * own + k + 1) * 8 > C::least_head_dim) return true;
    }
    return false;
  }
  const int lane, head_dim;

  // What of the chunk behind a lane's own is inside of the row.
  __device__ __forceinline__ uint4 last() const { return cut(make_uint4(~0u, ~0u, ~0u, ~0u), 4 * own + 3 - quarter()); }

  __device__ __forceinline__ int row() const { return lane % 8; }
  __device__ __forceinline__ int quarter() const { return lane / 8; }

  struct Loaded {
    uint4 chunk[own + 1 + one_more];
  };
  static __device__ __forceinline__ uint4 load_shared_16(uint32_t from) {
    return *static_cast<const uint4*>(__cvta_shared_to_generic(from));
  }
  // From shared memory, where rows begin with the multiple of 16 bytes that their first byte is in: this lane's part.
  __device__ __forceinline__ uint32_t raw_part() const { return row() * C::raw_pitch + quarter() * (own * 16); }
  // Where rows follow one another as in memory, from `begin`, an address there, rounded down, on: the rows of that group.
  __device__ __forceinline__ uint32_t run_part(uint64_t begin, int group) const {
    const uint32_t pitch = static_cast<uint32_t>(head_dim) * 2;
    return ((static_cast<uint32_t>(begin) & 15) + group * pitch & ~15u) + row() * 8 * pitch + quarter() * (own * 16);
  }
  static __device__ __forceinline__ void load(Loaded& z, uint32_t from) {
#pragma unroll
    for (int k = 0; k < own + 1 + one_more; ++k) z.chunk[k] = load_shared_16(from + k * 16);
  }

  // Of a tile's core matrices of these rows, where this lane's begin.
  __device__ __forceinline__ uint32_t part() const { return quarter() * (own * 128) + row() * 16; }

  // `offset` bytes of a row's first chunk are not the row's. `mine`: this lane's part of the tile's core matrices.
  template <typename Last>
  __device__ __forceinline__ void shift(const Loaded& z, uint32_t offset, int chunks, unsigned char* mine,
                                        const Last& behind) const {
    const uint32_t bits = (offset & 2) * 8;
    switch (offset / 4) {
      case 0: shift_words<0>(z, bits, chunks, mine, behind); break;
      case 1: shift_words<1>(z, bits, chunks, mine, behind); break;
      case 2: shift_words<2>(z, bits, chunks, mine, behind); break;
      default: shift_words<3>(z, bits, chunks, mine, behind); break;
    }
  }

  template <int Words, typename Last>
  __device__ __forceinline__ void shift_words(const Loaded& z, uint32_t bits, int chunks, unsigned char* mine,
                                              const Last& behind) const {
#pragma unroll
    for (int k = 0; k < own; ++k) {
      uint4 x = joined<Words>(z.chunk[k], z.chunk[k + 1], bits);
      if (may_end(k)) x = cut(x, quarter() * own + k);
      if (4 * own <= C::v_chunks || quarter() * own + k < C::v_chunks) *reinterpret_cast<uint4*>(mine + k * 128) = x;
    }
    if constexpr (one_more) {
      const int chunk = 4 * own + 3 - quarter();
      if (chunk < chunks) {
        const uint4 x = joined<Words>(z.chunk[own], z.chunk[own + one_more], bits), mask = behind();
        *reinterpret_cast<uint4*>(mine + (chunk - quarter() * own) * 128) =
            make_uint4(x.x & mask.x, x.y & mask.y, x.z & mask.z, x.w & mask.w | last_of_row);
      }
    }
  }
  // V's last column is free, and ones. So are Q's and K's, and all scores larger by a constant, which is nothing to softmax:
  // what a tile is of need not be known here.
  static constexpr uint32_t last_of_row = C::ones_column ? C::one << 16 : 0;
  static_assert(!C::ones_column || one_more);
  template <int Words>
  static __device__ __forceinline__ uint4 joined(const uint4& l, const uint4& h, uint32_t bits) {
    const uint32_t z[8] = {l.x, l.y, l.z, l.w, h.x, h.y, h.z, h.w};
    return make_uint4(__funnelshift_r(z[Words], z[Words + 1], bits), __funnelshift_r(z[Words + 1], z[Words + 2], bits),
                      __funnelshift_r(z[Words + 2], z[Words + 3], bits), __funnelshift_r(z[Words + 3], z[Words + 4], bits));
  }
  // What is past the row's end is another row's: zeros in its stead, also because 0 times NaN is NaN.
  __device__ __forceinline__ uint4 cut(const uint4& x, int chunk) const {
    const int left = (head_dim - chunk * 8) * 16;  // bits
    const auto mask = [&](int j) { return __funnelshift_lc(~0u, 0, max(left - 32 * j, 0)); };
    return make_uint4(x.x & mask(0), x.y & mask(1), x.z & mask(2), x.w & mask(3));
  }

  // Where this lane's chunks begin in global memory, before that is rounded down to a multiple of 16: every fourth.
  __device__ __forceinline__ uint64_t place_in(const Source& source) const {
    return source.from + static_cast<uint64_t>(lane / 4 * 8 * source.pitch) + lane % 4 * 16;
  }

  // Starts the copy of eight rows' raw chunks; of rows that there are not, zeros.
  __device__ __forceinline__ void fetch(uint64_t place, uint64_t end, int valid, uint32_t buffer) const {
    fetch_checked(place, end, valid, buffer + copied_part());
    ptx::cp_async_commit_group();
  }
  // The same, without closing the group of copies. to: this lane's part of the buffer.
  __device__ __forceinline__ void fetch_checked(uint64_t place, uint64_t end, int valid, uint32_t to) const {
    const int bytes = static_cast<uint32_t>(place) % 16 + head_dim * 2;
    const uint64_t at = place & ~uint64_t{15};
    // What the tensor has of it: its last chunk may reach past its end.
    const int there = lane / 4 * 8 < valid && at < end ? static_cast<int>(min(end - at, uint64_t{4096})) : 0;
#pragma unroll 1
    for (int k = 0; (lane % 4 + 4 * k) * 16 < bytes; ++k) {
      const int size = max(min(there - k * 64, 16), 0);
      if (size % 16 == 0) {
        ptx::cp_async_cg_16(to + k * 64, reinterpret_cast<const void*>(at + k * 64), size);
      } else {
        // The tensor ends within: not even the machine's 16 bytes are read of what is not there.
#pragma unroll 1
        for (int e = 0; e < 16; e += 2) {
          *static_cast<uint16_t*>(__cvta_shared_to_generic(to + k * 64 + e)) =
              e < size ? *reinterpret_cast<const uint16_t*>(at + k * 64 + e) : 0;
        }
      }
    }
  }
  // Where all of eight rows and of their chunks are there; at: a multiple of 16.
  __device__ __forceinline__ void fetch_whole(uint64_t at, uint32_t to) const {
#pragma unroll
    for (int k = 0; k < (C::raw_chunks + 3) / 4; ++k) {
      if (4 * k + 4 <= C::raw_chunks || lane % 4 + 4 * k < C::raw_chunks) {
        ptx::cp_async_cg_16(to + k * 64, reinterpret_cast<const void*>(at + k * 64));
      }
    }
  }
  __device__ __forceinline__ uint32_t copied_part() const { return lane / 4 * C::raw_pitch + lane % 4 * 16; }
};

// Whether the copies of so many groups, each one row further, stay inside of the tensor and of rows that there are.
template <typename C>
__device__ __forceinline__ bool inside(const Source& source, int groups) {
  const uint64_t last = source.from + static_cast<uint64_t>((55 + groups) * source.pitch);
  return source.valid >= 55 + groups + 1 && max(source.from, last) + C::raw_chunks * 16 <= source.end;
}

__device__ __forceinline__ uint64_t address_of(const Rows& source, int batch, int head, int64_t row) {
  return reinterpret_cast<uint64_t>(source.pointer) +
         static_cast<uint64_t>((batch * source.batch + head * source.head + row * source.seq) * 2);
}

__device__ __forceinline__ unsigned char* generic_of_shared(uint32_t shared) {
  return static_cast<unsigned char*>(__cvta_shared_to_generic(shared));
}

// A ticket: 64 rows of K or V, eight groups of rows that are eight apart.
struct Ticket {
  Source source;     // the first group's; the next group's rows are one further
  uint32_t to;       // its place, in chunks of the workspace
  uint32_t counter;  // the tile's
  bool values;
};

template <typename C>
__device__ __forceinline__ Ticket read_ticket(const Parameters& p, uint32_t ticket) {
  const Packing& w = p.packing;
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
  t.to = packed_tile<C>(w, kv_head, block, values) + rows_before * (values ? C::v_chunks : C::k_chunks);
  t.counter = tile_counter<C>(w, kv_head, block, values);
  return t;
}

// After so many groups of a tile are written.
__device__ __forceinline__ void announce(const Packing& w, uint32_t counter, uint32_t groups, int lane) {
  ptx::fence_proxy_async_global();
  __syncwarp();
  if (lane == 0) ptx::red_release_add(w.counters + counter, groups);
}

// The tickets up to which a tile needs all.
template <typename C>
__device__ __forceinline__ uint32_t tickets_of(const Parameters& p, const Tile& tile) {
  const Packing& w = p.packing;
  const uint32_t section = (tile.batch * w.batch_heads + tile.head / p.group) / w.section;
  return min(w.tickets, (section + 1) * w.section_tickets);
}

// A thread block's tickets for its consumers to begin with: one addition for all of them.
__device__ __forceinline__ uint32_t claim_first_tickets(const Packing& w) {
  return w.tickets > 0 ? atomicAdd(w.counters + ticket_counter, static_cast<uint32_t>(w.first_tickets)) : 0;
}

// What a thread block packs before its first tile: some tickets, and that tile's queries, 64 rows each. The rings are empty
// yet: raw rows come there, by one bulk copy where they follow one another and all are there, and each consumer warp
// shifts one of their eight groups.
template <typename C>
struct Beginner {
  const Parameters& p;
  const Layout<C>& shared;
  const int lane;
  const Tile tile;

  static constexpr int slot_bytes = 8 * C::raw_bytes;

  // What the lane of that number knows.
  struct Item {
    Source source;     // of the first group
    uint64_t to;       // generic address of its core matrices
    uint32_t counter;  // of K's or V's tile
    int chunks;
    bool ticket, run;  // run: by a bulk copy
  };
  int tickets, count;

  __device__ __forceinline__ Beginner(const Parameters& parameters, const Layout<C>& layout)
      : p(parameters), shared(layout), lane(threadIdx.x % 32), tile(tile_at<C>(parameters, 0)) {}

  __device__ __forceinline__ Item item() {
    const Packing& w = p.packing;
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
      mine.chunks = t.values ? C::v_chunks : C::k_chunks;
    } else if (lane < count) {
      const int group = lane - tickets, row = tile.m * C::block_m + group * 64;
      mine.source = {address_of(p.q_rows, tile.batch, tile.head, row), p.q_rows.seq * 2, p.q_rows.end, p.seq_q - row};
      mine.to = reinterpret_cast<uint64_t>(generic_of_shared(shared.q + group * C::q_bytes));
      mine.chunks = C::k_chunks;
    }
    mine.run = mine.source.pitch == p.head_dim * 2 && mine.source.valid >= 64 && end_of_run(mine.source) <= mine.source.end;
    return mine;
  }
  __device__ __forceinline__ uint64_t end_of_run(const Source& source) const {
    return (source.from + static_cast<uint64_t>(64 * source.pitch) + 15) & ~uint64_t{15};
  }
  __device__ __forceinline__ uint32_t slot(int i) const { return shared.k + i % C::begin_slots * slot_bytes; }

  // The producing warp's part.
  __device__ __forceinline__ void produce() {
    const Item mine = item();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (lane == i) {
        const uint32_t full = shared.begin_full(i % C::begin_slots);
        if (i >= C::begin_slots) ptx::mbarrier_wait(shared.begin_empty(i % C::begin_slots), i / C::begin_slots - 1 & 1);
        if (mine.run) {
          const uint64_t from = mine.source.from & ~uint64_t{15};
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

  // A consumer warp's part. Rows that no bulk copy brings it copies itself.
  __device__ __forceinline__ void pack(int warp) {
    const EightRows<C> rows{lane, p.head_dim};
    const uint4 last = rows.last();
    Item mine = item();
    mine.source.from += static_cast<uint64_t>(warp * mine.source.pitch);
    mine.source.valid -= warp;
    mine.to += warp * 128 * mine.chunks;
    const auto fetch = [&](int i) {
      const Source s{__shfl_sync(0xffffffffu, mine.source.from, i), __shfl_sync(0xffffffffu, mine.source.pitch, i),
                     __shfl_sync(0xffffffffu, mine.source.end, i), __shfl_sync(0xffffffffu, mine.source.valid, i)};
      rows.fetch(rows.place_in(s), s.end, min(s.valid, 64), slot(i) + warp * C::raw_bytes);
    };
    const uint32_t runs = __ballot_sync(0xffffffffu, mine.run);
#pragma unroll 1
    for (int i = 0; i < min(count, C::begin_slots); ++i) {
      if (!(runs >> i & 1)) fetch(i);
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const uint64_t from = __shfl_sync(0xffffffffu, mine.source.from, i);
      const int64_t pitch = __shfl_sync(0xffffffffu, mine.source.pitch, i);
      const uint64_t to = __shfl_sync(0xffffffffu, mine.to, i);
      const int chunks = __shfl_sync(0xffffffffu, mine.chunks, i);
      ptx::mbarrier_wait(shared.begin_full(i % C::begin_slots), i / C::begin_slots & 1);
      uint32_t raw;
      if (runs >> i & 1) {
        raw = slot(i) + rows.run_part(from - static_cast<uint64_t>(warp * pitch), warp);
      } else {
        if (i >= C::begin_slots) fetch(i);
        ptx::cp_async_wait_group<0>();
        __syncwarp();
        raw = slot(i) + warp * C::raw_bytes + rows.raw_part();
      }
      typename EightRows<C>::Loaded z;
      rows.load(z, raw);
      if (i + C::begin_slots < count) {
        ptx::fence_proxy_async_shared();
        ptx::mbarrier_arrive(shared.begin_empty(i % C::begin_slots));
      }
      rows.shift(z, static_cast<uint32_t>(from) & 15, chunks, reinterpret_cast<unsigned char*>(to) + rows.part(),
                 [&] { return last; });
    }
    ptx::fence_proxy_async_global();
    __syncwarp();
    if (mine.ticket) ptx::red_release_add(p.packing.counters + mine.counter, 1);  // one of its eight groups
  }
};

template <typename C>
struct Packer {
  static constexpr uint32_t none = ~0u;

  // A job is 64 rows, eight groups of rows that are eight apart. What it is about: 0 if there is nothing to do, else its
  // kind, + 16 * (the tile's counter, or the slot of queries), + 2^20 * rows that there are, and
  enum : uint32_t {
    k_rows = 1,
    v_rows = 2,
    q_rows = 3,
    kinds = 3,
    whole = 4,              // no row, and no chunk of one, needs to be looked at
    first_half = 1 << 18,   // of a tile of 128 rows, announced with ..
    second_half = 1 << 19,  // .. this
  };

  // What is kept in shared memory, since registers are short: offsets from `state`, in bytes.
  static constexpr uint32_t position = 20;                                 // all tickets before are taken
  static constexpr uint32_t job_from = 24, job_to = 32;                    // of the next job
  static constexpr uint32_t half_about = 40, half_from = 48, half_to = 56;  // of the tile whose second half is left, if any
  static constexpr uint32_t masks = 64;                                    // for EightRows::shift, of two quarters

  const Parameters& p;
  const Layout<C>& shared;
  const uint32_t raw;
  const uint32_t state;
  uint32_t taken = none;       // in lane 0 the next tickets, if there are any

  __device__ __forceinline__ Packer(const Parameters& parameters, const Layout<C>& layout, int packer)
      : p(parameters), shared(layout), raw(layout.raw + packer * 2 * C::raw_bytes),
        state(layout.packer_state(packer)) {
    Walk walk;
    walk.unit = C::q_tiles + packer;
    keep(walk);
    if (lane() == 0) {
      ptx::store_shared(state + position, 0);
      ptx::store_shared(state + half_about, 0);
    }
    __syncwarp();
  }

  // Read afresh: registers are short.
  static __device__ __forceinline__ int lane() { return ptx::fresh_tid_x() % 32; }

  __device__ __forceinline__ uint32_t taken_before() const { return static_cast<uint32_t>(ptx::load_shared(state + position)); }

  struct Walk {
    int i = 0;                   // the queries of this block's tile i - 1 are the next; 0 at its end
    int count = -1;              // tiles before this one
    int unit = 0;                // the next 64 rows of queries that are this warp's, counted from the first tile's first
    uint32_t now = 0, limit = 0; // the tickets that the tile before it needs, and that it needs; all, where there is none

    // Of the use of that slot before this tile's.
    __device__ __forceinline__ uint32_t queries_parity() const { return count / C::q_slots & 1 ^ 1; }
    __device__ __forceinline__ int slot() const { return count % C::q_slots; }
  };
  __device__ __forceinline__ Walk kept() const {
    return {ptx::load_shared(state), ptx::load_shared(state + 4), ptx::load_shared(state + 8),
            static_cast<uint32_t>(ptx::load_shared(state + 12)), static_cast<uint32_t>(ptx::load_shared(state + 16))};
  }
  __device__ __forceinline__ void keep(const Walk& walk) const {
    __syncwarp();
    if (lane() == 0) {
      ptx::store_shared(state, walk.i);
      ptx::store_shared(state + 4, walk.count);
      ptx::store_shared(state + 8, walk.unit);
      ptx::store_shared(state + 12, static_cast<int>(walk.now));
      ptx::store_shared(state + 16, static_cast<int>(walk.limit));
    }
    __syncwarp();
  }

  // On to the tile of the next queries that are this warp's.
  __device__ __forceinline__ void next_tile() {
    Walk walk = kept();
    do {
      Tile tile;
      do {
        tile = tile_at<C>(p, walk.i++);
      } while (tile.valid && tile.m < 0);
      ++walk.count;
      walk.now = walk.count == 1 ? walk.limit / 2 : walk.limit;  // half of what the first tile needs comes before
      walk.limit = tile.valid ? tickets_of<C>(p, tile) : p.packing.tickets;
      if (!tile.valid) walk.i = 0;
    } while (walk.i > 0 && walk.count < walk.unit / C::q_tiles);
    keep(walk);
  }

  __device__ __forceinline__ bool queries_free(const Walk& walk) const {
    return __all_sync(0xffffffffu, ptx::mbarrier_test_wait(shared.q_empty(walk.slot()), walk.queries_parity()));
  }

  // What the tile before needs goes first. Then queries as soon as there is room for them, for consumers may wait for
  // them; else tickets up to what these queries' tile needs; at the end all that are left.
  __device__ __forceinline__ uint32_t next_job() {
    Source source;
    uint64_t to;
    uint32_t about;
    const Walk walk = kept();
    if (walk.i > 0 && taken_before() >= walk.now && queries_free(walk)) {
      const Tile tile = tile_at<C>(p, walk.i - 1);
      const int slot = walk.slot(), group = walk.unit % C::q_tiles, first_row = tile.m * C::block_m + group * 64;
      source = {address_of(p.q_rows, tile.batch, tile.head, first_row), p.q_rows.seq * 2, p.q_rows.end,
                p.seq_q - first_row};
      to = reinterpret_cast<uint64_t>(generic_of_shared(shared.q + (slot * C::q_tiles + group) * C::q_bytes));
      about = q_rows + slot * 16;
      Walk after = walk;
      after.unit += packers;
      keep(after);
      prefetch(source, 64);
      if (walk.count < after.unit / C::q_tiles) next_tile();
    } else if (const uint32_t rest = ptx::load_shared(state + half_about)) {
      // The second half of the tile at hand.
      about = rest;
      source.pitch = pitch_of(about);
      source.from = ptx::load_shared_64(state + half_from) + static_cast<uint64_t>(64 * source.pitch);
      source.end = end_of(about);
      source.valid = static_cast<int>(about >> 20) - 64;
      to = ptx::load_shared_64(state + half_to) + 64 * 16 * ((about & kinds) == v_rows ? C::v_chunks : C::k_chunks);
      about = (about & 0xfffff) | second_half;
      __syncwarp();
      if (lane() == 0) ptx::store_shared(state + half_about, 0);
    } else {
      uint32_t ticket = __shfl_sync(0xffffffffu, taken, 0);
      const uint32_t before = taken_before();
      if (ticket == none && before < walk.limit) ticket = __shfl_sync(0xffffffffu, claim_tile(), 0);
      taken = none;
      if (ticket == none) return 0;
      const uint32_t behind = ticket + (1u << p.packing.tile_shift);
      __syncwarp();
      if (lane() == 0) ptx::store_shared(state + position, static_cast<int>(behind));
      if (ticket >= p.packing.tickets) return 0;
      if (behind < walk.limit) taken = claim_tile();
      const Ticket t = read_ticket<C>(p, ticket);
      source = t.source;
      to = reinterpret_cast<uint64_t>(p.packing.workspace) + t.to * uint64_t{16};
      about = (t.values ? v_rows : k_rows) + t.counter * 16;
      // The first rows of all packers together would keep memory from what the consumers begin with.
      if (before > 0) prefetch(source, 64 << p.packing.tile_shift);
      if (p.packing.tile_shift > 0 && lane() == 0) {
        ptx::store_shared(state + half_about, static_cast<int>(about | max(min(source.valid, 128), 0) << 20));
        ptx::store_shared(state + half_from, source.from);
        ptx::store_shared(state + half_to, to);
      }
      if (p.packing.tile_shift > 0) about |= first_half;
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
    return lane() == 0 ? atomicAdd(p.packing.counters + ticket_counter, 1u << p.packing.tile_shift) : 0;
  }
  // Of the next job: where this lane's copies begin, and its chunks go to.
  __device__ __forceinline__ uint64_t next_place(int64_t pitch) const {
    return ptx::load_shared_64(state + job_from) + static_cast<uint64_t>(lane() / 4 * 8 * pitch) + lane() % 4 * 16;
  }

  __device__ __forceinline__ int64_t pitch_of(uint32_t about) const {
    const uint32_t kind = about & kinds;
    return (kind == k_rows ? p.k_rows.seq : kind == v_rows ? p.v_rows.seq : p.q_rows.seq) * 2;
  }

  // One loop over groups, also from a job to the next: two are on their way while one is shifted, and the code is short,
  // since consumers and packers share what holds instructions.
  __device__ __forceinline__ void run() {
    const EightRows<C> rows{lane(), p.head_dim};
    if (p.packing.tickets > 0) taken = claim_tile();
    if (lane() / 8 >= 2 && lane() % 8 == 0) {
      *static_cast<uint4*>(__cvta_shared_to_generic(state + masks + (3 - lane() / 8) * 16)) = rows.last();
    }
    __syncwarp();
    const uint32_t behind = ptx::opaque(state + masks + (3 - max(lane() / 8, 2)) * 16);
    const uint32_t loaded_from = ptx::opaque(raw + rows.raw_part()), copied_to = ptx::opaque(raw + rows.copied_part());
    uint32_t now_about = 0, offset = 0;  // of the job at hand
    unsigned char* to = nullptr;         // of its next group to be shifted
    uint64_t place = 0;                  // of the next group to be copied
    for (bool begun = false;;) {
      const uint32_t next = next_job();
      if (now_about == 0 && next == 0 && begun) {
        // Nothing is left to take, now at least.
        const Walk walk = kept();
        if (walk.i == 0) return;
        ptx::mbarrier_wait(shared.q_empty(walk.slot()), walk.queries_parity());
        __syncwarp();
        continue;
      }
      uint32_t copied = now_about;
      int64_t pitch = pitch_of(now_about);
      const uint32_t step = static_cast<uint32_t>(pitch);
      const int chunks = (now_about & kinds) == v_rows ? C::v_chunks : C::k_chunks;
#pragma unroll 1
      for (int group = now_about == 0 ? 6 : 0; group < 8; ++group) {
        const uint32_t buffer = (group & 1) * C::raw_bytes;
        typename EightRows<C>::Loaded z;
        if (now_about != 0) {
          ptx::cp_async_wait_group<1>();
          __syncwarp();
          rows.load(z, buffer + loaded_from);
          __syncwarp();
        } else {
          z = {};  // what it held before is not to be kept in registers
        }
        if (group == 6) {
          copied = next;
          pitch = pitch_of(copied);
          place = next_place(pitch);
        }
        if (copied & whole) {
          rows.fetch_whole(place & ~uint64_t{15}, buffer + copied_to);
          ptx::cp_async_commit_group();
        }
        if (now_about != 0) {
          rows.shift(z, offset, chunks, to, [&] { return EightRows<C>::load_shared_16(behind); });
          offset = offset + step & 15;
          to += 128 * chunks;
        }
        if (!(copied & whole)) {
          if (copied != 0) {
            rows.fetch_checked(place, end_of(copied), static_cast<int>(copied >> 20) - (group + 2) % 8, buffer + copied_to);
          }
          ptx::cp_async_commit_group();
        }
        place += static_cast<uint64_t>(pitch);
      }
      if (now_about != 0) {
        if ((now_about & kinds) == q_rows) {
          ptx::fence_proxy_async_shared();
          ptx::mbarrier_arrive(shared.q_full(now_about / 16 & 0x3fff));
        } else if (!(now_about & first_half)) {
          announce(p.packing, now_about / 16 & 0x3fff, now_about & second_half ? 16 : 8, lane());
        }
      }
      if (!begun) next_tile();
      begun = true;
      now_about = next;
      offset = static_cast<uint32_t>(ptx::load_shared(state + job_from)) & 15;
      to = reinterpret_cast<unsigned char*>(ptx::load_shared_64(state + job_to) + EightRows<C>{lane(), 0}.part());
    }
  }
  __device__ __forceinline__ uint64_t end_of(uint32_t about) const {
    const uint32_t kind = about & kinds;
    return kind == k_rows ? p.k_rows.end : kind == v_rows ? p.v_rows.end : p.q_rows.end;
  }

  // The lines of so many rows, into L2: the copies that follow one another wait for it alone.
  __device__ __forceinline__ void prefetch(const Source& source, int count) const {
    const int rows = min(source.valid, count);
    if (source.pitch == p.head_dim * 2) {
      if (lane() == 0 && rows > 0) {
        const uint64_t from = source.from & ~uint64_t{15};
        ptx::bulk_prefetch(reinterpret_cast<const void*>(from), static_cast<uint32_t>(rows * p.head_dim * 2) & ~15u);
      }
      return;
    }
#pragma unroll 1
    for (int row = lane(); row < rows; row += 32) {
      const uint64_t from = source.from + static_cast<uint64_t>(row * source.pitch);
#pragma unroll 1
      for (int at = 0; at < C::v_chunks * 16; at += 128) {
        ptx::prefetch_l2(reinterpret_cast<const void*>(from + min(at, p.head_dim * 2 - 1)));
      }
    }
  }
};

// The last of all warps that use the counters sets them back.
__device__ __forceinline__ void leave_counters(const Packing& w, int lane) {
  uint32_t last = 0;
  __syncwarp();
  if (lane == 0) last = ptx::atomic_add_acq_rel(w.counters + done_counter, 1) == gridDim.x * (packers + 1) - 1;
  if (__shfl_sync(0xffffffffu, last, 0)) {
    for (int at = lane; at < w.used_counters; at += 32) w.counters[at] = 0;
  }
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
