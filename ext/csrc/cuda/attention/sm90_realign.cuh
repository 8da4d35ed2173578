// The producer of a Hopper flash kernel for rows that start anywhere (head_dim 129, and whatever else TMA cannot read:
// it wants multiples of 16 bytes, also within a row). Four warps: two share the work on K, two on V and Q, 64 rows of a
// tile at a time.
//
//   raw      64 rows arrive as they lie in global memory, by one bulk copy of whole 16-byte chunks where rows follow one
//            another, else by one a row; the barrier raw_full
//   realign  each warp takes every other four of eight rows, shifts them to their place and stores them
//   paired   a warp sends what it has realigned to the other block of the cluster, by one bulk copy
//   both     warps meet at a named barrier: raw may be overwritten
//
// Rows r, r + 8, .. are equally far from a multiple of 16 bytes, whatever their pitch. A warp shifts eight of them at once,
// four lanes a row, by a distance known at compile time. To have lanes that load without bank conflicts (rows eight apart
// begin in different banks where head_dim is odd) store without conflicts as well, rows eight apart become neighbours:
// row r of 64 goes to place 8 (r % 8) + r / 8. Keys may come in any order, if V's do in the same; masks and outputs know
// the order (realigned_row).
//
// The tiles are core matrices of 8 rows by 16 bytes, without swizzle: [8 rows][chunk][row]: a warp's rows are one run of
// memory, and no column is wasted.
// Included by sm90_flash.cuh, whose Layout and tiles it needs.
#pragma once

#include <cstdint>

#include "../ptx/barrier.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/fence.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/tma.cuh"

namespace cuda_llm_ops::cuda::sm90::flash {

// The row, of 64, at a place of a realigned tile.
__host__ __device__ constexpr int realigned_row(int place) { return place % 8 * 8 + place / 8; }

template <typename C>
struct Realigner {
  static constexpr int passes = C::realign_passes, rows = 64;

  // 64 rows of a tile; of which this warp has 32.
  struct Job {
    uint32_t from;  // elements from the tensor's start to the first row
    uint32_t to;    // of this warp's first place in its tile
    uint32_t full;  // the tile's barrier
    int valid;      // rows inside the sequence; the others become zeros
    bool query, first, parity;
  };

  const Parameters& p;
  const Layout<C>& shared;
  const int half, lane;  // half: which of the two warps
  const bool values;     // of V and Q, else of K
  const uint32_t raw, raw_full;
  // The walk through the tiles.
  int i = 0, next = 0, jobs = 0;
  uint32_t q_from = 0, from = 0;  // of the tile's queries; of the next job's keys
  int q_row = 0, key = 0;         // the same, in rows
  uint32_t count = 0;
  bool q_parity = true;

  __device__ __forceinline__ Realigner(const Parameters& parameters, const Layout<C>& layout, int warp)
      : p(parameters),
        shared(layout),
        half(warp % 2),
        lane(threadIdx.x % 32),
        values(warp >= 2),
        raw(layout.raw + warp / 2 * C::raw_bytes),
        raw_full(layout.raw_full(warp / 2)) {}

  __device__ __forceinline__ void run() {
    Job job, following;
    bool more = advance(job);
    if (more) fetch(job);
    for (bool parity = false; more; parity = !parity) {
      more = advance(following);
      ptx::mbarrier_wait(raw_full, parity);
      if (job.first) {
        const uint32_t empty = job.full + C::stages * 8;
        if constexpr (C::cluster == 1) {
          ptx::mbarrier_wait(empty, job.parity);
        } else {
          ptx::mbarrier_wait_cluster(empty, job.parity);
        }
      }
      realign(job, [&] {
        // All raw rows are in registers.
        ptx::fence_proxy_async_shared();
        ptx::bar_sync(realign_barrier + values, 64);
        if (more) fetch(following);
      });
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0) hand_over(job);
      job = following;
    }
  }

  __device__ __forceinline__ void hand_over(const Job& job) const {
    if (C::cluster == 1 || job.query) {
      ptx::mbarrier_arrive(job.full);
    } else {
      const uint32_t bytes = 4 * (values ? C::v_chunks : C::k_chunks) * 128;
      ptx::mbarrier_arrive_expect_tx(job.full, bytes);  // the other block's
      const uint32_t peer = ptx::cluster_ctarank() ^ 1;
      ptx::bulk_copy_to_cluster(ptx::mapa(job.to, peer), job.to, bytes, ptx::mapa(job.full, peer));
    }
  }

  // The warp's next job, false when there is none left.
  __device__ __forceinline__ bool advance(Job& job) {
    while (next == jobs) {
      const Tile tile = tile_at<C::cluster>(p, i++);
      if (!tile.valid) return false;
      if (tile.m < 0) continue;
      const int blocks = key_blocks<C::block_n>(p, min((tile.m + 1) * (C::block_m * C::cluster), p.seq_q));
      const int rank = cluster_rank<C>();
      q_row = (tile.m * C::cluster + rank) * C::block_m;
      q_from = offset(p.q_rows, tile.batch, tile.head, q_row);
      key = (blocks - 1) * C::block_n + rank * 64;
      from = offset(values ? p.v_rows : p.k_rows, tile.batch, tile.head / p.group, key);
      next = values ? -C::q_tiles : 0;
      jobs = blocks * passes;
    }
    job.query = next < 0;
    if (job.query) {
      const int n = next++ + C::q_tiles;
      job.from = q_from;
      job.valid = min(max(p.seq_q - q_row, 0), rows);
      job.to = shared.q + n * C::q_bytes + half * (4 * C::k_chunks * 128);
      job.full = shared.q_full(n);
      job.first = true;
      job.parity = q_parity;
      if (n == C::q_tiles - 1) q_parity = !q_parity;
      q_from += static_cast<uint32_t>(p.q_rows.seq) * rows;
      q_row += rows;
      return true;
    }
    const uint32_t stage = ring_stage<C::stages>(count);
    const int pass = passes == 1 ? 0 : next % passes;
    job.from = from;
    job.valid = min(max(p.seq_kv - key, 0), rows);
    const int at = cluster_rank<C>() * 64 + pass * 64 + half * 32;
    job.to = values ? shared.v + stage * C::v_bytes + at * (C::v_chunks * 16)
                    : shared.k + stage * C::k_bytes + at * (C::k_chunks * 16);
    job.full = values ? shared.v_full(stage) : shared.k_full(stage);
    job.parity = ring_parity<C::stages>(count) == 0;
    job.first = pass == 0;
    ++next;
    const int step = pass == passes - 1 ? rows * (passes - 1) + C::block_n : -rows;
    if (pass == passes - 1) ++count;
    from -= static_cast<uint32_t>(values ? p.v_rows.seq : p.k_rows.seq) * step;
    key -= step;
    return true;
  }

  // Fits: every offset into a tensor does.
  __device__ __forceinline__ uint32_t offset(const Rows& source, int batch, int head, int row) const {
    return static_cast<uint32_t>(batch * source.batch + head * source.head + row * source.seq);
  }

  __device__ __forceinline__ uint64_t address(const Job& job) const {
    const void* const start = job.query ? p.q_rows.pointer : values ? p.v_rows.pointer : p.k_rows.pointer;
    return reinterpret_cast<uint64_t>(start) + static_cast<int64_t>(static_cast<int32_t>(job.from)) * 2;
  }

  __device__ __forceinline__ int64_t pitch_of(const Job& job) const {
    return (job.query ? p.q_rows.seq : values ? p.v_rows.seq : p.k_rows.seq) * 2;
  }

  // Whether rows follow one another in global memory, and so in `raw`.
  __device__ __forceinline__ bool together(int64_t pitch) const { return pitch == p.head_dim * 2; }

  // Starts the copy of the raw rows, whole chunks of 16 bytes, but none past the tensor's end. Where rows do not follow
  // one another they are put in the order of their places, an odd number of chunks apart.
  __device__ __forceinline__ void fetch(const Job& job) const {
    const uint32_t bytes = p.head_dim * 2;
    const int64_t pitch = pitch_of(job);
    const uint64_t end = job.query ? p.q_rows.end : values ? p.v_rows.end : p.k_rows.end;
    if (together(pitch)) {
      if (lane == 0) {
        const uint64_t first = address(job);
        const uint32_t size = half == 0 && job.valid > 0 ? whole_chunks(raw, first, bytes * job.valid, end) : 0;
        announce(size);
        if (size > 0) ptx::bulk_load(raw, reinterpret_cast<const void*>(first & ~uint64_t{15}), size, raw_full);
      }
    } else {
      const int place = half * 32 + lane, mine = realigned_row(place);
      const uint32_t to = raw + place * C::raw_pitch;
      const uint64_t row = address(job) + static_cast<uint64_t>(mine * pitch);
      const uint32_t size = mine < job.valid ? whole_chunks(to, row, bytes, end) : 0;
      const uint32_t all = __reduce_add_sync(0xffffffffu, size);
      if (lane == 0) announce(all);
      __syncwarp();
      if (size > 0) ptx::bulk_load(to, reinterpret_cast<const void*>(row & ~uint64_t{15}), size, raw_full);
    }
  }

  __device__ __forceinline__ void announce(uint32_t bytes) const {
    if (bytes > 0) {
      ptx::mbarrier_arrive_expect_tx(raw_full, bytes);
    } else {
      ptx::mbarrier_arrive(raw_full);
    }
  }

  // The bytes of the chunks that `bytes` from `row` on lie in. A chunk that reaches past the tensor's end is not among
  // them: what the tensor has of it is copied here.
  __device__ __forceinline__ uint32_t whole_chunks(uint32_t to, uint64_t row, uint32_t bytes, uint64_t end) const {
    const uint64_t first = row & ~uint64_t{15};
    uint32_t size = (static_cast<uint32_t>(row - first) + bytes + 15u) & ~15u;
    if (first + size > end) {
      size -= 16;
      for (uint32_t k = 0; k < end % 16; k += 2) {
        *static_cast<uint16_t*>(__cvta_shared_to_generic(to + size + k)) =
            *reinterpret_cast<const uint16_t*>(first + size + k);
      }
    }
    return size;
  }

  __device__ __forceinline__ uint4 load(uint32_t address) const {
    return *static_cast<const uint4*>(__cvta_shared_to_generic(address));
  }
  __device__ __forceinline__ void store(uint32_t address, uint4 x) const {
    *static_cast<uint4*>(__cvta_shared_to_generic(address)) = x;
  }

  static constexpr int each = C::v_chunks / 4, extra = C::v_chunks % 4, most = each + (extra > 0);  // chunks of a lane

  // Calls `read` when all raw rows are in registers.
  template <typename Read>
  __device__ __forceinline__ void realign(const Job& job, const Read& read) const {
    const bool run = together(pitch_of(job));
    const uint32_t group_bytes = (values && !job.query ? C::v_chunks : C::k_chunks) * 128;
    const uint32_t start = static_cast<uint32_t>(address(job)), pitch = static_cast<uint32_t>(pitch_of(job));
    const int quarter = lane / 8, first = quarter * each + min(quarter, extra);
#pragma unroll 1
    for (int s = 0; s < 4; ++s) {
      const int residue = half * 4 + s, mine = residue + lane % 8 * 8;
      const uint32_t off = (start + residue * pitch) % 16;  // of all eight rows
      uint32_t from = run ? raw + (start % 16 + mine * pitch) / 16 * 16
                          : raw + (residue * 8 + lane % 8) * C::raw_pitch;
      from = mine < job.valid ? from + first * 16 : shared.zeros;
      uint32_t z[(most + 1) * 4 + 1];
#pragma unroll
      for (int k = 0; k <= most; ++k) {
        const uint4 x = load(from + k * 16);
        z[4 * k] = x.x;
        z[4 * k + 1] = x.y;
        z[4 * k + 2] = x.z;
        z[4 * k + 3] = x.w;
      }
      if (s == 3) read();
      const uint32_t to = job.to + s * group_bytes + lane % 8 * 16 + first * 128;
      switch (off / 2) {
        case 0: shift<0, false>(z, to, first); break;
        case 1: shift<0, true>(z, to, first); break;
        case 2: shift<1, false>(z, to, first); break;
        case 3: shift<1, true>(z, to, first); break;
        case 4: shift<2, false>(z, to, first); break;
        case 5: shift<2, true>(z, to, first); break;
        case 6: shift<3, false>(z, to, first); break;
        default: shift<3, true>(z, to, first); break;
      }
    }
  }

  // This lane's chunks, of which the first is its row's `first`: the row starts Words words, and half a word if Half,
  // into the first of z.
  template <int Words, bool Half>
  __device__ __forceinline__ void shift(const uint32_t (&z)[(most + 1) * 4 + 1], uint32_t to, int first) const {
    const int whole = p.head_dim / 8, left = p.head_dim % 8;
    const bool longer = lane / 8 < extra || extra == 0;
#pragma unroll
    for (int k = 0; k < most; ++k) {
      uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * k + j + Words;
        w[j] = Half ? __funnelshift_r(z[at], z[at + 1], 16) : z[at];
      }
      // What is past the row's end is another row's: zeros in its stead, also because 0 times NaN is NaN.
      if (first + k == whole) {
#pragma unroll
        for (int j = 0; j < 4; ++j) w[j] &= left <= 2 * j ? 0u : left == 2 * j + 1 ? 0xffffu : 0xffffffffu;
      }
      if ((k < each || longer) && first + k < whole + (left > 0)) {
        store(to + k * 128, make_uint4(w[0], w[1], w[2], w[3]));
      }
    }
  }
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
