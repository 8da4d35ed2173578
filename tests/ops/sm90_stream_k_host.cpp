// How the Hopper attention kernel's thread blocks share tiles (partial_tiles.cuh), compiled for the host: every block
// leaves its parts, then every reducer counts and adds, lane after lane, in a random order of blocks.
// test_attention_stream_k.py empties the headers of ptx/.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace {
struct {
  unsigned x;
} threadIdx, gridDim, blockIdx;

alignas(256) unsigned char memory[1 << 18];  // shared, of one block
constexpr uint32_t base = 1 << 16;
void* __cvta_shared_to_generic(uint32_t shared) { return memory + (shared - base); }
uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
T __shfl_sync(unsigned, T value, int) {
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int) {
  return value;
}
bool __all_sync(unsigned, bool mine) { return mine; }
void __syncwarp() {}

int faults;
uintptr_t parts_begin, parts_end;
void in_parts(const void* from, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(from);
  if (at < parts_begin || at + bytes > parts_end) ++faults;
}
}  // namespace

namespace cuda_llm_ops::ptx {
inline uint32_t atomic_add_acq_rel(uint32_t* at, uint32_t value) { return std::exchange(*at, *at + value); }
inline void fence_proxy_async_global() {}
inline void mbarrier_arrive(uint32_t) {}
inline void mbarrier_arrive_expect_tx(uint32_t, uint32_t) {}
inline void mbarrier_wait(uint32_t, uint32_t) {}
inline int load_shared(uint32_t from) {
  int value;
  std::memcpy(&value, memory + (from - base), 4);
  return value;
}
inline uint64_t load_shared_64(uint32_t from) {
  uint64_t value;
  std::memcpy(&value, memory + (from - base), 8);
  return value;
}
inline void store_shared(uint32_t to, int value) { std::memcpy(memory + (to - base), &value, 4); }
inline void store_shared(uint32_t to, uint64_t value) { std::memcpy(memory + (to - base), &value, 8); }
inline int fresh_tid_x() { return static_cast<int>(threadIdx.x); }
inline int opaque(int value) { return value; }
inline float ex2(float x) { return std::exp2(x); }
inline float max_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }
inline unsigned max3_s16x2(unsigned a, unsigned, unsigned) { return a; }
inline void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t) {
  in_parts(from, bytes);
  std::memcpy(memory + (to - base), from, bytes);
}
}  // namespace cuda_llm_ops::ptx

#define __CUDACC__
#include "attention/sm90/instance.h"
#undef __CUDACC__

namespace cuda_llm_ops::cuda::sm90::flash {
struct Shape {
  using T = __half;
  static constexpr bool cross_tile = true, realigned = false, stream_k = true;
  static constexpr int consumers = 3, q_tiles = 3, block_m = 192, block_n = 80, cluster = 1, head_dim = 64;
  static constexpr int v_columns = 72, partial_bytes = 32 * 36 * 4;
};
template <typename C>
struct Layout {
  uint32_t part_full(int, int) const { return 0; }
  uint32_t gathered(int) const { return 0; }
  uint32_t parts(int group) const { return base + group * (kMostRanges * C::partial_bytes); }
  uint32_t reducer_state(int group) const { return parts(3) + group * 48; }
};
}  // namespace cuda_llm_ops::cuda::sm90::flash

#include "attention/sm90/launch.cu"
#include "attention/sm90/partial_tiles.cuh"
#include "attention/sm90/realigned.cu"
#include "attention/sm90/schedule.cu"
#include "attention/sm90/stream_k.cu"

#include "../launched_on_host.h"

namespace cuda_llm_ops::cuda {
std::vector<uint32_t> all_counters(kCounters);
uint32_t* counters_for(cudaStream_t, cudaError_t*) { return all_counters.data(); }
}  // namespace cuda_llm_ops::cuda

namespace {
using namespace cuda_llm_ops;
namespace flash = cuda::sm90::flash;
using C = flash::Shape;

// What a row's outputs come to: of each range, its own maximum, sum and outputs.
struct Row {
  double maximum = -INFINITY, sum = 0, out[64] = {};

  void add(float other_maximum, float other_sum, const float* other) {
    const double joint = std::fmax(maximum, other_maximum), own = std::exp2(maximum - joint),
                 theirs = std::exp2(other_maximum - joint);
    sum = sum * own + other_sum * theirs;
    for (int column = 0; column < 64; ++column) out[column] = out[column] * own + other[column] * theirs;
    maximum = joint;
  }
};
}  // namespace

// Rows that came out wrong, or were written though no blocks share them, or not; counters that are left; -1: there is
// no plan. *shared: rows that blocks share.
extern "C" int share(int multiprocessors, int batch, int heads, int seq_q, int seq_kv, int head_dim, unsigned seed,
                     int* shared) {
  AttentionArguments a;
  a.batch = batch, a.heads = a.kv_heads = heads, a.seq_q = seq_q, a.seq_kv = seq_kv,
  a.head_dim = a.value_dim = head_dim;
  a.type = ScalarType::float16;
  std::vector<__half> out(static_cast<size_t>(batch) * heads * seq_q * head_dim);
  std::memset(out.data(), 0xff, out.size() * 2);
  a.out = out.data();
  a.out_stride = {int64_t{heads} * seq_q * head_dim, int64_t{seq_q} * head_dim, head_dim};
  flash::Instance instance{};
  instance.head_dim = C::head_dim, instance.block_m = C::block_m, instance.block_n = C::block_n, instance.cluster = 1;
  instance.cross_tile = instance.stream_k = true, instance.part_bytes = flash::part_bytes_of<C>;
  const flash::Plan plan = flash::plan(instance, a, multiprocessors, true);
  if (!std::isfinite(plan.cost)) return -1;
  std::vector<float4> workspace(flash::stream_k_workspace_bytes(instance, plan) / 16);
  std::memset(workspace.data(), 0xff, workspace.size() * 16);
  a.workspace = workspace.data();
  if (flash::launch(instance, plan, a, nullptr) != nullptr) return -2;
  const flash::StreamK& e = launched.stream_k;
  parts_begin = reinterpret_cast<uintptr_t>(e.sums);
  parts_end = parts_begin + static_cast<uintptr_t>(gridDim.x) * flash::kPartsOfARange * flash::part_bytes_of<C>;

  faults = 0;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const flash::Layout<C> layout{};
  std::map<int64_t, Row> expected;
  std::vector<unsigned> order;
  for (unsigned block = 0; block < gridDim.x; ++block) order.push_back(block);
  for (const unsigned block : order) {
    blockIdx.x = block;
    for (int i = 0; i < flash::kPartsOfARange; ++i) {
      const flash::Tile tile = flash::tile_at<C>(launched, i);
      if (tile.m < 0 || tile.end_block - tile.first_block == e.key_blocks) continue;
      for (int group = 0; group < tile.units; ++group) {
        float of_row[64][66];
        for (int row = 0; row < 64; ++row) {
          for (float& x : of_row[row]) x = normal(random);
          of_row[row][64] = 10 * normal(random);             // the maximum
          of_row[row][65] = 1 + std::fabs(of_row[row][65]);  // the sum
          const int at = tile.row + group * 64 + row;
          if (at < seq_q) {
            expected[(int64_t{tile.batch} * heads + tile.head) * seq_q + at].add(of_row[row][64], of_row[row][65],
                                                                                 of_row[row]);
          }
        }
        for (int thread = 0; thread < 128; ++thread) {
          threadIdx.x = static_cast<unsigned>(group * 128 + thread);
          float o[36];
          flash::RowState state;
          for (int h = 0; h < 2; ++h) {
            const float* const mine = of_row[thread / 32 * 16 + thread % 32 / 4 + h * 8];
            for (int g = 0; g < 8; ++g) {
              for (int parity = 0; parity < 2; ++parity)
                o[4 * g + 2 * h + parity] = mine[8 * g + thread % 4 * 2 + parity];
            }
            o[32 + 2 * h] = o[33 + 2 * h] = mine[65];
            state.maximum[h] = mine[64];
          }
          in_parts(flash::part_of<C>(e, static_cast<int>(block), i, static_cast<int>(threadIdx.x) / 32), 16);
          flash::store_part<C>(e, layout, i, group, o, state);
        }
      }
    }
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const unsigned block : order) {
    blockIdx.x = block;
    for (int group = 0; group < C::consumers; ++group) {
      const flash::Reducer<C, flash::Layout<C>> reducer{launched, layout, group};
      threadIdx.x = 0;
      ptx::store_shared(reducer.tile_state() + decltype(reducer)::gatherings, 0);
      for (int i = 0; i < flash::kPartsOfARange; ++i) {
        if (!reducer.look_at(i)) continue;
        for (int warp = 0; warp < 4; ++warp) {
          if (!reducer.is_last(warp)) continue;
          for (threadIdx.x = 31; threadIdx.x > 0; --threadIdx.x) reducer.complete(warp);
          reducer.complete(warp);
        }
      }
    }
  }

  *shared = static_cast<int>(expected.size());
  for (size_t row = 0; row < out.size() / head_dim; ++row) {
    const auto found = expected.find(static_cast<int64_t>(row));
    bool right = true;
    for (int column = 0; column < head_dim; ++column) {
      const float x = __half2float(out[row * head_dim + column]);
      if (found == expected.end()) {
        right = right && std::isnan(x);
      } else {
        const double wanted = found->second.out[column] / found->second.sum;
        right = right && std::fabs(x - wanted) <= 1e-3 * std::fabs(wanted) + 1e-4;
      }
    }
    faults += !right;
  }
  for (const uint32_t counter : cuda::all_counters) faults += counter != 0;
  return faults;
}
