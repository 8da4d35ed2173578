// Which Hopper kernel computes flash_attention with options, and its launch.
#include "varlen.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>

#include "../../../arithmetic.h"
#include "../../device.h"
#include "../../tensor_map.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

// K and V of this many bytes stay in the L2 while a section of heads is worked on.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

// A tensor as TMA sees it: sequences of variable length are one long sequence of a batch of 1.
struct View {
  const void* pointer;
  int64_t rows, heads, batch;
  HeadStrides stride;
};

struct Views {
  View q, k, v, out;
};

Views views_of(const AttentionArguments& a, const AttentionOptions& options) {
  const bool varlen = options.cu_seqlens_q != nullptr;
  const int64_t batch = varlen ? 1 : a.batch;
  const int64_t rows_q = varlen ? options.total_q : a.seq_q, rows_kv = varlen ? options.total_kv : a.seq_kv;
  return {{a.q, rows_q, a.heads, batch, a.q_stride},
          {a.k, rows_kv, a.kv_heads, batch, a.k_stride},
          {a.v, rows_kv, a.kv_heads, batch, a.v_stride},
          {a.out, rows_q, a.heads, batch, a.out_stride}};
}

// Whether TMA can describe it, and 16-byte stores fill it.
bool aligned(const View& view) {
  const auto multiple = [](int64_t size, int64_t elements) {
    return size == 1 || (elements > 0 && elements % 8 == 0 && elements < int64_t{1} << 38);
  };
  return reinterpret_cast<uintptr_t>(view.pointer) % 16 == 0 && view.rows > 0 && multiple(view.rows, view.stride.seq) &&
         multiple(view.heads, view.stride.head) && multiple(view.batch, view.stride.batch);
}

const char* encode(CUtensorMap* to, const View& view, ScalarType type, int columns, int box_rows) {
  TensorMapArguments map;
  map.pointer = view.pointer;
  map.type = type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  map.rank = 4;
  const int64_t sizes[] = {columns, view.rows, view.heads, view.batch};
  const int64_t strides[] = {1, view.stride.seq, view.stride.head, view.stride.batch};
  for (int i = 0; i < 4; ++i) {
    map.size[i] = static_cast<uint64_t>(sizes[i]);
    // The stride of an extent of 1 is never used, and may be anything.
    map.stride_bytes[i] = static_cast<uint64_t>(sizes[i] == 1 ? columns : strides[i]) * 2;
  }
  map.box[0] = 64;
  map.box[1] = static_cast<uint32_t>(box_rows);
  map.box[2] = map.box[3] = 1;
  return encode_tensor_map(to, map);
}

// nullptr: none takes so narrow a V.
const varlen::Instance* instance_for(const AttentionArguments& a) {
  for (const varlen::Instances instances : varlen::kInstances) {
    for (const varlen::Instance& one : instances(a.type)) {
      const bool narrow = one.value_dim < one.head_dim;
      if (narrow == (a.value_dim < a.head_dim) && a.head_dim <= one.head_dim && a.value_dim <= one.value_dim &&
          (!narrow || a.head_dim > one.value_dim)) {
        return &one;
      }
    }
  }
  return nullptr;
}

}  // namespace

bool varlen_supported(const AttentionArguments& a, const AttentionOptions& options) {
  // Scores are scaled after they are masked: the factor must leave minus infinity what it is.
  const float folded = a.scale * kLog2E;
  const Views views = views_of(a, options);
  return a.type != ScalarType::float32 && a.head_dim % 8 == 0 && a.value_dim % 8 == 0 && folded > 0.0f &&
         folded <= FLT_MAX && instance_for(a) != nullptr && aligned(views.q) && aligned(views.k) && aligned(views.v) &&
         aligned(views.out) && current_device_or_none().capability == 90;
}

const char* flash_attention_varlen(const AttentionArguments& a, const AttentionOptions& options, cudaStream_t stream) {
  const varlen::Instance* const instance = instance_for(a);
  varlen::Parameters p{};
  const Views views = views_of(a, options);
  const char* refused = encode(&p.q, views.q, a.type, a.head_dim, 64);
  if (refused == nullptr) refused = encode(&p.k, views.k, a.type, a.head_dim, instance->block_n);
  if (refused == nullptr) refused = encode(&p.v, views.v, a.type, a.value_dim, instance->block_n);
  if (refused != nullptr) return refused;
  p.out = a.out;
  p.out_batch = a.out_stride.batch;
  p.out_head = a.out_stride.head;
  p.out_seq = a.out_stride.seq;
  p.seq_q = a.seq_q;
  p.seq_kv = a.seq_kv;
  p.value_dim = a.value_dim;
  p.heads = a.heads;
  p.group = a.heads / a.kv_heads;
  p.m_tiles = static_cast<int32_t>(ceil_div(a.seq_q, varlen::kBlockM));
  p.batch_heads = a.batch * a.heads;
  // Longest first needs many heads at once, reuse of the L2 few.
  const int64_t kv_bytes = std::max<int64_t>(1, int64_t{2} * (a.head_dim + a.value_dim) * a.seq_kv);
  p.section = static_cast<int32_t>(std::clamp<int64_t>(kSectionBytes / kv_bytes * p.group, p.group, p.batch_heads));
  p.scale_log2 = a.scale * kLog2E;
  p.options = options;
  const int64_t tiles = int64_t{p.m_tiles} * p.batch_heads;
  const dim3 blocks(static_cast<unsigned>(std::min<int64_t>(current_device_or_none().multiprocessors, tiles)));
  void* arguments[] = {&p};
  return attention::launch(instance->kernel, blocks, instance->kernel.threads, arguments, stream, true);
}

void varlen_attributes(std::vector<KernelAttributes>& into) {
  for (const varlen::Instances instances : varlen::kInstances) {
    for (const ScalarType type : {ScalarType::float16, ScalarType::bfloat16}) {
      for (const varlen::Instance& instance : instances(type)) attention::add_attributes(instance.kernel, into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
