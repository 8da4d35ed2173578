// The order of the Hopper attention kernels' tiles on the host: schedule.cu plans, launch.cu "launches", and every
// thread block of the grid walks its tiles with schedule.cuh. Built and called by test_sm90_schedule.py.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace {
struct {
  unsigned x;
} gridDim, blockIdx;
uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
}  // namespace

#define __CUDACC__
#include "attention/sm90/instance.h"
#undef __CUDACC__

#include "attention/sm90/launch.cu"
#include "attention/sm90/realigned.cu"
#include "attention/sm90/schedule.cu"
#include "attention/sm90/schedule.cuh"
#include "attention/sm90/stream_k.cu"

#include "../launched_on_host.h"

namespace cuda_llm_ops::cuda {
uint32_t* counters_for(cudaStream_t, cudaError_t*) { return nullptr; }
}  // namespace cuda_llm_ops::cuda

namespace {
using namespace cuda_llm_ops;
namespace flash = cuda::sm90::flash;

template <bool CrossTile, int QTiles, int Cluster, bool StreamK = false>
struct Shape {
  static constexpr bool cross_tile = CrossTile, realigned = false, stream_k = StreamK;
  static constexpr int q_tiles = QTiles, block_m = 64 * QTiles, cluster = Cluster;
};

// Who shares a tile, by what its completers are told: each thread block's part of it, in order, and none besides. -4
// where a block finds another answer than the walk.
int check_sharers(const flash::StreamK& e) {
  std::map<int, std::vector<std::pair<int, int>>> parts;  // of each tile left over: thread block, part
  for (int block = 0; block < static_cast<int>(gridDim.x); ++block) {
    for (int i = 0; i < flash::kPartsOfARange; ++i) {
      const flash::Part part = flash::part_at(e, block, i);
      if (part.any()) parts[part.left(e)].push_back({block, i});
    }
  }
  for (const auto& [left, all] : parts) {
    for (const auto& [block, i] : all) {
      const flash::Sharers told = flash::sharers_of(e, flash::part_at(e, block, i));
      if (told.count != static_cast<int>(all.size()) || told.count > flash::kMostRanges) return -4;
      for (int n = 0; n < told.count; ++n) {
        if (all[n] != std::pair(told.first + n, n == 0 ? told.part : 0)) return -4;
      }
    }
  }
  return 0;
}

// Faults: 64s of queries that are computed by no warpgroup, or by two; where blocks share tiles, with some block of
// keys.
template <typename S>
int walk(const flash::Parameters& p) {
  const int units = (p.seq_q + 63) / 64;
  const int key_blocks = S::stream_k ? p.stream_k.key_blocks : 1;
  std::vector<int> times(static_cast<size_t>(units) * p.batch_heads * key_blocks);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x += S::cluster) {
    for (int i = 0;; ++i) {
      const flash::Tile tile = flash::tile_at<S>(p, i);
      if (!tile.valid) break;
      if (tile.m < 0) continue;
      const int row = S::cross_tile ? tile.row : tile.m * S::block_m * S::cluster;
      const int warpgroups = S::cross_tile ? tile.units : S::q_tiles * S::cluster;
      if (row % 64 != 0 || warpgroups < 1 || warpgroups > S::q_tiles * S::cluster) return -2;
      const int first = S::stream_k ? tile.first_block : 0, end = S::stream_k ? tile.end_block : key_blocks;
      if (first < 0 || first >= end || end > key_blocks) return -3;
      for (int w = 0; w < warpgroups && row / 64 + w < units; ++w) {
        int* const of_rows =
            &times[(static_cast<size_t>(tile.batch * p.heads + tile.head) * units + row / 64 + w) * key_blocks];
        for (int j = first; j < end; ++j) ++of_rows[j];
      }
    }
  }
  int faults = 0;
  for (const int n : times) faults += n != 1;
  return faults;
}
}  // namespace

// Faults of a launch, or -1 where it was refused; 0 where the instance has no plan for it. *schedule says which order
// it took, *blocks how many thread blocks, *workspace_bytes what blocks share tiles in.
extern "C" int tiles(int cross_tile, int warpgroups, int cluster, int block_n, int multiprocessors, int batch,
                     int heads, int kv_heads, int seq_q, int seq_kv, int causal, int stream_k, int* schedule,
                     int* blocks, int64_t* workspace_bytes) {
  AttentionArguments a;
  a.batch = batch;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.seq_q = seq_q;
  a.seq_kv = seq_kv;
  a.head_dim = a.value_dim = 64;
  a.causal = causal != 0;
  a.type = ScalarType::float16;
  flash::Instance instance{};
  instance.head_dim = 64;
  instance.block_m = 64 * warpgroups * cluster;
  instance.block_n = block_n;
  instance.cluster = cluster;
  instance.cross_tile = cross_tile != 0;
  instance.stream_k = stream_k != 0;
  instance.part_bytes = 3 * 128 * 36 * 4;  // of three warpgroups with 72 columns, as the compiled one's
  const flash::Plan plan = flash::plan(instance, a, multiprocessors, true);
  if (!std::isfinite(plan.cost)) return 0;
  if (flash::launch(instance, plan, a, nullptr) != nullptr) return -1;
  *schedule = static_cast<int>(plan.schedule);
  *blocks = plan.blocks;
  *workspace_bytes = static_cast<int64_t>(flash::stream_k_workspace_bytes(instance, plan));
  if (stream_k) {
    const int fault = check_sharers(launched.stream_k);
    return fault != 0 ? fault : walk<Shape<true, 3, 1, true>>(launched);
  }
  if (cross_tile) return warpgroups == 2 ? walk<Shape<true, 2, 1>>(launched) : walk<Shape<true, 3, 1>>(launched);
  if (cluster == 2) return walk<Shape<false, 2, 2>>(launched);
  return warpgroups == 2 ? walk<Shape<false, 2, 1>>(launched) : walk<Shape<false, 3, 1>>(launched);
}
