// Rows that TMA cannot read (it wants multiples of 16 bytes, also within a row), brought to where one bulk copy can read
// them, by the kernel that uses them.
//
//   packers    three warps beside the producing one. They take 64 rows of K or V at a time, by a ticket, in the order in
//              which tiles are wanted; the raw 16-byte chunks of eight rows come by cp.async, are shifted to their place
//              and go to a workspace in global memory that holds tiles as shared memory will (below). A counter for each
//              tile (or a few) says how many of its rows are there. The queries of their block's next tile they put
//              into shared memory themselves, between two groups of eight rows if need be: consumers wait for them.
//   producer   one thread waits for a tile's counter, and brings the tile by one bulk copy
//   consumers  begin with the queries of their block's first tile, and with some tickets that one addition took for the
//              whole block: at the start nothing else is there for them to do
//
// Tiles are core matrices of 8 rows by 16 bytes, without swizzle: [8 rows][chunk][row].
//
// Who holds a ticket waits for nothing but its own copies, and the packers of a block take every ticket up to what its
// own tile needs without waiting for anybody: whatever blocks are resident, they go on. Past that, packers stay within
// what their block's next tile needs, so that the workspace is still in L2 when it is read.
//
// The last warp of all packers and producers sets the counters back. A block's producer is not done before its consumers
// have packed what they began with.
// Included by sm90_flash.cuh, whose Layout and walk() it needs.
#pragma once

#include <cstdint>

#include "../ptx/atomic.cuh"
#include "../ptx/cp_async.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/mbarrier.cuh"
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

// Eight rows, a warp's work at a time: a lane has every fourth chunk of a row.
template <typename C>
struct EightRows {
  static constexpr int steps = (C::k_chunks + 3) / 4;
  static constexpr int whole_steps = C::least_head_dim / 32;  // of chunks that are inside of every row
  const int lane, head_dim;

  __device__ __forceinline__ int row() const { return lane % 8; }
  __device__ __forceinline__ int first_chunk() const { return lane / 8; }

  // low(k), high(k): this lane's k-th chunk as it lies in memory from a multiple of 16 bytes on, and the next; `offset`
  // bytes of a row's first are not the row's. `to`: the tile's core matrices of these rows.
  template <typename Low, typename High>
  __device__ __forceinline__ void shift(const Low& low, const High& high, uint32_t offset, int chunks, unsigned char* to) const {
    const uint32_t bits = (offset & 2) * 8;
    unsigned char* const mine = to + lane * 16;
    switch (offset / 4) {
      case 0: shift_words<0>(low, high, bits, chunks, mine); break;
      case 1: shift_words<1>(low, high, bits, chunks, mine); break;
      case 2: shift_words<2>(low, high, bits, chunks, mine); break;
      default: shift_words<3>(low, high, bits, chunks, mine); break;
    }
  }

  template <int Words, typename Low, typename High>
  __device__ __forceinline__ void shift_words(const Low& low, const High& high, uint32_t bits, int chunks,
                                              unsigned char* mine) const {
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      const int chunk = first_chunk() + 4 * k;
      if (k >= whole_steps && chunk >= chunks) break;
      const uint4 l = low(k), h = high(k);
      const uint32_t z[8] = {l.x, l.y, l.z, l.w, h.x, h.y, h.z, h.w};
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = __funnelshift_r(z[j + Words], z[j + Words + 1], bits);
      if (k >= whole_steps) {
        // What is past the row's end is another row's: zeros in its stead, also because 0 times NaN is NaN.
        const int left = (head_dim - chunk * 8) * 16;  // bits
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] &= __funnelshift_lc(~0u, 0, max(left - 32 * j, 0));
      }
      *reinterpret_cast<uint4*>(mine + k * 512) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }

  // From global memory at once, for warps with registers to spare.
  struct Loaded {
    uint4 low[steps], high[steps];
  };
  __device__ __forceinline__ void load(Loaded& z, const Source& source) const {
    const uint64_t from = source.from + static_cast<uint64_t>(row() * 8 * source.pitch);
    const uint64_t first = (from & ~uint64_t{15}) + first_chunk() * 16;
    const bool valid = row() * 8 < source.valid;
    if (__builtin_expect(__all_sync(0xffffffffu, valid && first + (64 * steps + 16) <= source.end), true)) {
#pragma unroll
      for (int k = 0; k < steps; ++k) {
        z.low[k] = __ldg(reinterpret_cast<const uint4*>(first + k * 64));
        z.high[k] = __ldg(reinterpret_cast<const uint4*>(first + k * 64 + 16));
      }
    } else {
      const uint64_t row_end = from + head_dim * 2;
#pragma unroll
      for (int k = 0; k < steps; ++k) {
        const uint64_t at = first + k * 64;
        z.low[k] = load_chunk(at, valid && at < row_end, source.end);
        z.high[k] = load_chunk(at + 16, valid && at + 16 < row_end, source.end);
      }
    }
  }
  static __device__ __forceinline__ uint4 load_chunk(uint64_t at, bool wanted, uint64_t end) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (wanted) {
      if (at + 16 <= end) {
        x = __ldg(reinterpret_cast<const uint4*>(at));
      } else {
        uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint64_t here = at + 4 * j;
          word[j] = here + 4 <= end ? *reinterpret_cast<const uint32_t*>(here)
                    : here < end    ? *reinterpret_cast<const uint16_t*>(here)
                                    : 0;
        }
        x = make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
    return x;
  }
  __device__ __forceinline__ void shift(const Loaded& z, uint32_t offset, int chunks, unsigned char* to) const {
    shift([&](int k) { return z.low[k]; }, [&](int k) { return z.high[k]; }, offset, chunks, to);
  }
};

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

__device__ __forceinline__ uint32_t claim_ticket(const Packing& w, int lane) {
  return lane == 0 ? atomicAdd(w.counters + ticket_counter, 1u) : 0;
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

// What a consumer warp packs before its first tile, two groups of rows at a time: two warps of a warpgroup its queries from
// `first_row` on, the two others a ticket; then all four together more of them, where the problem is small.
template <typename C>
struct Beginner {
  const Parameters& p;
  const Tile& tile;
  const uint32_t first_ticket, queries;
  const int group, first_row, warp, lane;  // warpgroup; the warp within it

  struct Work {
    Source source;  // the first group's; the second's rows are one further
    unsigned char* to;
    uint32_t counter;  // of K's or V's tile; of queries 0
    int chunks;        // 0: there is nothing to do
  };

  // From this group of the 64 rows on.
  __device__ __forceinline__ Work of_queries(int begin) const {
    const int row = first_row + begin;
    return {{address_of(p.q_rows, tile.batch, tile.head, row), p.q_rows.seq * 2, p.q_rows.end, p.seq_q - row},
            generic_of_shared(queries + begin * (C::k_chunks * 128)),
            0,
            tile.valid ? C::k_chunks : 0};
  }
  __device__ __forceinline__ Work of_ticket(uint32_t ticket, int begin) const {
    const Packing& w = p.packing;
    const Ticket t = read_ticket<C>(p, ticket);
    const int chunks = t.values ? C::v_chunks : C::k_chunks;
    return {{t.source.from + static_cast<uint64_t>(begin * t.source.pitch), t.source.pitch, t.source.end,
             t.source.valid - begin},
            static_cast<unsigned char*>(w.workspace) + (t.to + begin * 8 * chunks) * uint64_t{16},
            t.counter,
            ticket < w.tickets ? chunks : 0};
  }

  // Its rows' lines, into L2.
  __device__ __forceinline__ void prefetch(const Source& source) const {
    const int row = lane % 8 * 8 + lane / 8 % 2;
    if (row >= source.valid) return;
    const uint64_t from = source.from + static_cast<uint64_t>(row * source.pitch);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      ptx::prefetch_l2(reinterpret_cast<const void*>(from + min(lane / 16 * 128 + k * 256, p.head_dim * 2 - 1)));
    }
  }

  __device__ __forceinline__ void run() const {
    const EightRows<C> rows{lane, p.head_dim};
    const int steps = 1 + p.packing.first_tickets / 2;
    Work work = warp < 2 ? of_queries(warp * 4) : of_ticket(first_ticket + group, warp * 4 - 8);
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      typename EightRows<C>::Loaded z[2];
      uint32_t offset[2];
      Source source = work.source;
      if (work.chunks > 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          rows.load(z[h], source);
          offset[h] = static_cast<uint32_t>(source.from) % 16;
          source.from += static_cast<uint64_t>(source.pitch);
          --source.valid;
        }
      }
      const Work now = work;
      if (i == 0) {
        work.source = source;
        work.to += 2 * 128 * work.chunks;
      } else if (i + 1 < steps) {
        work = of_ticket(first_ticket + 2 * i + group, warp * 2);
      }
      if (work.chunks > 0 && i + 1 < steps) prefetch(work.source);
      if (now.chunks > 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) rows.shift(z[h], offset[h], now.chunks, now.to + h * (128 * now.chunks));
        if (now.counter != 0 && i > 0) announce(p.packing, now.counter, i == 1 ? 4 : 2, lane);
      }
    }
  }
};

template <typename C>
struct Packer {
  static constexpr int q_groups = C::block_m / 8;
  static constexpr int whole = 256;
  static constexpr uint32_t none = ~0u;

  const Parameters& p;
  const Layout<C>& shared;
  const int lane;
  const uint32_t raw;
  int i = 0;                   // the walk through this block's tiles: the queries of tile i - 1 are the next; 0 at its end
  int count = -1;              // tiles before this one
  uint32_t now = 0, limit = 0; // the tickets that the tile before it needs, and that it needs; all, where there is none
  uint32_t position = 0;       // all tickets before are taken
  uint32_t taken = none;       // in lane 0 the next ticket, if there is one

  __device__ __forceinline__ Packer(const Parameters& parameters, const Layout<C>& layout, int packer)
      : p(parameters), shared(layout), lane(threadIdx.x % 32), raw(layout.raw + packer * 2 * C::raw_bytes) {}

  __device__ __forceinline__ void next_tile() {
    Tile tile;
    do {
      tile = tile_at<C>(p, i++);
    } while (tile.valid && tile.m < 0);
    ++count;
    now = limit;
    limit = tile.valid ? tickets_of<C>(p, tile) : p.packing.tickets;
    if (!tile.valid) i = 0;
    if (tile.valid && count > 0) prefetch_queries(tile);
  }

  // This warp's rows of queries, which are wanted soon after there is room for them, into L2.
  __device__ __forceinline__ void prefetch_queries(const Tile& tile) const {
    const int warp = ptx::fresh_tid_x() / 32 - (4 * C::consumers + 1), first_row = tile.m * C::block_m;
    const uint64_t start = address_of(p.q_rows, tile.batch, tile.head, first_row);
#pragma unroll 1
    for (int group = warp; group < q_groups; group += packers) {
      const int row = group / 8 * 64 + group % 8 + lane / 4 * 8;
      if (first_row + row >= p.seq_q) continue;
      const uint64_t from = start + static_cast<uint64_t>(row * p.q_rows.seq * 2);
      ptx::prefetch_l2(reinterpret_cast<const void*>(from + min(lane % 4 * 128, p.head_dim * 2 - 1)));
    }
  }

  // Of the use of that slot before this tile's.
  __device__ __forceinline__ uint32_t queries_parity() const { return count / C::q_slots & 1 ^ 1; }
  __device__ __forceinline__ bool queries_free() const {
    return __all_sync(0xffffffffu, ptx::mbarrier_test_wait(shared.q_empty(count % C::q_slots), queries_parity()));
  }

  __device__ __forceinline__ bool queries_next() const { return i > 0 && position >= now && queries_free(); }

  // The next tile's queries, into shared memory that is free.
  __device__ __forceinline__ void pack_tile_queries() {
    const Tile tile = tile_at<C>(p, ptx::opaque(i) - 1);
    const int slot = count % C::q_slots, first_row = tile.m * C::block_m;
    const int warp = ptx::fresh_tid_x() / 32 - (4 * C::consumers + 1);  // of the packers
    const Source rows{address_of(p.q_rows, tile.batch, tile.head, first_row), p.q_rows.seq * 2, p.q_rows.end,
                      p.seq_q - first_row};
    const uint64_t place = place_in(rows);
    const bool all_whole = inside(rows, C::block_m - 56);
    const auto row_of = [](int group) { return group / 8 * 64 + group % 8; };
    const auto start_copy = [&](int group, uint32_t buffer) {
      fetch(place + static_cast<uint64_t>(row_of(group) * (p.q_rows.seq * 2)), p.q_rows.end,
            all_whole ? whole : min(p.seq_q - first_row - row_of(group), 64), buffer);
    };
    uint32_t buffer = raw;
    start_copy(warp, buffer);
    for (int group = warp; group < q_groups; group += packers) {
      const uint32_t offset = static_cast<uint32_t>(place + row_of(group) * (p.q_rows.seq * 2)) % 16;
      if (group + packers < q_groups) {
        start_copy(group + packers, other(buffer));
        ptx::cp_async_wait_group<1>();
      } else {
        ptx::cp_async_wait_group<0>();
      }
      __syncwarp();
      const uint32_t to = shared.q + (slot * C::q_tiles + group / 8) * C::q_bytes + group % 8 * (C::k_chunks * 128);
      pack(buffer, offset, C::k_chunks, generic_of_shared(to));
      buffer = other(buffer);
    }
    ptx::fence_proxy_async_shared();
    ptx::mbarrier_arrive(shared.q_full(slot));
  }

  // What the tile before needs goes first. Then queries as soon as there is room for them, for consumers may wait for
  // them; else tickets up to what these queries' tile needs; at the end all that are left.
  __device__ __forceinline__ void run() {
    if (p.packing.tickets > 0) taken = claim_ticket(p.packing, lane);
    next_tile();  // its queries are the consumers' work
    if (i > 0) {
      limit /= 2;  // half of what this tile needs comes before the second's queries
      next_tile();
    }
    uint64_t place = 0;                // of this lane, in the group of the ticket at hand
    uint32_t to = 0, arriving_to = 0;  // 16-byte chunks of the workspace
    int groups = 0;                    // of the ticket, that are left
    // Of the ticket: its valid rows * 2^20 (`whole` if none needs to be looked at), its tile's counter * 32, + 16 for V. Of
    // what arrives: the same without rows, without the counter if it is not a ticket's last group, and how far its rows
    // are past a multiple of 16.
    uint32_t about = 0, arriving_about = 0;
    bool busy = false;
    for (uint32_t buffer = raw;; buffer = other(buffer)) {
      const bool queries = queries_next();
      bool one = !queries && groups > 0;
      if (one) {
        place += static_cast<uint64_t>((about & 16 ? p.v_rows.seq : p.k_rows.seq) * 2);
        to += 8 * (about & 16 ? C::v_chunks : C::k_chunks);
        --groups;
      } else if (!queries) {
        uint32_t ticket = __shfl_sync(0xffffffffu, taken, 0);
        if (ticket == none && position < limit) {
          ticket = __shfl_sync(0xffffffffu, claim_ticket(p.packing, lane), 0);
        }
        taken = none;
        if (ticket != none) position = ticket + 1;
        if (ticket < p.packing.tickets) {
          if (position < limit) taken = claim_ticket(p.packing, lane);
          one = true;
          groups = 7;
          const Ticket t = read_ticket<C>(p, ticket);
          place = place_in(t.source);
          to = t.to;
          const uint32_t valid = inside(t.source, 8) ? whole : max(min(t.source.valid, 64), 0);
          about = valid << 20 | t.counter * 32 | t.values * 16;
          prefetch(t.source);
        }
      }
      if (one) fetch(place, about & 16 ? p.v_rows.end : p.k_rows.end, (about >> 20) - (7 - groups), buffer);
      if (busy) {
        if (one) {
          ptx::cp_async_wait_group<1>();
        } else {
          ptx::cp_async_wait_group<0>();
        }
        __syncwarp();
        pack(other(buffer), arriving_about % 16, arriving_about & 16 ? C::v_chunks : C::k_chunks,
             static_cast<unsigned char*>(p.packing.workspace) + arriving_to * uint64_t{16});
        if (arriving_about >= 32) announce(p.packing, arriving_about / 32, 8, lane);
      } else if (queries) {
        pack_tile_queries();
        next_tile();
      } else if (!one) {
        // Nothing is left to take, now at least.
        if (i == 0) return;
        ptx::mbarrier_wait(shared.q_empty(count % C::q_slots), queries_parity());
        __syncwarp();
      }
      busy = one;
      if (one && about >> 20 > 64) {
        // The rest of a ticket of which no row needs to be looked at: nothing but copies and shifts.
        const bool values = about & 16;
        const int64_t pitch = (values ? p.v_rows.seq : p.k_rows.seq) * 2;
        const int chunks = values ? C::v_chunks : C::k_chunks;
        uint32_t offset = static_cast<uint32_t>(place) % 16;
        while (groups > 0 && (groups % 2 != 0 || !queries_next())) {
          buffer = other(buffer);
          place += static_cast<uint64_t>(pitch);
          fetch_whole(place, buffer);
          ptx::cp_async_wait_group<1>();
          __syncwarp();
          pack(other(buffer), offset, chunks, static_cast<unsigned char*>(p.packing.workspace) + to * uint64_t{16});
          to += 8 * chunks;
          offset = static_cast<uint32_t>(place) % 16;
          --groups;
        }
      }
      arriving_to = to;
      arriving_about = (about & (groups > 0 ? 16 : 0xfffff)) + static_cast<uint32_t>(place) % 16;
    }
  }

  __device__ __forceinline__ uint32_t other(uint32_t buffer) const { return 2 * raw + C::raw_bytes - buffer; }

  // The lines of 64 rows, into L2: the copies that follow one another wait for it alone.
  __device__ __forceinline__ void prefetch(const Source& source) const {
#pragma unroll 1
    for (int row = lane; row < min(source.valid, 64); row += 32) {
      const uint64_t from = source.from + static_cast<uint64_t>(row * source.pitch);
#pragma unroll
      for (int at = 0; at < C::v_chunks * 16; at += 128) {
        ptx::prefetch_l2(reinterpret_cast<const void*>(from + min(at, p.head_dim * 2 - 1)));
      }
    }
  }

  // Where this lane's chunks of a group begin, before it is rounded down to a multiple of 16.
  __device__ __forceinline__ uint64_t place_in(const Source& source) const {
    return source.from + static_cast<uint64_t>(lane / 4 * 8 * source.pitch) + lane % 4 * 16;
  }
  // Whether the copies of so many groups, each one row further, stay inside of the tensor and of rows that there are.
  __device__ __forceinline__ bool inside(const Source& source, int groups) const {
    const uint64_t last = source.from + static_cast<uint64_t>((55 + groups) * source.pitch);
    return source.valid >= 55 + groups + 1 && max(source.from, last) + C::raw_chunks * 16 <= source.end;
  }

  // Starts the copy of eight rows' raw chunks; of rows that there are not, zeros.
  __device__ __forceinline__ void fetch(uint64_t place, uint64_t end, int valid, uint32_t buffer) const {
    if (valid > 64) {
      fetch_whole(place, buffer);
    } else {
      const int bytes = static_cast<uint32_t>(place) % 16 + p.head_dim * 2;
      const uint64_t at = place & ~uint64_t{15};
      const uint32_t to = buffer + lane / 4 * C::raw_pitch + lane % 4 * 16;
      // What the tensor has of it: its last chunk may reach past its end.
      const int there = lane / 4 * 8 < valid && at < end ? static_cast<int>(min(end - at, uint64_t{4096})) : 0;
#pragma unroll 1
      for (int k = 0; (lane % 4 + 4 * k) * 16 < bytes; ++k) {
        const int size = max(min(there - k * 64, 16), 0);
        if (size % 16 == 0) {
          ptx::cp_async_cg_16(to + k * 64, reinterpret_cast<const void*>(at + k * 64), size);
        } else {
          // The tensor ends within: not even the machine's 16 bytes are read of what is not there.
          *static_cast<uint4*>(__cvta_shared_to_generic(to + k * 64)) = EightRows<C>::load_chunk(at + k * 64, true, end);
        }
      }
      ptx::cp_async_commit_group();
    }
  }
  // All of eight rows and of their chunks are there.
  __device__ __forceinline__ void fetch_whole(uint64_t place, uint32_t buffer) const {
    const int bytes = static_cast<uint32_t>(place) % 16 + p.head_dim * 2;
    const uint64_t at = place & ~uint64_t{15};
    const uint32_t to = buffer + lane / 4 * C::raw_pitch + lane % 4 * 16;
#pragma unroll
    for (int k = 0; k < (C::raw_chunks + 3) / 4; ++k) {
      if (k < EightRows<C>::whole_steps || (lane % 4 + 4 * k) * 16 < bytes) {
        ptx::cp_async_cg_16(to + k * 64, reinterpret_cast<const void*>(at + k * 64));
      }
    }
    ptx::cp_async_commit_group();
  }

  // Shifts what has arrived to its place. Then the buffer may be overwritten.
  __device__ __forceinline__ void pack(uint32_t buffer, uint32_t offset, int chunks, unsigned char* to) const {
    const EightRows<C> rows{lane, p.head_dim};
    const uint32_t from = buffer + rows.row() * C::raw_pitch + rows.first_chunk() * 16;
    const auto low = [&](int k) { return *static_cast<const uint4*>(__cvta_shared_to_generic(from + k * 64)); };
    const auto high = [&](int k) { return *static_cast<const uint4*>(__cvta_shared_to_generic(from + k * 64 + 16)); };
    rows.shift(low, high, offset, chunks, to);
    __syncwarp();
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
