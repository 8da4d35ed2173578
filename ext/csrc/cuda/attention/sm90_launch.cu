#include "sm90_launch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "../decode/counters.h"
#include "../tensor_map.h"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

// K and V of this many bytes stay in the L2 while a section of heads is worked on.
constexpr int64_t section_bytes = int64_t{32} << 20;

// Tickets that a thread block packs before it begins, an even number: the fewer, the more products a tile has to pack beside. Not
// more than half of all, unless products or tickets are few.
constexpr int64_t least_first_tickets = 2, some_first_tickets = 4, most_first_tickets = 14;

// What a tile of two warpgroups, and of one, takes of one of three.
constexpr double small_tile = 0.82, smallest_tile = 0.6;

// What it takes to leave a tile's parts, in the unit of Cost.
constexpr double sharing = 200;

TensorMapArguments head_map(const void* pointer, const AttentionArguments& a, int seq, int heads,
                            const HeadStrides& stride, int box_rows) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = a.type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  map.rank = 4;
  const int64_t sizes[] = {a.head_dim, seq, heads, a.batch};
  const int64_t strides[] = {1, stride.seq, stride.head, stride.batch};
  for (int i = 0; i < 4; ++i) {
    map.size[i] = static_cast<uint64_t>(sizes[i]);
    // The stride of an extent of 1 is never used, and may be anything.
    map.stride_bytes[i] = static_cast<uint64_t>(sizes[i] == 1 ? a.head_dim : strides[i]) * 2;
  }
  map.box[0] = 64;
  map.box[1] = static_cast<uint32_t>(box_rows);
  map.box[2] = map.box[3] = 1;
  return map;
}

Rows rows_of(const void* pointer, const AttentionArguments& a, int seq, int heads, const HeadStrides& stride) {
  int64_t last = a.head_dim;  // elements; a negative stride leads away from the end
  if (a.batch > 1) last += std::max<int64_t>(0, (a.batch - 1) * stride.batch);
  if (heads > 1) last += std::max<int64_t>(0, (heads - 1) * stride.head);
  if (seq > 1) last += std::max<int64_t>(0, (seq - 1) * stride.seq);
  return {pointer, stride.batch, stride.head, stride.seq, reinterpret_cast<uint64_t>(pointer) + last * 2};
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of a packing instance's workspace: the tiles, and counters behind them.
size_t tile_bytes(const Instance& instance, const AttentionArguments& a) {
  return static_cast<size_t>(a.batch) * a.kv_heads * ceil_div(a.seq_kv, instance.block_n) * instance.packed_tile_bytes;
}
constexpr size_t counter_bytes = decode::kCounters * sizeof(uint32_t);
uint32_t* counters_behind_parts(const Instance& instance, const Plan& plan, const AttentionArguments& a) {
  return reinterpret_cast<uint32_t*>(static_cast<unsigned char*>(a.workspace) +
                                     shared_tiles_bytes(instance, plan) - counter_bytes);
}
// There is a set of counters for each of some hundred streams and graphs at a time: beyond those, `spare`, set to zero.
const char* take_counters(uint32_t*& counters, uint32_t* spare, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  counters = decode::counters_for(stream, &error);
  if (error == cudaSuccess && counters == nullptr) {
    counters = spare;
    error = cudaMemsetAsync(counters, 0, counter_bytes, stream);
  }
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
uint32_t* counters_behind_tiles(const Instance& instance, const AttentionArguments& a) {
  return reinterpret_cast<uint32_t*>(static_cast<unsigned char*>(a.workspace) + tile_bytes(instance, a));
}

// Which tiles are packed together, and which counters count them: a counter for each tile where there are enough.
const char* plan_packing(Packing& w, const Instance& instance, const Plan& plan, const AttentionArguments& a,
                         cudaStream_t stream) {
  const int64_t m_tiles = ceil_div(a.seq_q, instance.block_m), group = a.heads / a.kv_heads;
  const int64_t kv_heads = int64_t{a.batch} * a.kv_heads, blocks = ceil_div(a.seq_kv, instance.block_n);
  const int64_t visits = plan.schedule == Schedule::linear ? m_tiles : ceil_div(m_tiles, 2);  // of the grid, to a head
  const int64_t heads = plan.schedule == Schedule::snake ? plan.section : ceil_div(plan.blocks, visits) + 1;
  const int64_t section = std::min(kv_heads, ceil_div(heads, group));
  const int64_t tile_tickets = instance.block_n / 64, units = 2 * blocks * tile_tickets;  // of a head
  const int64_t all_tickets = ceil_div(kv_heads * units, int64_t{2} * plan.blocks) * 2;  // a block's share
  const int64_t products = m_tiles * group * (a.causal ? 1 : 2);  // of four halves of a tile, two of K and two of V
  const int64_t first = products <= 4                  ? most_first_tickets
                        : products <= 4 * tile_tickets ? some_first_tickets
                                                       : least_first_tickets;
  w.first_tickets = static_cast<int32_t>(
      std::min(first, products <= 8 || all_tickets <= 4 ? all_tickets : (all_tickets + 2) / 4 * 2));
  while (int64_t{1} << w.tile_shift < tile_tickets) ++w.tile_shift;
  w.workspace = a.workspace;
  w.kv_heads = static_cast<int32_t>(kv_heads);
  w.batch_heads = a.kv_heads;
  w.blocks = static_cast<int32_t>(blocks);
  w.section = static_cast<int32_t>(section);
  w.last_section = static_cast<int32_t>((kv_heads - 1) / section);
  w.section_tickets = static_cast<uint32_t>(section * units);
  w.tickets = static_cast<uint32_t>(kv_heads * units);
  w.half = static_cast<uint32_t>(section * tile_tickets);
  w.last_half = static_cast<uint32_t>((kv_heads - w.last_section * section) * tile_tickets);
  w.by_section = Division::by(w.section_tickets);
  w.by_half = Division::by(w.half);
  w.by_last_half = Division::by(w.last_half);
  w.by_batch = Division::by(static_cast<uint32_t>(a.kv_heads));
  constexpr int64_t most = decode::kCounters - packing_counters;
  int64_t used;
  if (kv_heads <= most) {
    w.counter_heads = 1;
    while (kv_heads * ceil_div(2 * blocks, int64_t{1} << w.counter_shift) > most) ++w.counter_shift;
    w.head_counters = static_cast<int32_t>(ceil_div(2 * blocks, int64_t{1} << w.counter_shift));
    used = kv_heads * w.head_counters;
  } else {
    w.counter_heads = w.section;
    used = ceil_div(kv_heads, section);
  }
  if (used > most) return "too many heads for the attention kernel of packed tiles";
  w.used_counters = static_cast<int32_t>(packing_counters + used);
  return take_counters(w.counters, counters_behind_tiles(instance, a), stream);
}

const char* plan_sharing(Even& e, const Instance& instance, const Plan& plan, const AttentionArguments& a,
                         cudaStream_t stream) {
  const auto ranges = [](int tiles, int share) {
    return Even::Ranges{tiles, share, Division::by(static_cast<uint32_t>(std::max(1, share)))};
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
  return take_counters(e.counters, counters_behind_parts(instance, plan, a), stream);
}

// Schedule::even, if it can be.
void share_tiles(Plan& plan, const Instance& instance, const AttentionArguments& a, int multiprocessors, int64_t key_blocks,
                 double block_cost) {
  const int64_t heads = int64_t{a.batch} * a.heads;
  const int64_t tall = a.seq_q / instance.block_m, small_units = ceil_div(a.seq_q % instance.block_m, 64);
  const int64_t rounds = tall * heads / multiprocessors, left_tall = tall * heads - rounds * multiprocessors;
  const int64_t left_small = small_units > 0 ? heads : 0, left = left_tall + left_small;
  if (left == 0 || left * (instance.block_m / 16) > decode::kCounters || left * key_blocks > INT32_MAX / 2) return;
  // What is worked in does not grow with the sequence: where it is more than the output, memory would not be linear in it.
  const int64_t output_bytes = heads * a.seq_q * a.head_dim * 2;
  if (int64_t{multiprocessors} * parts_of_a_range * instance.part_bytes > output_bytes) return;
  const double small = small_units == 1 ? smallest_tile : small_tile;
  const auto share = [&](int64_t tiles, int64_t blocks) {
    return tiles == 0 ? 0 : std::max(ceil_div(tiles * key_blocks, blocks), ceil_div(key_blocks, most_ranges - 1));
  };
  // As many thread blocks for either kind of tile as takes the same time.
  const double part = static_cast<double>(left_tall) / (static_cast<double>(left_tall) + small * static_cast<double>(left_small));
  int64_t tall_ranges = std::lround(part * multiprocessors);
  if (left_tall > 0) tall_ranges = std::max<int64_t>(tall_ranges, 1);
  if (left_small > 0) tall_ranges = std::min<int64_t>(tall_ranges, multiprocessors - 1);
  if (left_tall > 0 && tall_ranges == 0) return;
  const int64_t of_tall = share(left_tall, tall_ranges), of_small = share(left_small, multiprocessors - tall_ranges);
  if (of_tall > key_blocks || of_small > key_blocks) return;
  const double ranges = std::max(static_cast<double>(of_tall), static_cast<double>(of_small) * small) * block_cost;
  const double tile_cost = static_cast<double>(key_blocks) * block_cost + instance.cost.tile;
  plan.cost = static_cast<double>(rounds) * tile_cost + ranges + 2 * instance.cost.tile + sharing;
  plan.schedule = Schedule::even;
  plan.blocks = multiprocessors;
  plan.rounds = static_cast<int>(rounds);
  plan.tall = static_cast<int>(tall);
  plan.left_tall = static_cast<int>(left_tall);
  plan.left_small = static_cast<int>(left_small);
  plan.tall_ranges = static_cast<int>(tall_ranges);
  plan.share_of_tall = static_cast<int>(of_tall);
  plan.share_of_small = static_cast<int>(of_small);
}

}  // namespace

size_t shared_tiles_bytes(const Instance& instance, const Plan& plan) {
  if (plan.schedule != Schedule::even) return 0;
  return static_cast<size_t>(plan.blocks) * parts_of_a_range * instance.part_bytes + counter_bytes;
}

Plan plan(const Instance& instance, const AttentionArguments& a, int multiprocessors, bool may_share) {
  const int64_t batch_heads = int64_t{a.batch} * a.heads;
  const int64_t m_tiles = ceil_div(a.seq_q, instance.block_m);
  const int64_t tiles = m_tiles * batch_heads;
  const int64_t blocks = std::min<int64_t>(multiprocessors / instance.cluster, tiles);  // or clusters
  const int64_t all_keys = ceil_div(a.seq_kv, instance.block_n);
  const bool misaligned = !instance.packed && alignment(a) < 32;
  const int warpgroups = instance.split_keys ? 1 : instance.block_m / instance.cluster / 64;
  const double block_cost =
      (a.causal ? instance.cost.causal : instance.cost.full) * (misaligned ? instance.cost.misaligned : 1.0) *
      instance.block_n * warpgroups;
  Plan plan{};
  plan.blocks = static_cast<int>(blocks) * instance.cluster;
  plan.section = plan.tail_head = static_cast<int>(batch_heads);
  plan.pair_rounds = INT32_MAX / 2;
  if (instance.even) {
    plan.cost = std::numeric_limits<double>::infinity();
    if (!a.causal && may_share) share_tiles(plan, instance, a, multiprocessors, all_keys, block_cost);
    return plan;
  }
  if (!a.causal) {
    plan.schedule = Schedule::linear;
    const double tile_cost = static_cast<double>(all_keys) * block_cost + instance.cost.tile;
    plan.cost = static_cast<double>(ceil_div(tiles, blocks)) * tile_cost;
    // Where tiles of three warpgroups do not share out among the blocks: each takes a share of a head, in tiles of three
    // and of two.
    const int64_t units = ceil_div(a.seq_q, 64);
    const int64_t most_chunks = instance.joined && warpgroups == 3 ? std::min<int64_t>(units / 2, 64) : 0;
    for (int64_t chunks = 1; chunks <= most_chunks; ++chunks) {
      const int64_t in_chunk = ceil_div(units, chunks), small = in_chunk == 1 ? 0 : (3 - in_chunk % 3) % 3;
      const int64_t tall = (in_chunk - 2 * small) / 3;
      const double cost = static_cast<double>(ceil_div(batch_heads * chunks, multiprocessors)) * tile_cost *
                          (static_cast<double>(tall) + small_tile * static_cast<double>(small));
      if (in_chunk < 2 || cost >= plan.cost) continue;
      plan.cost = cost;
      plan.schedule = Schedule::chunks;
      plan.blocks = static_cast<int>(std::min<int64_t>(multiprocessors, batch_heads * chunks));
      plan.chunks = static_cast<int>(chunks);
      plan.chunk_units = static_cast<int>(in_chunk);
      plan.chunk_tall = static_cast<int>(tall);
      plan.chunk_tiles = static_cast<int>(tall + small);
    }
    return plan;
  }
  // Longest first needs many heads at once, reuse of the L2 few; pairs of equal length need neither, but enough of
  // them to fill the card evenly.
  const int64_t kv_in_section = std::max<int64_t>(1, section_bytes / (int64_t{4} * a.head_dim * a.seq_kv));
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
  const double even = head_cost * static_cast<double>(batch_heads) / static_cast<double>(blocks);
  const double snake = std::max(longest, even + 0.5 * longest / static_cast<double>(m_tiles));
  const double one_pair = head_cost / (static_cast<double>(m_tiles) / 2.0);
  const int64_t head_pairs = ceil_div(m_tiles, 2), all_pairs = head_pairs * batch_heads;
  double pairs = static_cast<double>(ceil_div(all_pairs, blocks)) * one_pair;
  // A last round that few blocks have a pair for is dealt with the rounds before it tile by tile, longest first.
  for (int64_t rounds = all_pairs / blocks; instance.joined && rounds >= 0; --rounds) {
    if (rounds * blocks % head_pairs != 0) continue;
    const int64_t heads = batch_heads - rounds * blocks / head_pairs;
    const double tail_even = head_cost * static_cast<double>(heads) / static_cast<double>(blocks);
    const double tail = std::max(longest, tail_even + longest / static_cast<double>(m_tiles));
    const double cost = static_cast<double>(rounds) * one_pair + tail;
    if (heads > 0 && cost < pairs) {
      pairs = cost;
      plan.pair_rounds = static_cast<int>(rounds);
      plan.tail_head = static_cast<int>(batch_heads - heads);
    }
    if (tail_even > 2 * longest) break;
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

bool describable(const AttentionArguments& a) {
  const auto aligned = [&](const void* pointer, int seq, int heads, const HeadStrides& stride) {
    const auto multiple = [](int64_t size, int64_t elements) {
      return size == 1 || (elements > 0 && elements % 8 == 0 && elements < int64_t{1} << 38);
    };
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && multiple(seq, stride.seq) &&
           multiple(heads, stride.head) && multiple(a.batch, stride.batch);
  };
  return a.head_dim % 8 == 0 && aligned(a.q, a.seq_q, a.heads, a.q_stride) &&
         aligned(a.k, a.seq_kv, a.kv_heads, a.k_stride) && aligned(a.v, a.seq_kv, a.kv_heads, a.v_stride) &&
         aligned(a.out, a.seq_q, a.heads, a.out_stride);
}

bool packable(const Instance& instance, const AttentionArguments& a) {
  // The rows of the output follow one another, and tickets, counters and chunks of the workspace have numbers.
  const int64_t kv_heads = int64_t{a.batch} * a.kv_heads, bytes = static_cast<int64_t>(workspace_bytes(instance, a));
  return a.head_dim >= instance.least_head_dim && a.out_stride.seq == a.head_dim &&
         reinterpret_cast<uintptr_t>(a.out) % 16 == 0 &&
         kv_heads * ceil_div(a.seq_kv, instance.block_n) <= INT32_MAX / 64 && bytes / 16 <= INT32_MAX &&
         kv_heads <= int64_t{4096} * (decode::kCounters - packing_counters);
}

size_t workspace_bytes(const Instance& instance, const AttentionArguments& a) {
  return tile_bytes(instance, a) + counter_bytes;
}

const char* launch(const Instance& instance, const Plan& plan, const AttentionArguments& a, cudaStream_t stream) {
  Parameters p{};
  if (instance.packed) {
    p.q_rows = rows_of(a.q, a, a.seq_q, a.heads, a.q_stride);
    p.k_rows = rows_of(a.k, a, a.seq_kv, a.kv_heads, a.k_stride);
    p.v_rows = rows_of(a.v, a, a.seq_kv, a.kv_heads, a.v_stride);
    const char* error = plan_packing(p.packing, instance, plan, a, stream);
    if (error != nullptr) return error;
  } else {
    const int kv_rows = instance.block_n / instance.cluster;
    const struct {
      CUtensorMap* map;
      const void* pointer;
      int seq, heads, rows;
      const HeadStrides& stride;
    } tensors[] = {{&p.q, a.q, a.seq_q, a.heads, 64, a.q_stride},
                   {&p.k, a.k, a.seq_kv, a.kv_heads, kv_rows, a.k_stride},
                   {&p.v, a.v, a.seq_kv, a.kv_heads, kv_rows, a.v_stride}};
    for (const auto& t : tensors) {
      const char* error = encode_tensor_map(t.map, head_map(t.pointer, a, t.seq, t.heads, t.stride, t.rows));
      if (error != nullptr) return error;
    }
  }
  p.out = a.out;
  p.out_batch = a.out_stride.batch;
  p.out_head = a.out_stride.head;
  p.out_seq = a.out_stride.seq;
  p.seq_q = a.seq_q;
  p.seq_kv = a.seq_kv;
  p.head_dim = a.head_dim;
  p.heads = a.heads;
  p.group = a.heads / a.kv_heads;
  p.m_tiles = static_cast<int32_t>(ceil_div(a.seq_q, instance.block_m));
  p.batch_heads = a.batch * a.heads;
  p.by_heads = Division::by(static_cast<uint32_t>(a.heads));
  p.by_visits = Division::by(static_cast<uint32_t>(plan.schedule == Schedule::pairs    ? (p.m_tiles + 1) / 2
                                                   : plan.schedule == Schedule::chunks ? plan.chunks
                                                                                       : p.m_tiles));
  p.section = plan.section;
  p.pair_rounds = plan.pair_rounds;
  p.tail_head = plan.tail_head;
  p.chunks = plan.chunks;
  p.chunk_units = plan.chunk_units;
  p.chunk_tall = plan.chunk_tall;
  p.chunk_tiles = plan.chunk_tiles;
  p.by_chunk_tiles = Division::by(static_cast<uint32_t>(std::max(1, plan.chunk_tiles)));
  p.by_tail = Division::by(static_cast<uint32_t>(std::max(1, p.batch_heads - plan.tail_head)));
  const bool even = plan.schedule == Schedule::even;
  if (even) {
    if (const char* error = plan_sharing(p.even, instance, plan, a, stream); error != nullptr) return error;
  }
  p.schedule = plan.schedule;
  p.scale_log2 = a.scale * 1.4426950408889634f;
  p.causal = a.causal;
  void* arguments[] = {&p};
  const dim3 blocks(static_cast<unsigned>(plan.blocks));
  // Where packed tiles take several rounds, blocks that wait for the launch before were slower than a launch that does. And
  // a kernel behind a memset of its counters is no kernel behind a kernel.
  const bool one_round = int64_t{p.m_tiles} * p.batch_heads <= plan.blocks;
  const bool behind_memset = instance.packed ? p.packing.counters == counters_behind_tiles(instance, a)
                                             : even && p.even.counters == counters_behind_parts(instance, plan, a);
  const bool early = (!instance.packed || one_round) && !behind_memset;
  return attention::launch(instance.kernel, blocks, instance.kernel.threads, arguments, stream, early,
                           instance.cluster);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
