// The tiles of the FP8 kernels for Hopper on the host: every block of a grid walks its own. And the rows of no group,
// which all threads clear together. Built and called by test_fp8_tiles.py.
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#define __device__
#define __forceinline__ inline

namespace {
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
struct uint4 {
  uint32_t x, y, z, w;
};
uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
}  // namespace

#include "fp8/sm90/tiles.cuh"
#include "fp8/sm90/zeros.cuh"

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda::fp8;

// Elements of out (by row, and tile along n) that are computed not once, or by another group's weight.
extern "C" int faults(const int32_t* sizes, int groups, int capacity, int m, int tiles_n, int raster, int blocks) {
  constexpr int kTileM = 128;
  sm90::KernelArguments arguments;
  arguments.g.group_sizes = sizes;
  arguments.g.groups = groups;
  arguments.g.capacity = capacity;
  arguments.g.m = m;
  arguments.tiles_n = tiles_n;
  arguments.raster = raster;
  std::map<std::pair<int, int>, int> owner;
  int wrong = 0;
  for (int block = 0; block < blocks; ++block) {
    sm90::Tiles tiles;
    for (int tile = block; tiles.find<kTileM>(arguments, tile); tile += blocks) {
      wrong += tiles.n < 0 || tiles.n >= tiles_n;
      for (int row = tiles.row; row < min(tiles.row + kTileM, tiles.rows.end); ++row) {
        wrong += !owner.emplace(std::make_pair(row, tiles.n), tiles.group).second;
      }
    }
  }
  size_t right = 0;
  for (int group = 0; group < groups; ++group) {
    const GroupRows rows = group_rows(sizes, group, capacity, m);
    for (int row = rows.first; row < rows.end; ++row) {
      for (int n = 0; n < tiles_n; ++n, ++right) {
        const auto found = owner.find({row, n});
        wrong += found == owner.end() || found->second != group;
      }
    }
  }
  return wrong + static_cast<int>(owner.size() != right);
}

// Bytes of an out that begins `offset` bytes behind a multiple of 16 and that are not as they should be: cleared where
// rows belong to no group, else untouched, those around it too.
extern "C" int clearing_faults(const int32_t* sizes, int groups, int capacity, int m, int n, int wide, int offset,
                               int threads) {
  constexpr int kAround = 32;
  const size_t row_bytes = static_cast<size_t>(n) * (wide ? 4 : 2), bytes = row_bytes * m;
  std::vector<uint4> memory((bytes + 2 * kAround) / 16 + 2);
  char* const all = reinterpret_cast<char*>(memory.data());
  char* const out = all + kAround + offset;
  const size_t size = memory.size() * 16;
  for (size_t i = 0; i < size; ++i) all[i] = 1;
  Fp8GemmArguments g;
  g.group_sizes = sizes, g.groups = groups, g.capacity = capacity, g.m = m, g.n = n, g.out = out;
  g.out_type = wide ? ScalarType::float32 : ScalarType::bfloat16;
  for (int thread = 0; thread < threads; ++thread) sm90::clear_other_rows(g, thread, threads);
  std::vector<char> right(size, 1);
  const size_t begin = out - all;
  for (size_t i = begin; i < begin + bytes; ++i) right[i] = 0;
  for (int group = 0; group < groups; ++group) {
    const GroupRows rows = group_rows(sizes, group, capacity, m);
    for (size_t i = begin + rows.first * row_bytes; i < begin + rows.end * row_bytes; ++i) right[i] = 1;
  }
  int wrong = 0;
  for (size_t i = 0; i < size; ++i) wrong += all[i] != right[i];
  return wrong;
}

// Stages that not exactly one rank takes.
extern "C" int stage_faults(int all, int split) {
  int next = 0, wrong = 0;
  for (int rank = 0; rank < split; ++rank) {
    const sm90::StagesOfRank mine(all, split, rank);
    wrong += mine.count < 0 || (mine.count > 0 && mine.first != next);
    next += mine.count;
  }
  return wrong + (next != all);
}
