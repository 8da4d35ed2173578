// Weight-only products on Hopper: the transposed product by wgmma, whose first operand is 64 columns of weights. They
// come from registers, where they were widened, exactly; the second operand is rows of x in shared memory.
//
//   way             TMA loads of packed weights, x, scales and zero points into stages (producer) -> 16 bytes of
//                   weights a lane -> 16-bit fragments in registers -> wgmma, 64 columns by the rows of x -> a group's
//                   sums -> times its scale, to the totals -> out, or a part in the workspace
//   warps 0 .. 7    two consumer warpgroups, 64 columns each. A warp takes the 16 columns of a packed tile.
//   warp 8          One thread is the producer. Weights need not wait for the kernel before to be fetched into L2.
//
//   shared memory   [stage 0: x, two panels of 64 of k | weights, by column tile | scales | zero points] ...
//                   [full S][empty S]
//   order           While the tensor core multiplies 64 of k, a warp widens the next 64 into other registers.
//   split           A block walks over a run of units (../split.h). Blocks that share a tile leave float32 sums in the
//                   workspace; the last to arrive adds them in the order of the blocks, so the bits repeat.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "../../numeric.cuh"
#include "../../ptx/atomic.cuh"
#include "../../ptx/barrier.cuh"
#include "../../ptx/griddepcontrol.cuh"
#include "../../ptx/mbarrier.cuh"
#include "../../ptx/setmaxnreg.cuh"
#include "../../ptx/shared_address.cuh"
#include "../../ptx/tma.cuh"
#include "../../ptx/wgmma.cuh"
#include "kernels.h"
#include "widen.cuh"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

template <typename T_, int Bits, int Group, int Rows, int Stages, int BlocksPerSm>
struct Tile {
  using T = T_;
  static constexpr int bits = Bits, group = Group, rows = Rows, stages = Stages, blocks_per_sm = BlocksPerSm;
  static constexpr bool small_groups = Bits == 4 && Group == 64;
  static constexpr int groups = small_groups ? 2 : 1;  // of a stage
  // 128 rows need more than the 168 registers that a third of a multiprocessor has for each thread.
  static constexpr bool moves_registers = Rows == 128;
  static constexpr int consumers = 256, threads = consumers + (moves_registers ? 128 : 32);
  static constexpr int registers = Rows / 2;                               // accumulators a thread
  static constexpr int packed = kWeightColumns * kWeightDepth * Bits / 8;  // bytes of a packed tile
  static constexpr int x_panel = Rows * 128, x_bytes = 2 * x_panel;
  static constexpr int weight_bytes = kColumns / kWeightColumns * 2 * packed;
  static constexpr int scale_bytes = Bits == 4 ? groups * kColumns * 2 : 0;
  static constexpr int zero_bytes = Bits == 4 ? groups * kColumns : 0;
  static constexpr int stage_bytes = (x_bytes + weight_bytes + scale_bytes + zero_bytes + 1023) / 1024 * 1024;
  static constexpr int shared_bytes = Stages * (stage_bytes + 16);
  static_assert(BlocksPerSm * (shared_bytes + 1024) <= 228 * 1024);
};

// A ring position.
template <int Stages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) stage = 0, phase ^= 1;
  }
};

__device__ __forceinline__ void pin(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) ptx::wgmma_fence_operand(a[s]);
}

template <typename Tile>
__device__ __forceinline__ void multiply(float (&d)[Tile::registers], uint32_t (&a)[4][4], uint64_t x, int add) {
  pin(a);
  ptx::wgmma_fence_operand(d);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    ptx::Wgmma<Tile::rows>::template rs<typename Tile::T, 0>(d, a[s], x + s * 2, s > 0 ? 1 : add);
  }
  ptx::wgmma_commit_group();
}

template <typename Tile>
class Consumer {
  using T = typename Tile::T;
  static constexpr int kRegisters = Tile::registers;

 public:
  __device__ __forceinline__ Consumer(const Parameters& p, uint32_t stages, uint32_t full, uint32_t empty)
      : p_(p), stages_(stages), full_(full), empty_(empty), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void run(int32_t begin, int32_t end) {
    const int lane = thread_ % 32;
    const uint32_t weights_at = Tile::x_bytes + thread_ / 32 * 2 * Tile::packed + lane * 16;
    Ring<Tile::stages> at;
    float total[kRegisters], part[kRegisters];
    float scale[2];  // of the group in `part`
    uint32_t a[2][4][4];
    for (int32_t segment = begin; segment < end;) {  // the units of a tile
      const int32_t tile = segment / p_.split.chunks;
      const int32_t count = min(end, (tile + 1) * p_.split.chunks) - segment;
      clear(total);
      clear(part);
      scale[0] = scale[1] = 0.0f;
      uint32_t before = 0;  // the empty barrier of the stage that was multiplied last
      for (int32_t i = 0; i < count; ++i) {
        const uint32_t stage = stages_ + at.stage * Tile::stage_bytes, weights = stage + weights_at;
        ptx::mbarrier_wait(full_ + at.stage * 8, at.phase);
        float next_scale[2][2];
        Offsets offsets[2];
        if constexpr (Tile::bits == 4) load_groups(next_scale, offsets, stage);
        const uint64_t x = ptx::k_major_descriptor(stage), x_later = x + Tile::x_panel / 16;
        const auto release_before = [&] {
          if (before != 0 && lane == 0) ptx::mbarrier_arrive(before);
          before = empty_ + at.stage * 8;
        };
        // The products of the second half of the stage before may be in flight, and with them a[1].
        ptx::wgmma_wait_group<1>();
        widen<Tile>(a[0], weights, offsets[0]);
        if constexpr (Tile::bits == 4) {
          // True at once. The loop keeps the compiler from waiting for the products before it has widened a[0].
          pin(a[0]);
          while (!ptx::mbarrier_test_wait(full_ + at.stage * 8, at.phase)) {
          }
          ptx::wgmma_wait_group<0>();
          release_before();
          take(total, part, scale);
          multiply<Tile>(part, a[0], x, 0);
          widen<Tile>(a[1], weights + Tile::packed, offsets[1]);
          if constexpr (Tile::small_groups) {
            ptx::wgmma_wait_group<0>();
            take(total, part, next_scale[0]);
          }
          multiply<Tile>(part, a[1], x_later, !Tile::small_groups);
          scale[0] = next_scale[1][0], scale[1] = next_scale[1][1];
        } else {
          multiply<Tile>(total, a[0], x, 1);
          ptx::wgmma_wait_group<1>();
          release_before();
          widen<Tile>(a[1], weights + Tile::packed, offsets[1]);
          multiply<Tile>(total, a[1], x_later, 1);
        }
        at.advance();
      }
      ptx::wgmma_wait_group<0>();
      if constexpr (Tile::bits == 4) take(total, part, scale);
      ptx::wgmma_fence_operand(total);
      if (lane == 0) ptx::mbarrier_arrive(before);
      finish(total, tile, count == p_.split.chunks);
      segment += count;
    }
  }

 private:
  // Scales and offsets of the two columns of a lane, for both halves of a stage's k.
  __device__ __forceinline__ void load_groups(float (&scale)[2][2], Offsets (&offsets)[2], uint32_t stage) const {
    const uint32_t scales = stage + Tile::x_bytes + Tile::weight_bytes;
    const int column = thread_ / 32 * kWeightColumns + thread_ % 32 / 4;  // and 8 further on
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      if (d == 1 && !Tile::small_groups) {
        scale[1][0] = scale[0][0], scale[1][1] = scale[0][1];
        offsets[1] = offsets[0];
        break;
      }
      const int place = d * kColumns + column;
      load_group<T>(scale[d], offsets[d], scales + 2 * place, scales + Tile::scale_bytes + place, p_.has_zeros);
    }
  }

  __device__ __forceinline__ static void clear(float (&values)[kRegisters]) {
#pragma unroll
    for (int r = 0; r < kRegisters; ++r) values[r] = 0.0f;
  }

  // The sums of a group times its scale join the totals. They are complete: it was waited for them.
  __device__ __forceinline__ static void take(float (&total)[kRegisters], float (&part)[kRegisters],
                                              const float (&scale)[2]) {
    ptx::wgmma_fence_operand(part);
#pragma unroll
    for (int r = 0; r < kRegisters; ++r) total[r] = fmaf(scale[r % 4 / 2], part[r], total[r]);
  }

  __device__ __forceinline__ float4* slot(int32_t block, int32_t tile) const {
    float* const first = p_.partial + int64_t{p_.split.slot(block, tile)} * (Tile::rows * kColumns);
    return reinterpret_cast<float4*>(first) + thread_;
  }

  __device__ __forceinline__ void finish(float (&total)[kRegisters], int32_t tile, bool whole) {
    if (whole || combined(total, tile)) store(total, tile);
  }

  // True for the last of the thread blocks of a tile, which then holds the sums of all.
  __device__ __forceinline__ bool combined(float (&total)[kRegisters], int32_t tile) {
    __shared__ uint32_t arrived;
    float4* const mine = slot(static_cast<int32_t>(blockIdx.x), tile);
#pragma unroll
    for (int r = 0; r < kRegisters / 4; ++r) {
      __stcg(mine + r * Tile::consumers,
             make_float4(total[4 * r], total[4 * r + 1], total[4 * r + 2], total[4 * r + 3]));
    }
    // The barrier, then one thread's release, order the sums of all threads before the count.
    ptx::bar_sync(1, Tile::consumers);
    const int32_t first = p_.split.block_of(tile * p_.split.chunks);
    const int32_t last = p_.split.block_of((tile + 1) * p_.split.chunks - 1);
    if (thread_ == 0) {
      arrived = ptx::atomic_add_acq_rel(p_.counters + tile, 1);
      if (arrived == static_cast<uint32_t>(last - first)) p_.counters[tile] = 0;
    }
    ptx::bar_sync(1, Tile::consumers);
    if (arrived != static_cast<uint32_t>(last - first)) return false;
    clear(total);
    constexpr int together = kRegisters >= 24 ? 1 : 24 / kRegisters;  // parts whose loads are in flight at once
    int32_t block = first;
    for (; block + together <= last + 1; block += together) add<together>(total, block, tile);
    for (; block <= last; ++block) add<1>(total, block, tile);
    return true;
  }
  template <int Parts>
  __device__ __forceinline__ void add(float (&total)[kRegisters], int32_t block, int32_t tile) const {
    float4 part[Parts][kRegisters / 4];
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
      const float4* const from = slot(block + i, tile);
#pragma unroll
      for (int r = 0; r < kRegisters / 4; ++r) part[i][r] = __ldcg(from + r * Tile::consumers);
    }
#pragma unroll
    for (int i = 0; i < Parts; ++i) {
#pragma unroll
      for (int r = 0; r < kRegisters / 4; ++r) {
        total[4 * r] += part[i][r].x;
        total[4 * r + 1] += part[i][r].y;
        total[4 * r + 2] += part[i][r].z;
        total[4 * r + 3] += part[i][r].w;
      }
    }
  }

  __device__ __forceinline__ void store(const float (&total)[kRegisters], int32_t tile) const {
    const int lane = thread_ % 32;
    const int32_t row = tile % p_.row_tiles * Tile::rows + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t column = tile / p_.row_tiles * kColumns + thread_ / 32 * kWeightColumns + 8 * h + lane / 4;
      if (column >= p_.n) continue;
      const float scale = Tile::bits == 8 ? to_float(static_cast<const T*>(p_.scales)[column]) : 1.0f;
#pragma unroll
      for (int j = 0; j < Tile::rows / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int32_t at = row + 8 * j + e;
          if (at < p_.m) {
            static_cast<T*>(p_.out)[int64_t{at} * p_.n + column] = from_float<T>(total[4 * j + 2 * h + e] * scale);
          }
        }
      }
    }
  }

  const Parameters& p_;
  const uint32_t stages_, full_, empty_;
  const int thread_;
};

// By one warp: the weights of a block's first stages, into L2, where the kernel before may still write them.
template <typename Tile>
__device__ __forceinline__ void fetch_first_weights(const Parameters& p, int32_t begin, int32_t end) {
  constexpr int tiles = kColumns / kWeightColumns;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < Tile::stages * tiles; i += 32) {
    const int32_t unit = begin + i / tiles;
    const int32_t column_tile = unit / p.split.chunks / p.row_tiles * tiles + i % tiles;
    const int32_t depth_tile = unit % p.split.chunks * 2;
    if (unit >= end || column_tile >= p.column_tiles) continue;
    const int64_t at = int64_t{column_tile} * p.depth_tiles + depth_tile;
    ptx::bulk_prefetch(p.packed + at * Tile::packed, min(2, p.depth_tiles - depth_tile) * Tile::packed);
  }
}

template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks_per_sm)
    weight_only_wgmma(const __grid_constant__ CUtensorMap weights_map, const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap scales_map, const __grid_constant__ CUtensorMap zeros_map,
                      const __grid_constant__ Parameters p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const uint32_t stages = ptx::shared_address(shared_memory);
  const uint32_t full = stages + Tile::stages * Tile::stage_bytes, empty = full + Tile::stages * 8;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (warp == 8) {
    if (ptx::elect_sync()) {
      ptx::prefetch_tensormap(&weights_map);
      ptx::prefetch_tensormap(&x_map);
      if constexpr (Tile::bits == 4) {
        ptx::prefetch_tensormap(&scales_map);
        if (p.has_zeros) ptx::prefetch_tensormap(&zeros_map);
      }
    }
    __syncwarp();
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::stages; ++s) {
      ptx::mbarrier_init(full + s * 8, 1);
      ptx::mbarrier_init(empty + s * 8, Tile::consumers / 32);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int32_t begin = p.split.first(static_cast<int32_t>(blockIdx.x));
  const int32_t end = p.split.first(static_cast<int32_t>(blockIdx.x) + 1);
  ptx::griddepcontrol_launch_dependents();
  if (warp == 4) fetch_first_weights<Tile>(p, begin, end);
  ptx::griddepcontrol_wait();

  if (warp >= 8) {
    if constexpr (Tile::moves_registers) ptx::setmaxnreg_dec<40>();
    if (warp == 8 && ptx::elect_sync()) {
      Ring<Tile::stages> at;
      for (int32_t unit = begin; unit < end; ++unit) {
        const int32_t tile = unit / p.split.chunks, chunk = unit - tile * p.split.chunks;
        const int32_t column_block = tile / p.row_tiles, row_tile = tile - column_block * p.row_tiles;
        const uint32_t stage = stages + at.stage * Tile::stage_bytes, barrier = full + at.stage * 8;
        ptx::mbarrier_wait(empty + at.stage * 8, at.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(barrier, p.stage_arrives);
        ptx::tma_load_3d(stage + Tile::x_bytes, &weights_map, barrier, 0, 2 * chunk,
                         column_block * (kColumns / kWeightColumns), ptx::evict_first);
        ptx::tma_load_3d(stage, &x_map, barrier, 0, row_tile * Tile::rows, 2 * chunk, ptx::evict_last);
        if constexpr (Tile::bits == 4) {
          const int32_t group = Tile::groups * chunk;
          const uint32_t scales = stage + Tile::x_bytes + Tile::weight_bytes;
          ptx::tma_load_3d(scales, &scales_map, barrier, column_block * kColumns, group, 0, ptx::evict_first);
          if (p.has_zeros) {
            ptx::tma_load_3d(scales + Tile::scale_bytes, &zeros_map, barrier, column_block * kColumns, group, 0,
                             ptx::evict_first);
          }
        }
        at.advance();
      }
    }
  } else {
    if constexpr (Tile::moves_registers) ptx::setmaxnreg_inc<232>();
    Consumer<Tile>(p, stages, full, empty).run(begin, end);
  }
#endif
}

template <ScalarType Type, int Bits, int Group, int Rows, int Stages, int BlocksPerSm>
constexpr Kernel kernel(const char* name) {
  using Instance = Tile<typename ElementOf<Type>::type, Bits, Group, Rows, Stages, BlocksPerSm>;
  return {name,
          reinterpret_cast<const void*>(&weight_only_wgmma<Instance>),
          Type,
          Bits,
          Group,
          Rows,
          Instance::threads,
          Instance::shared_bytes,
          Instance::blocks_per_sm};
}

// clang-format off: one kernel a line
template <ScalarType Type>
KernelList list() {
  static const Kernel kernels[] = {
      kernel<Type, 4, 64, 32, 6, 2>("wgmma int4 groups of 64 32 rows"),
      kernel<Type, 4, 64, 64, 8, 1>("wgmma int4 groups of 64 64 rows"),
      kernel<Type, 4, 64, 128, 5, 1>("wgmma int4 groups of 64 128 rows"),
      kernel<Type, 4, 128, 32, 6, 2>("wgmma int4 groups of 128 32 rows"),
      kernel<Type, 4, 128, 64, 8, 1>("wgmma int4 groups of 128 64 rows"),
      kernel<Type, 4, 128, 128, 5, 1>("wgmma int4 groups of 128 128 rows"),
      kernel<Type, 8, 0, 32, 4, 2>("wgmma int8 32 rows"),
      kernel<Type, 8, 0, 64, 6, 1>("wgmma int8 64 rows"),
      kernel<Type, 8, 0, 128, 4, 1>("wgmma int8 128 rows"),
  };
  return kernels;
}
// clang-format on

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
