#include "schedule.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "../../../arithmetic.h"
#include "stream_k.h"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

// K and V of this many bytes stay in the L2 while a section of heads is worked on.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

}  // namespace

Plan plan(const Instance& instance, const AttentionArguments& a, int multiprocessors, bool may_stream_k) {
  const int64_t batch_heads = int64_t{a.batch} * a.heads;
  const int64_t m_tiles = ceil_div(a.seq_q, instance.block_m);
  const int64_t tiles = m_tiles * batch_heads;
  const int64_t blocks = std::min<int64_t>(multiprocessors / instance.cluster, tiles);  // or clusters
  const int64_t all_keys = ceil_div(a.seq_kv, instance.block_n);
  const bool misaligned = !instance.realigned && alignment(a) < 32;
  const int warpgroups = instance.split_keys ? 1 : instance.block_m / instance.cluster / 64;
  const double block_cost = (a.causal ? instance.cost.causal : instance.cost.full) *
                            (misaligned ? instance.cost.misaligned : 1.0) * instance.block_n * warpgroups;
  Plan plan{};
  plan.blocks = static_cast<int>(blocks) * instance.cluster;
  plan.section = plan.tail_head = static_cast<int>(batch_heads);
  plan.pair_rounds = INT32_MAX / 2;
  if (instance.stream_k) {
    plan.cost = std::numeric_limits<double>::infinity();
    if (!a.causal && may_stream_k) plan_stream_k(plan, instance, a, multiprocessors, block_cost);
    return plan;
  }
  if (!a.causal) {
    plan.schedule = Schedule::linear;
    const double tile_cost = static_cast<double>(all_keys) * block_cost + instance.cost.tile;
    plan.cost = static_cast<double>(ceil_div(tiles, blocks)) * tile_cost;
    // Tiles of three warpgroups may not divide evenly among the thread blocks. Then each takes a slice of a head, in
    // tiles of three warpgroups and of two.
    const int64_t units = ceil_div(a.seq_q, 64);
    const int64_t most_slices = instance.cross_tile && warpgroups == 3 ? std::min<int64_t>(units / 2, 64) : 0;
    for (int64_t slices = 1; slices <= most_slices; ++slices) {
      const int64_t in_slice = ceil_div(units, slices), small = in_slice == 1 ? 0 : (3 - in_slice % 3) % 3;
      const int64_t tall = (in_slice - 2 * small) / 3;
      const double cost = static_cast<double>(ceil_div(batch_heads * slices, multiprocessors)) * tile_cost *
                          (static_cast<double>(tall) + kSmallTileCost * static_cast<double>(small));
      if (in_slice < 2 || cost >= plan.cost) continue;
      plan.cost = cost;
      plan.schedule = Schedule::slices;
      plan.blocks = static_cast<int>(std::min<int64_t>(multiprocessors, batch_heads * slices));
      plan.slices = static_cast<int>(slices);
      plan.slice_units = static_cast<int>(in_slice);
      plan.slice_tall = static_cast<int>(tall);
      plan.slice_tiles = static_cast<int>(tall + small);
    }
    return plan;
  }
  // Longest first needs many heads at once, reuse of the L2 few; pairs of equal length need neither, but enough of
  // them to fill the card evenly.
  const int64_t kv_in_section =
      std::max<int64_t>(1, kSectionBytes / (int64_t{2} * (a.head_dim + a.value_dim) * a.seq_kv));
  if (kv_in_section < int64_t{a.kv_heads} * a.batch) {
    plan.section = static_cast<int>(std::min(batch_heads, kv_in_section * (a.heads / a.kv_heads)));
  }
  const double tile_cost = instance.cost.causal_tile > 0 ? instance.cost.causal_tile : instance.cost.tile;
  double head_cost = 0, longest = 0;
  for (int64_t m = 0; m < m_tiles; ++m) {
    const int64_t end = std::min<int64_t>({int64_t{a.seq_kv}, (m + 1) * instance.block_m, int64_t{a.seq_q}});
    longest = static_cast<double>(ceil_div(end, instance.block_n)) * block_cost + tile_cost;
    head_cost += longest;
  }
  const double average = head_cost * static_cast<double>(batch_heads) / static_cast<double>(blocks);
  const double snake = std::max(longest, average + 0.5 * longest / static_cast<double>(m_tiles));
  const double one_pair = head_cost / (static_cast<double>(m_tiles) / 2.0);
  const int64_t head_pairs = ceil_div(m_tiles, 2), all_pairs = head_pairs * batch_heads;
  double pairs = static_cast<double>(ceil_div(all_pairs, blocks)) * one_pair;
  // If few thread blocks have a pair in the last round, the tail is dealt tile by tile, longest first, together with
  // enough of the rounds before it.
  for (int64_t rounds = all_pairs / blocks; instance.cross_tile && rounds >= 0; --rounds) {
    if (rounds * blocks % head_pairs != 0) continue;
    const int64_t heads = batch_heads - rounds * blocks / head_pairs;
    const double tail_average = head_cost * static_cast<double>(heads) / static_cast<double>(blocks);
    const double tail = std::max(longest, tail_average + longest / static_cast<double>(m_tiles));
    const double cost = static_cast<double>(rounds) * one_pair + tail;
    if (heads > 0 && cost < pairs) {
      pairs = cost;
      plan.pair_rounds = static_cast<int>(rounds);
      plan.tail_head = static_cast<int>(batch_heads - heads);
    }
    if (tail_average > 2 * longest) break;
  }
  const bool split_sections = plan.section < batch_heads;
  plan.schedule = pairs <= snake * (split_sections ? 1.08 : 1.04) ? Schedule::pairs : Schedule::snake;
  plan.cost = plan.schedule == Schedule::pairs ? pairs : snake;
  return plan;
}

int alignment(const AttentionArguments& a) {
  int64_t together = 0;
  const auto take = [&](const void* pointer, int seq, int heads, const HeadStrides& stride) {
    together |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
    if (seq > 1) together |= stride.seq * 2;
    if (heads > 1) together |= stride.head * 2;
    if (a.batch > 1) together |= stride.batch * 2;
  };
  take(a.q, a.seq_q, a.heads, a.q_stride);
  take(a.k, a.seq_kv, a.kv_heads, a.k_stride);
  take(a.v, a.seq_kv, a.kv_heads, a.v_stride);
  return static_cast<int>(std::min<int64_t>(together & -together, 128));
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
