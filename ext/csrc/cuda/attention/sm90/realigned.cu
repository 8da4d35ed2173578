#include "realigned.h"

#include <algorithm>
#include <cstdint>

#include "../../../arithmetic.h"
#include "workspace.h"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

// Tickets that a thread block realigns before it begins: an even number. With fewer, the realigners have more to do
// beside the products of a tile. Not more than half of all tickets, unless products or tickets are few.
constexpr int64_t kLeastFirstTickets = 2, kSomeFirstTickets = 4, kMostFirstTickets = 14;

size_t tile_bytes(const Instance& instance, const AttentionArguments& a) {
  return static_cast<size_t>(a.batch) * a.kv_heads * ceil_div(a.seq_kv, instance.block_n) *
         instance.realigned_tile_bytes;
}

}  // namespace

bool realignable(const Instance& instance, const AttentionArguments& a) {
  // The rows of the output must follow one another; the numbers of tickets, counters and chunks must fit.
  const int64_t kv_heads = int64_t{a.batch} * a.kv_heads,
                bytes = static_cast<int64_t>(realignment_workspace_bytes(instance, a));
  return a.head_dim >= instance.least_head_dim && a.out_stride.seq == a.head_dim &&
         reinterpret_cast<uintptr_t>(a.out) % 16 == 0 &&
         kv_heads * ceil_div(a.seq_kv, instance.block_n) <= INT32_MAX / 64 && bytes / 16 <= INT32_MAX &&
         kv_heads <= int64_t{4096} * (kCounters - kRealignmentCounters);
}

size_t realignment_workspace_bytes(const Instance& instance, const AttentionArguments& a) {
  return tile_bytes(instance, a) + kCounterBytes;
}

uint32_t* spare_realignment_counters(const Instance& instance, const AttentionArguments& a) {
  return reinterpret_cast<uint32_t*>(static_cast<unsigned char*>(a.workspace) + tile_bytes(instance, a));
}

Rows rows_of(const void* pointer, const AttentionArguments& a, int seq, int heads, const HeadStrides& stride) {
  int64_t last = a.head_dim;  // elements; a negative stride leads away from the end
  if (a.batch > 1) last += std::max<int64_t>(0, (a.batch - 1) * stride.batch);
  if (heads > 1) last += std::max<int64_t>(0, (heads - 1) * stride.head);
  if (seq > 1) last += std::max<int64_t>(0, (seq - 1) * stride.seq);
  return {pointer, stride.batch, stride.head, stride.seq, reinterpret_cast<uint64_t>(pointer) + last * 2};
}

const char* fill_realignment(Realignment& w, const Instance& instance, const Plan& plan, const AttentionArguments& a,
                             cudaStream_t stream) {
  const int64_t m_tiles = ceil_div(a.seq_q, instance.block_m), group = a.heads / a.kv_heads;
  const int64_t kv_heads = int64_t{a.batch} * a.kv_heads, blocks = ceil_div(a.seq_kv, instance.block_n);
  const int64_t visits = plan.schedule == Schedule::linear ? m_tiles : ceil_div(m_tiles, 2);  // of the grid, to a head
  const int64_t heads = plan.schedule == Schedule::snake ? plan.section : ceil_div(plan.blocks, visits) + 1;
  const int64_t section = std::min(kv_heads, ceil_div(heads, group));
  const int64_t tile_tickets = instance.block_n / 64, units = 2 * blocks * tile_tickets;  // of a head
  const int64_t all_tickets = ceil_div(kv_heads * units, int64_t{2} * plan.blocks) * 2;   // a block's share
  const int64_t products = m_tiles * group * (a.causal ? 1 : 2);  // of four halves of a tile, two of K and two of V
  const int64_t first = products <= 4                  ? kMostFirstTickets
                        : products <= 4 * tile_tickets ? kSomeFirstTickets
                                                       : kLeastFirstTickets;
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
  constexpr int64_t most = kCounters - kRealignmentCounters;
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
  if (used > most) return "too many heads for the attention kernel of realigned rows";
  w.used_counters = static_cast<int32_t>(kRealignmentCounters + used);
  return take_counters(w.counters, spare_realignment_counters(instance, a), stream);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
