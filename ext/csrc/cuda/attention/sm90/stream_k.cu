#include "stream_k.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../../../arithmetic.h"
#include "workspace.h"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

// Cost of writing the parts of a tile to the workspace, in the unit of Cost.
constexpr double kPartialTileCost = 200;

}  // namespace

void plan_stream_k(Plan& plan, const Instance& instance, const AttentionArguments& a, int multiprocessors,
                   double block_cost) {
  const int64_t key_blocks = ceil_div(a.seq_kv, instance.block_n);
  const int64_t heads = int64_t{a.batch} * a.heads;
  const int64_t tall = a.seq_q / instance.block_m, small_units = ceil_div(a.seq_q % instance.block_m, 64);
  const int64_t rounds = tall * heads / multiprocessors, left_tall = tall * heads - rounds * multiprocessors;
  const int64_t left_small = small_units > 0 ? heads : 0, left = left_tall + left_small;
  if (left == 0 || left * (instance.block_m / 16) > kCounters || left * key_blocks > INT32_MAX / 2) return;
  // The workspace does not grow with the sequence. If it is larger than the output, memory is not linear in the
  // sequence.
  const int64_t output_bytes = heads * a.seq_q * a.head_dim * 2;
  if (int64_t{multiprocessors} * kPartsOfARange * instance.part_bytes > output_bytes) return;
  const double small = small_units == 1 ? kSmallestTileCost : kSmallTileCost;
  const auto share = [&](int64_t tiles, int64_t blocks) {
    return tiles == 0 ? 0 : std::max(ceil_div(tiles * key_blocks, blocks), ceil_div(key_blocks, kMostRanges - 1));
  };
  // Thread blocks for either kind of tile so that both take the same time.
  const double part =
      static_cast<double>(left_tall) / (static_cast<double>(left_tall) + small * static_cast<double>(left_small));
  int64_t tall_ranges = std::lround(part * multiprocessors);
  if (left_tall > 0) tall_ranges = std::max<int64_t>(tall_ranges, 1);
  if (left_small > 0) tall_ranges = std::min<int64_t>(tall_ranges, multiprocessors - 1);
  if (left_tall > 0 && tall_ranges == 0) return;
  const int64_t of_tall = share(left_tall, tall_ranges), of_small = share(left_small, multiprocessors - tall_ranges);
  if (of_tall > key_blocks || of_small > key_blocks) return;
  const double ranges = std::max(static_cast<double>(of_tall), static_cast<double>(of_small) * small) * block_cost;
  const double tile_cost = static_cast<double>(key_blocks) * block_cost + instance.cost.tile;
  plan.cost = static_cast<double>(rounds) * tile_cost + ranges + 2 * instance.cost.tile + kPartialTileCost;
  plan.schedule = Schedule::stream_k;
  plan.blocks = multiprocessors;
  plan.rounds = static_cast<int>(rounds);
  plan.tall = static_cast<int>(tall);
  plan.left_tall = static_cast<int>(left_tall);
  plan.left_small = static_cast<int>(left_small);
  plan.tall_ranges = static_cast<int>(tall_ranges);
  plan.share_of_tall = static_cast<int>(of_tall);
  plan.share_of_small = static_cast<int>(of_small);
}

size_t stream_k_workspace_bytes(const Instance& instance, const Plan& plan) {
  if (plan.schedule != Schedule::stream_k) return 0;
  return static_cast<size_t>(plan.blocks) * kPartsOfARange * instance.part_bytes + kCounterBytes;
}

uint32_t* spare_stream_k_counters(const Instance& instance, const Plan& plan, const AttentionArguments& a) {
  return reinterpret_cast<uint32_t*>(static_cast<unsigned char*>(a.workspace) +
                                     stream_k_workspace_bytes(instance, plan) - kCounterBytes);
}

const char* fill_stream_k(StreamK& e, const Instance& instance, const Plan& plan, const AttentionArguments& a,
                          cudaStream_t stream) {
  const auto ranges = [](int tiles, int share) {
    return StreamK::Ranges{tiles, share, Division::by(static_cast<uint32_t>(std::max(1, share)))};
  };
  e.sums = static_cast<float*>(a.workspace);
  e.rounds = plan.rounds;
  e.whole = plan.rounds * plan.blocks;
  e.tall = plan.tall;
  e.tall_ranges = plan.tall_ranges;
  e.key_blocks = static_cast<int32_t>(ceil_div(a.seq_kv, instance.block_n));
  e.of_tall = ranges(plan.left_tall, plan.share_of_tall);
  e.of_small = ranges(plan.left_small, plan.share_of_small);
  e.by_tall = Division::by(static_cast<uint32_t>(std::max(1, plan.tall)));
  e.by_key_blocks = Division::by(static_cast<uint32_t>(e.key_blocks));
  return take_counters(e.counters, spare_stream_k_counters(instance, plan, a), stream);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
