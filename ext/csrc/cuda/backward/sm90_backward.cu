// The Hopper kernels of attention's backward on the host: what they work in, their launches.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "../device.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "../launch_config.h"
#include "../tensor_map.h"
#include "sm90_backward.h"
#include "small_kernels.cuh"

namespace cuda_llm_ops::cuda::backward {
namespace {

// From the top left, or where that is the bottom right too; or no mask.
bool is_plain(const BackwardArguments& a) {
  const AttentionOptions& mask = a.options;
  const int64_t diagonal = mask.bottom_right ? int64_t{a.seq_kv} - a.seq_q : 0;
  return mask.left == kEveryKey && (mask.right == kEveryKey || mask.right + diagonal == 0);
}

bool is_causal(const BackwardArguments& a) { return a.options.right != kEveryKey; }

bool is_packed(const BackwardArguments& a) { return a.options.cu_seqlens_q != nullptr; }

// A window in turn has none: its key tiles do not all come to the same queries.
bool has_mask(const Instance& instance, const BackwardArguments& a) {
  if (instance.packed != is_packed(a)) return false;
  if (instance.packed) return !instance.deterministic || a.options.left == kEveryKey;
  return instance.windowed == !is_plain(a);
}

using FamilyFunction = Family (*)();
constexpr FamilyFunction families[] = {family_64, family_128, family_192_of_128, family_192, family_256};

// The first that is wide enough. What lies right of the columns reads as zeros.
const Instance* find(const BackwardArguments& a) {
  for (const FamilyFunction function : families) {
    const Family family = function();
    for (int i = 0; i < family.count; ++i) {
      const Instance& instance = family.instances[i];
      if (instance.type == a.type && instance.head_dim >= a.head_dim && instance.value_dim >= a.value_dim &&
          instance.deterministic == a.deterministic && has_mask(instance, a)) {
        return &instance;
      }
    }
  }
  return nullptr;
}

int32_t padded(int32_t rows) { return (rows + row_padding - 1) / row_padding * row_padding; }

// Of packed sequences; sm90_slots.cuh. No more tiles of so many rows.
int32_t slots(const BackwardArguments& a, int32_t total) { return total / row_padding + a.batch; }

// Of a head in lse, d_sum and the sums, and how many such heads there are.
int32_t padded_queries(const BackwardArguments& a) {
  return is_packed(a) ? slots(a, a.options.total_q) * row_padding : padded(a.seq_q);
}
int64_t all_heads(const BackwardArguments& a) { return int64_t{is_packed(a) ? 1 : a.batch} * a.heads; }

// The parts of the workspace, each a multiple of 256 bytes.
struct Workspace {
  size_t lse, d_sum, turns, dq_sums, bytes;

  Workspace(const BackwardArguments& a, int head_dim) {
    const size_t rows = static_cast<size_t>(all_heads(a)) * padded_queries(a);
    const auto take = [this](size_t wanted) {
      const size_t at = bytes;
      bytes += (wanted + 255) / 256 * 256;
      return at;
    };
    bytes = 0;
    lse = take(rows * 4);
    d_sum = take(rows * 4);
    turns = take(a.deterministic ? rows / sum_rows * (head_dim / 64) * 4 : 0);
    dq_sums = take(rows * head_dim * 4);
  }
};

struct SmallKernels {
  const void* prepare;
  const void* finish;
};

template <typename T, int HeadDim, bool Packed = false>
SmallKernels small_pair() {
  return {reinterpret_cast<const void*>(&prepare<T, HeadDim, Packed>),
          reinterpret_cast<const void*>(&finish<T, HeadDim, Packed>)};
}

template <typename T>
SmallKernels small_of(int head_dim, bool packed) {
  if (packed) return head_dim == 64 ? small_pair<T, 64, true>() : small_pair<T, 128, true>();
  switch (head_dim) {
    case 64: return small_pair<T, 64>();
    case 128: return small_pair<T, 128>();
    case 192: return small_pair<T, 192>();
    default: return small_pair<T, 256>();
  }
}

SmallKernels small_kernels(const Instance& instance) {
  const int head_dim = instance.head_dim;
  return instance.type == GradientType::float16 ? small_of<__half>(head_dim, instance.packed)
                                                : small_of<__nv_bfloat16>(head_dim, instance.packed);
}

const char* encode(CUtensorMap* map, const BackwardArguments& a, const void* pointer, const HeadStrides& strides,
                   int32_t columns, int32_t rows, int32_t heads, int box_rows) {
  TensorMapArguments arguments;
  arguments.pointer = pointer;
  arguments.type = a.type == GradientType::float16 ? TensorMapType::float16 : TensorMapType::bfloat16;
  arguments.rank = 4;
  const uint64_t sizes[] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), static_cast<uint64_t>(heads),
                            static_cast<uint64_t>(is_packed(a) ? 1 : a.batch)};
  // A dimension of size 1 has stride 0 here; TMA wants one that it could step by.
  const int64_t any = (columns + 7) / 8 * 8;
  const auto bytes = [&](int64_t stride) { return static_cast<uint64_t>(stride == 0 ? any : stride) * 2; };
  const uint64_t stride_bytes[] = {0, bytes(strides.seq), bytes(strides.head), bytes(strides.batch)};
  for (int i = 0; i < 4; ++i) {
    arguments.size[i] = sizes[i];
    arguments.stride_bytes[i] = stride_bytes[i];
    arguments.box[i] = 1;
  }
  arguments.box[0] = 64;
  arguments.box[1] = static_cast<uint32_t>(box_rows);
  return encode_tensor_map(map, arguments);
}

// Key heads whose blocks are worked on together, where blocks have unlike lengths: as many as share the L2 cache with
// their queries, dO and sums of dQ. A section's longest blocks come first. If a section has too few to fill the GPU, the
// longest block of the last one is alone at the end, so it has about as many as run at once. In turn, a block is no
// faster than the longer ones before it, in each head of a group: few blocks of a key head should run at a time. Blocks
// of packed sequences differ most, and wait least for each other in few sections.
int32_t section_of(const BackwardArguments& a, const Instance& instance, int n_tiles) {
  if (!is_packed(a) && is_plain(a) && !is_causal(a)) return 1;
  constexpr int64_t cache = 32 << 20;
  const int64_t group = a.heads / a.kv_heads, head = group * padded(a.seq_q) * a.head_dim * 8;
  const int64_t running = current_device_or_none().multiprocessors / instance.cluster;
  const int64_t blocks = (a.deterministic && group > 1 ? 8 : is_packed(a) ? 4 : 1) * running;
  const int64_t all = int64_t{is_packed(a) ? 1 : a.batch} * a.kv_heads;
  const int64_t wanted = std::clamp<int64_t>(std::max(cache / head, blocks / n_tiles), 1, all), sections = all / wanted;
  return static_cast<int32_t>((all + sections - 1) / sections);
}

}  // namespace

bool sm90_takes(const BackwardArguments& a) {
  return current_device_or_none().capability == 90 && find(a) != nullptr && all_heads(a) <= 65535;
}

size_t sm90_workspace_bytes(const BackwardArguments& a) { return Workspace(a, find(a)->head_dim).bytes; }

const char* launch_sm90(const BackwardArguments& a, cudaStream_t stream) {
  const Instance* const instance = find(a);
  if (instance == nullptr) return "no Hopper backward for this dtype and head_dim";
  unsigned char* const memory = static_cast<unsigned char*>(a.workspace);
  const Workspace workspace(a, instance->head_dim);

  Parameters p{};
  const bool packed = is_packed(a);
  const int32_t all_q = packed ? a.options.total_q : a.seq_q, all_kv = packed ? a.options.total_kv : a.seq_kv;
  const char* refusal = encode(&p.q, a, a.q, a.q_stride, a.head_dim, all_q, a.heads, instance->block_m);
  if (refusal == nullptr)
    refusal = encode(&p.d_out, a, a.d_out, a.d_out_stride, a.value_dim, all_q, a.heads, instance->block_m);
  if (refusal == nullptr) refusal = encode(&p.k, a, a.k, a.k_stride, a.head_dim, all_kv, a.kv_heads, instance->block_n);
  if (refusal == nullptr)
    refusal = encode(&p.v, a, a.v, a.v_stride, a.value_dim, all_kv, a.kv_heads, instance->block_n);
  if (refusal != nullptr) return refusal;
  p.lse = reinterpret_cast<float*>(memory + workspace.lse);
  p.d_sum = reinterpret_cast<float*>(memory + workspace.d_sum);
  p.dq_sums = reinterpret_cast<float*>(memory + workspace.dq_sums);
  p.turns = reinterpret_cast<uint32_t*>(memory + workspace.turns);
  p.dk = a.dk;
  p.dv = a.dv;
  p.head_dim = a.head_dim;
  p.value_dim = a.value_dim;
  p.seq_q = a.seq_q;
  p.seq_kv = a.seq_kv;
  p.padded_q = padded_queries(a);
  p.kv_heads = a.kv_heads;
  p.group = a.heads / a.kv_heads;
  p.m_tiles = (a.seq_q + instance->block_m - 1) / instance->block_m;
  const int keys = instance->block_n * instance->cluster;
  p.n_tiles = packed ? slots(a, all_kv) : (a.seq_kv + keys - 1) / keys;
  p.batch_heads = packed ? a.kv_heads : a.batch * a.kv_heads;
  p.section = section_of(a, *instance, p.n_tiles);
  p.scale = static_cast<float>(a.scale);
  p.scale_log2 = static_cast<float>(a.scale * 1.4426950408889634);
  p.causal = is_causal(a) && (!packed || a.options.left == kEveryKey);
  const int32_t diagonal = a.options.bottom_right ? a.seq_kv - a.seq_q : 0;
  p.low = diagonal - a.options.left;
  p.high = diagonal + a.options.right + 1;
  p.options = a.options;
  p.dk_stride = a.dk_stride;
  p.dv_stride = a.dv_stride;
  p.sequences = a.batch;

  // Kernels for one sequence read the first part.
  PackedPrepareParameters before{
      {a.out, a.d_out, a.lse, a.d_lse, const_cast<float*>(p.lse), const_cast<float*>(p.d_sum),
       a.deterministic && !packed ? nullptr : p.dq_sums, a.deterministic ? p.turns : nullptr, a.out_stride,
       a.d_out_stride, a.heads, a.seq_q, p.padded_q, a.value_dim},
      a.options,
      a.batch};
  PackedFinishParameters after{
      {p.dq_sums, a.dq, a.seq_q, p.padded_q, a.head_dim, p.scale}, a.options, a.dq_stride, a.batch};
  const SmallKernels small = small_kernels(*instance);
  const dim3 rows(static_cast<unsigned>(p.padded_q / sum_rows), static_cast<unsigned>(all_heads(a)));
  void* before_arguments[] = {&before};
  void* arguments[] = {&p};
  void* after_arguments[] = {&after};
  cudaError_t error = allow_dynamic_shared(instance->kernel, instance->shared_bytes);
  if (error == cudaSuccess) {
    error = LaunchConfig(rows, small_threads, 0, stream).launch(small.prepare, before_arguments);
  }
  if (error == cudaSuccess) {
    const dim3 blocks(static_cast<unsigned>(p.n_tiles * p.batch_heads * instance->cluster));
    LaunchConfig config(blocks, instance->threads, instance->shared_bytes, stream);
    if (instance->cluster > 1) config.cluster(instance->cluster);
    error = config.early().launch(instance->kernel, arguments);
  }
  if (error == cudaSuccess) {
    const dim3 blocks(packed ? rows.x : static_cast<unsigned>((a.seq_q + sum_rows - 1) / sum_rows), rows.y);
    error = LaunchConfig(blocks, instance->head_dim * 2, 0, stream).early().launch(small.finish, after_arguments);
  }
  return error_text(error);
}

void sm90_attributes(std::vector<KernelAttributes>& into) {
  for (const FamilyFunction function : families) {
    const Family family = function();
    for (int i = 0; i < family.count; ++i) {
      const Instance& instance = family.instances[i];
      add_kernel_attributes("flash_attention_backward", instance.name, instance.kernel, instance.shared_bytes, into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::backward
