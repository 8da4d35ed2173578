// Rows that TMA cannot read (it wants multiples of 16 bytes, also within a row), brought to where one bulk copy can read
// them, by the kernel that uses them.
//
//   packers    three warps beside the producing one. They take 64 rows of K or V at a time, by a ticket, in the order in
//              which tiles are wanted; the raw 16-byte chunks of eight rows come by cp.async, are shifted to their place
//              and go to a workspace in global memory that holds tiles as shared memory will (below). A counter for each
//              tile (or a few) says how many of its rows are there. The queries of their block's next tile they put
//              into shared memory themselves, between two groups of eight rows if need be: consumers wait for them.
//   producer   one thread waits for a tile's counter, and brings the tile by one bulk copy
//   consumers  begin with the queries of their block's first tile, and with a few tickets that one addition took for
//              the whole block, eight rows of each for every warp: at the start nothing else is there for them to do
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
#include "../ptx/fence.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/special_registers.cuh"
#include "../ptx/tma.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

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
struct Seen {
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
  Seen window;
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

// Eight rows, a warp's work at a time: four lanes a row. Of the chunks that are inside of every row a lane has a run, and of
// those behind them every fourth.
template <typename C>
struct EightRows {
  static constexpr int whole = C::least_head_dim / 32;            // chunks of a run
  static constexpr int tail = (C::k_chunks + 3) / 4 - whole;      // a lane's, behind the runs
  uint4 run[whole + 1], low[tail], high[tail];  // as they lie in memory from a multiple of 16 bytes on

  static __device__ __forceinline__ uint4 chunk_at(uint64_t at) { return __ldg(reinterpret_cast<const uint4*>(at)); }

  __device__ __forceinline__ void load_tail(uint64_t from, int lane, int head_dim) {
    const uint64_t first = from & ~uint64_t{15};
    const int bytes = static_cast<uint32_t>(from) % 16 + head_dim * 2;
#pragma unroll
    for (int t = 0; t < tail; ++t) {
      const int chunk = lane / 8 + 4 * (whole + t);
      if (chunk * 8 < head_dim) low[t] = chunk_at(first + chunk * 16);
      if (chunk * 16 + 16 < bytes) high[t] = chunk_at(first + chunk * 16 + 16);
    }
  }
  // from: where this lane's row begins.
  __device__ __forceinline__ void load(uint64_t from, int lane, int head_dim) {
    load_tail(from, lane, head_dim);
    if constexpr (whole > 0) {
      const uint64_t first = (from & ~uint64_t{15}) + lane / 8 * (whole * 16);
#pragma unroll
      for (int k = 0; k <= whole; ++k) run[k] = chunk_at(first + k * 16);
    }
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k <= whole; ++k) run[k] = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int t = 0; t < tail; ++t) low[t] = high[t] = make_uint4(0, 0, 0, 0);
  }

  // Writes them to their places; `to`: the core matrices of these rows. `offset` bytes of a row's first chunk are not the
  // row's.
  __device__ __forceinline__ void place(uint32_t offset, int chunks, unsigned char* to, int lane, int head_dim) const {
    const uint32_t bits = (offset & 2) * 8;
    switch (offset / 4) {
      case 0: place_words<0>(bits, chunks, to, lane, head_dim); break;
      case 1: place_words<1>(bits, chunks, to, lane, head_dim); break;
      case 2: place_words<2>(bits, chunks, to, lane, head_dim); break;
      default: place_words<3>(bits, chunks, to, lane, head_dim); break;
    }
  }
  template <int Words>
  static __device__ __forceinline__ uint4 shifted(const uint4& l, const uint4& h, uint32_t bits) {
    const uint32_t z[9] = {l.x, l.y, l.z, l.w, h.x, h.y, h.z, h.w, 0};
    return make_uint4(__funnelshift_r(z[Words], z[Words + 1], bits), __funnelshift_r(z[Words + 1], z[Words + 2], bits),
                      __funnelshift_r(z[Words + 2], z[Words + 3], bits), __funnelshift_r(z[Words + 3], z[Words + 4], bits));
  }
  template <int Words>
  __device__ __forceinline__ void place_words(uint32_t bits, int chunks, unsigned char* to, int lane, int head_dim) const {
    if constexpr (whole > 0) {
      unsigned char* const mine = to + (lane / 8 * (whole * 8) + lane % 8) * 16;
#pragma unroll
      for (int k = 0; k < whole; ++k) {
        *reinterpret_cast<uint4*>(mine + k * 128) = shifted<Words>(run[k], run[k + 1], bits);
      }
    }
#pragma unroll
    for (int t = 0; t < tail; ++t) {
      const int chunk = lane / 8 + 4 * (whole + t);
      if (chunk >= chunks) break;
      // What is past the row's end is another row's: zeros in its stead, also because 0 times NaN is NaN.
      uint4 x = shifted<Words>(low[t], high[t], bits);
      const int left = (head_dim - chunk * 8) * 16;  // bits
      x.x &= __funnelshift_lc(~0u, 0, max(left, 0));
      x.y &= __funnelshift_lc(~0u, 0, max(left - 32, 0));
      x.z &= __funnelshift_lc(~0u, 0, max(left - 64, 0));
      x.w &= __funnelshift_lc(~0u, 0, max(left - 96, 0));
      *reinterpret_cast<uint4*>(to + lane * 16 + (whole + t) * 512) = x;
    }
  }

  // At the end of the tensor: element by element. from: of this lane's row, 0 if there is none.
  static __device__ __forceinline__ void place_slowly(uint64_t from, int chunks, unsigned char* to, int lane, int head_dim) {
#pragma unroll 1
    for (int chunk = lane / 8; chunk < chunks; chunk += 4) {
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = chunk * 8 + 2 * j;
        const uint16_t* const at = reinterpret_cast<const uint16_t*>(from) + column;
        const uint32_t l = from != 0 && column < head_dim ? __ldg(at) : 0;
        const uint32_t h = from != 0 && column + 1 < head_dim ? __ldg(at + 1) : 0;
        x[j] = l | h << 16;
      }
      *reinterpret_cast<uint4*>(to + (chunk * 8 + lane % 8) * 16) = make_uint4(x[0], x[1], x[2], x[3]);
    }
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

// Eight rows from global memory at once, for warps with registers to spare: whatever their alignment, the same few
// instructions, since at the start each comes from far away. A lane reads three times 8 bytes for each 16 that it packs.
template <typename C>
struct Window {
  static constexpr int whole_steps = EightRows<C>::whole, steps = whole_steps + EightRows<C>::tail;
  uint64_t from = 0;            // of this lane's row and first chunk
  unsigned char* to = nullptr;  // this lane's place
  uint32_t chunks = 0;          // of a row; 0: there is nothing to do
  bool inside = false;          // of the tensor, for all lanes
  uint2 z[steps][3];

  // The group of rows begins at source.from.
  __device__ __forceinline__ void load(const Source& source, unsigned char* group, uint32_t group_chunks, int lane,
                                       int head_dim) {
    const bool valid = lane % 8 * 8 < source.valid;
    from = source.from + static_cast<uint64_t>(lane % 8 * 8 * source.pitch) + lane / 8 * 16;
    to = group + lane * 16;
    chunks = group_chunks;
    inside = __all_sync(0xffffffffu, !valid || from + (64 * steps + 8) <= source.end);
    if (chunks == 0) return;
    const uint64_t first = ptx::opaque(from & ~uint64_t{7});
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      const bool wanted = valid && inside && (k < whole_steps || (lane / 8 + 4 * k) * 8 < head_dim);
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        z[k][j] = make_uint2(0, 0);
        if (wanted) z[k][j] = __ldg(reinterpret_cast<const uint2*>(first + (k * 64 + j * 8)));
      }
    }
    if (!inside) from = valid ? from : 0;
  }

  __device__ __forceinline__ void place(int lane, int head_dim) const {
    if (chunks == 0) return;
    if (__builtin_expect(!inside, false)) {
      place_slowly(lane, head_dim);
      return;
    }
    const bool odd_word = from & 4;
    const uint32_t bits = (static_cast<uint32_t>(from) & 2) * 8;
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      const uint32_t chunk = lane / 8 + 4 * k;
      if (k >= whole_steps && chunk >= chunks) break;
      const uint32_t words[6] = {z[k][0].x, z[k][0].y, z[k][1].x, z[k][1].y, z[k][2].x, z[k][2].y};
      uint32_t y[5], x[4];
#pragma unroll
      for (int j = 0; j < 5; ++j) y[j] = odd_word ? words[j + 1] : words[j];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = __funnelshift_r(y[j], y[j + 1], bits);
      if (k >= whole_steps) {
        const int left = (head_dim - static_cast<int>(chunk) * 8) * 16;
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] &= __funnelshift_lc(~0u, 0, max(left - 32 * j, 0));
      }
      *reinterpret_cast<uint4*>(to + k * 512) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
  // At the end of the tensor: element by element.
  __device__ __forceinline__ void place_slowly(int lane, int head_dim) const {
#pragma unroll 1
    for (int k = 0; k < steps; ++k) {
      const int column = (lane / 8 + 4 * k) * 8;
      if (column / 8 >= static_cast<int>(chunks)) break;
      uint32_t x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint16_t* const at = reinterpret_cast<const uint16_t*>(from) + k * 32 + 2 * j;
        const uint32_t low = from != 0 && column + 2 * j < head_dim ? __ldg(at) : 0;
        const uint32_t high = from != 0 && column + 2 * j + 1 < head_dim ? __ldg(at + 1) : 0;
        x[j] = low | high << 16;
      }
      *reinterpret_cast<uint4*>(to + k * 512) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
};

// What a consumer warp packs before its first tile: two of its warpgroup's eight groups of queries, and of each of its
// block's first tickets one group. What other blocks wait for goes first.
template <typename C>
struct Beginner {
  const Parameters& p;
  const Tile& tile;
  const uint32_t first_ticket, queries;
  const int first_row, warp, lane;  // of the queries; of all consumers' warps

  // One group of it.
  __device__ __forceinline__ uint32_t load_ticket(Window<C>& z, uint32_t ticket) const {
    const Packing& w = p.packing;
    Ticket t = read_ticket<C>(p, min(ticket, w.tickets - 1));
    const uint32_t chunks = t.values ? C::v_chunks : C::k_chunks;
    t.source.from += static_cast<uint64_t>(warp * t.source.pitch);
    t.source.valid -= warp;
    z.load(t.source, static_cast<unsigned char*>(w.workspace) + (t.to + warp * 8 * chunks) * uint64_t{16},
           ticket < w.tickets ? chunks : 0, lane, p.head_dim);
    return t.counter;
  }
  __device__ __forceinline__ void load_queries(Window<C>& z, int group) const {
    const int row = first_row + group;
    z.load({address_of(p.q_rows, tile.batch, tile.head, row), p.q_rows.seq * 2, p.q_rows.end, p.seq_q - row},
           generic_of_shared(queries + group * (C::k_chunks * 128)), tile.valid ? C::k_chunks : 0, lane, p.head_dim);
  }

  __device__ __forceinline__ void run() const {
    const int tickets = p.packing.tickets > 0 ? p.packing.first_tickets : 0;
    Window<C> rows, q[2];
    uint32_t counter = tickets > 0 ? load_ticket(rows, first_ticket) : 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) load_queries(q[h], warp % 4 * 2 + h);
    for (int i = 0; i < max(tickets, 1); ++i) {
      const uint32_t now = counter;
      const bool some = tickets > 0 && rows.chunks > 0;
      if (some) rows.place(lane, p.head_dim);
      if (i + 1 < tickets) counter = load_ticket(rows, first_ticket + i + 1);
      if (i == 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) q[h].place(lane, p.head_dim);
      }
      if (some) announce(p.packing, now, 1, lane);
    }
  }
};

template <typename C>
struct Packer {
  static constexpr int q_groups = C::block_m / 8;
  static constexpr uint32_t none = ~0u;

  const Parameters& p;
  const Layout<C>& shared;
  const int lane;
  uint32_t taken = none;  // in lane 0 the next ticket, if there is one

  // What is looked at between groups of rows only, and would take registers from them: in shared memory.
  struct __align__(16) Kept {
    int i;              // the walk through this block's tiles: the queries of tile i - 1 are the next; 0 at its end
    int count;          // tiles before this one
    uint32_t now;       // the tickets that the tile before it needs; all, where there is none
    uint32_t position;  // all tickets before are taken
    uint32_t limit;     // the tickets that it needs
    uint32_t ticket;    // at hand
    int done;           // groups of it
  };
  __device__ __forceinline__ volatile Kept& kept() const {
    return *static_cast<volatile Kept*>(__cvta_shared_to_generic(shared.kept() + packer() * 32));
  }
  template <typename T>
  __device__ __forceinline__ void keep(volatile T& where, T value) const {
    __syncwarp();
    if (lane == 0) where = value;
    __syncwarp();
  }

  __device__ __forceinline__ Packer(const Parameters& parameters, const Layout<C>& layout)
      : p(parameters), shared(layout), lane(threadIdx.x % 32) {}

  static __device__ __forceinline__ int packer() { return ptx::fresh_tid_x() / 32 - (4 * C::consumers + 1); }

  __device__ __forceinline__ void next_tile() {
    volatile Kept& k = kept();
    int i = k.i;
    Tile tile;
    do {
      tile = tile_at<C>(p, i++);
    } while (tile.valid && tile.m < 0);
    const int count = k.count + 1;
    const uint32_t limit = tile.valid ? tickets_of<C>(p, tile) : p.packing.tickets;
    __syncwarp();
    if (lane == 0) {
      k.now = k.limit;
      k.limit = limit;
      k.count = count;
      k.i = tile.valid ? i : 0;
    }
    __syncwarp();
    if (tile.valid && count > 0) prefetch_queries(tile);
  }

  // This warp's rows of queries, which are wanted soon after there is room for them, into L2.
  __device__ __forceinline__ void prefetch_queries(const Tile& tile) const {
    const int warp = packer(), first_row = tile.m * C::block_m;
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
  static __device__ __forceinline__ uint32_t queries_parity(uint32_t count) { return count / C::q_slots & 1 ^ 1; }
  __device__ __forceinline__ bool queries_next() const {
    const uint4 k = *const_cast<const uint4*>(reinterpret_cast<const volatile uint4*>(&kept()));
    return k.x > 0 && k.w >= k.z &&
           __all_sync(0xffffffffu, ptx::mbarrier_test_wait(shared.q_empty(k.y % C::q_slots), queries_parity(k.y)));
  }

  // A run of groups of eight rows of 64: of K or V for the workspace, or of queries for shared memory.
  enum Kind { queries, later_queries, keys, values, nothing };  // queries: of the first 64, and of the others
  struct Job {
    uint64_t from;      // this lane's row of the next group
    int32_t pitch;      // bytes from it to the group after it
    unsigned char* to;  // the next group's place
    int valid;          // rows from this lane's on that there are; 0 or less: its is none
    int left;           // groups, of which every step-th is this warp's
    Kind kind;
  };
  static __device__ __forceinline__ int step_of(Kind kind) { return kind <= later_queries ? packers : 1; }
  static __device__ __forceinline__ int chunks_of(Kind kind) { return kind == values ? C::v_chunks : C::k_chunks; }

  __device__ __forceinline__ void pack_group(const Job& job) const {
    const int lane = ptx::opaque(this->lane) & 31;  // what is computed from it would take registers from one group to the next
    constexpr int reach = 64 * (EightRows<C>::whole + EightRows<C>::tail) + 32;
    const bool valid = job.valid > 0;
    const uint64_t end = job.kind <= later_queries ? p.q_rows.end : job.kind == keys ? p.k_rows.end : p.v_rows.end;
    const bool inside = job.from + reach <= end;
    EightRows<C> rows;
    if (__all_sync(0xffffffffu, valid && inside)) {
      rows.load(job.from, lane, p.head_dim);
    } else if (__all_sync(0xffffffffu, !valid || inside)) {
      rows.clear();
      if (valid) rows.load(job.from, lane, p.head_dim);
    } else {
      EightRows<C>::place_slowly(valid ? job.from : 0, chunks_of(job.kind), job.to, lane, p.head_dim);
      return;
    }
    rows.place(static_cast<uint32_t>(job.from) % 16, chunks_of(job.kind), job.to, lane, p.head_dim);
  }

  __device__ __forceinline__ Job job_of(const Source& source, unsigned char* to, int begin, Kind kind) const {
    return {source.from + static_cast<uint64_t>((lane % 8 * 8 + begin) * source.pitch),
            static_cast<int32_t>(source.pitch * step_of(kind)),
            to + begin * 128 * chunks_of(kind),
            source.valid - begin - lane % 8 * 8,
            8 - begin,
            kind};
  }
  __device__ __forceinline__ Job job_of_ticket(uint32_t ticket, int done) const {
    const Ticket t = read_ticket<C>(p, ticket);
    if (done == 0) prefetch(t.source);
    return job_of(t.source, static_cast<unsigned char*>(p.packing.workspace) + t.to * uint64_t{16}, done, t.values ? values : keys);
  }
  __device__ __forceinline__ Job job_of_queries(Kind kind) const {
    const int half = kind == later_queries;
    const Tile tile = tile_at<C>(p, kept().i - 1);
    const int slot = kept().count % C::q_slots, row = tile.m * C::block_m + half * 64;
    return job_of({address_of(p.q_rows, tile.batch, tile.head, row), p.q_rows.seq * 2, p.q_rows.end, p.seq_q - row},
                  generic_of_shared(shared.q + (slot * C::q_tiles + half) * C::q_bytes),
                  half == 0 ? packer() : packers - 1 - packer(), kind);
  }

  // The lines of 64 rows, into L2: the loads that follow one another wait for it alone.
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

  // What the tile before needs goes first. Then queries as soon as there is room for them, for consumers may wait for
  // them; else tickets up to what these queries' tile needs; at the end all that are left.
  __device__ __forceinline__ void run() {
    if (p.packing.tickets > 0) taken = claim_ticket(p.packing, lane);
    volatile Kept& k = kept();
    if (lane == 0) {
      k.i = k.done = 0;
      k.now = k.position = k.limit = 0;
      k.count = -1;
      k.ticket = none;
    }
    __syncwarp();
    for (;;) {
      Job job;
      job.kind = nothing;
      if (queries_next()) {
        job = job_of_queries(queries);
      } else {
        if (k.ticket == none) {
          uint32_t ticket = __shfl_sync(0xffffffffu, taken, 0);
          const uint32_t limit = k.limit;
          if (ticket == none && k.position < limit) ticket = __shfl_sync(0xffffffffu, claim_ticket(p.packing, lane), 0);
          taken = none;
          __syncwarp();
          if (lane == 0) {
            if (ticket != none) k.position = ticket + 1;
            k.ticket = ticket < p.packing.tickets ? ticket : none;
            k.done = 0;
          }
          __syncwarp();
          if (ticket < p.packing.tickets && ticket + 1 < limit) taken = claim_ticket(p.packing, lane);
        }
        if (k.ticket != none) {
          job = job_of_ticket(k.ticket, k.done);
        } else if (k.count >= 0) {
          // Nothing is left to take, now at least.
          if (k.i == 0) return;
          ptx::mbarrier_wait(shared.q_empty(k.count % C::q_slots), queries_parity(k.count));
          __syncwarp();
          continue;
        }
      }
      if (job.kind != nothing) {
        for (;;) {
          pack_group(job);
          job.left -= step_of(job.kind);
          job.from += static_cast<uint64_t>(job.pitch);
          job.valid -= step_of(job.kind);
          job.to += step_of(job.kind) * 128 * chunks_of(job.kind);
          if (job.left <= 0) {
            if (job.kind != queries) break;
            job = job_of_queries(later_queries);
          } else if (job.kind >= keys && job.left % 2 == 0 && queries_next()) {
            break;  // a ticket is left for queries that there is room for
          }
        }
      }
      if (job.kind <= later_queries) {
        ptx::fence_proxy_async_shared();
        ptx::mbarrier_arrive(shared.q_full(k.count % C::q_slots));
        next_tile();
      } else if (job.kind != nothing) {
        if (job.left == 0) {
          announce(p.packing, read_ticket<C>(p, k.ticket).counter, 8, lane);
          keep(k.ticket, none);
        } else {
          keep(k.done, 8 - job.left);
        }
      }
      if (k.count < 0) {
        // The first ticket comes before everything. Then the first tile, whose queries are the consumers' work; half of
        // what it needs comes before the second's queries.
        next_tile();
        if (k.i > 0) {
          keep(k.limit, k.limit / 2);
          next_tile();
        }
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
