#include "launch.h"

#include <algorithm>
#include <cstdint>

#include "../../../arithmetic.h"
#include "../../tensor_map.h"
#include "realigned.h"
#include "stream_k.h"

namespace cuda_llm_ops::cuda::sm90::flash {
namespace {

TensorMapArguments head_map(const void* pointer, const AttentionArguments& a, int columns, int seq, int heads,
                            const HeadStrides& stride, int box_rows) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = a.type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  map.rank = 4;
  const int64_t sizes[] = {columns, seq, heads, a.batch};
  const int64_t strides[] = {1, stride.seq, stride.head, stride.batch};
  for (int i = 0; i < 4; ++i) {
    map.size[i] = static_cast<uint64_t>(sizes[i]);
    // The stride of an extent of 1 is never used, and may be anything.
    map.stride_bytes[i] = static_cast<uint64_t>(sizes[i] == 1 ? columns : strides[i]) * 2;
  }
  map.box[0] = 64;
  map.box[1] = static_cast<uint32_t>(box_rows);
  map.box[2] = map.box[3] = 1;
  return map;
}

}  // namespace

bool describable(const AttentionArguments& a) {
  const auto aligned = [&](const void* pointer, int seq, int heads, const HeadStrides& stride) {
    const auto multiple = [](int64_t size, int64_t elements) {
      return size == 1 || (elements > 0 && elements % 8 == 0 && elements < int64_t{1} << 38);
    };
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && multiple(seq, stride.seq) &&
           multiple(heads, stride.head) && multiple(a.batch, stride.batch);
  };
  return a.head_dim % 8 == 0 && a.value_dim % 8 == 0 && aligned(a.q, a.seq_q, a.heads, a.q_stride) &&
         aligned(a.k, a.seq_kv, a.kv_heads, a.k_stride) && aligned(a.v, a.seq_kv, a.kv_heads, a.v_stride) &&
         aligned(a.out, a.seq_q, a.heads, a.out_stride);
}

const char* launch(const Instance& instance, const Plan& plan, const AttentionArguments& a, cudaStream_t stream) {
  Parameters p{};
  if (instance.realigned) {
    p.q_rows = rows_of(a.q, a, a.seq_q, a.heads, a.q_stride);
    p.k_rows = rows_of(a.k, a, a.seq_kv, a.kv_heads, a.k_stride);
    p.v_rows = rows_of(a.v, a, a.seq_kv, a.kv_heads, a.v_stride);
    const char* error = fill_realignment(p.realignment, instance, plan, a, stream);
    if (error != nullptr) return error;
  } else {
    const int kv_rows = instance.block_n / instance.cluster;
    const struct {
      CUtensorMap* map;
      const void* pointer;
      int columns, seq, heads, rows;
      const HeadStrides& stride;
    } tensors[] = {{&p.q, a.q, a.head_dim, a.seq_q, a.heads, 64, a.q_stride},
                   {&p.k, a.k, a.head_dim, a.seq_kv, a.kv_heads, kv_rows, a.k_stride},
                   {&p.v, a.v, a.value_dim, a.seq_kv, a.kv_heads, kv_rows, a.v_stride}};
    for (const auto& t : tensors) {
      const char* error = encode_tensor_map(t.map, head_map(t.pointer, a, t.columns, t.seq, t.heads, t.stride, t.rows));
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
  p.value_dim = a.value_dim;
  p.heads = a.heads;
  p.group = a.heads / a.kv_heads;
  p.m_tiles = static_cast<int32_t>(ceil_div(a.seq_q, instance.block_m));
  p.batch_heads = a.batch * a.heads;
  p.by_heads = Division::by(static_cast<uint32_t>(a.heads));
  p.by_visits = Division::by(static_cast<uint32_t>(plan.schedule == Schedule::pairs    ? (p.m_tiles + 1) / 2
                                                   : plan.schedule == Schedule::slices ? plan.slices
                                                                                       : p.m_tiles));
  p.section = plan.section;
  p.pair_rounds = plan.pair_rounds;
  p.tail_head = plan.tail_head;
  p.slices = plan.slices;
  p.slice_units = plan.slice_units;
  p.slice_tall = plan.slice_tall;
  p.slice_tiles = plan.slice_tiles;
  p.by_slice_tiles = Division::by(static_cast<uint32_t>(std::max(1, plan.slice_tiles)));
  p.by_tail = Division::by(static_cast<uint32_t>(std::max(1, p.batch_heads - plan.tail_head)));
  const bool stream_k = plan.schedule == Schedule::stream_k;
  if (stream_k) {
    if (const char* error = fill_stream_k(p.stream_k, instance, plan, a, stream); error != nullptr) return error;
  }
  p.schedule = plan.schedule;
  p.scale_log2 = a.scale * kLog2E;
  p.causal = a.causal;
  void* arguments[] = {&p};
  const dim3 blocks(static_cast<unsigned>(plan.blocks));
  // Early launch only helps realigned kernels of one round: with several, thread blocks that wait for the previous
  // kernel were slower than a launch that waits. No early launch after a memset of the counters: the stream's
  // predecessor is then not a kernel.
  const bool one_round = int64_t{p.m_tiles} * p.batch_heads <= plan.blocks;
  const bool behind_memset = instance.realigned
                                 ? p.realignment.counters == spare_realignment_counters(instance, a)
                                 : stream_k && p.stream_k.counters == spare_stream_k_counters(instance, plan, a);
  const bool early = (!instance.realigned || one_round) && !behind_memset;
  return attention::launch(instance.kernel, blocks, instance.kernel.threads, arguments, stream, early,
                           instance.cluster);
}

}  // namespace cuda_llm_ops::cuda::sm90::flash
