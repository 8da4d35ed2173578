// Host side of the tensor-core decode kernels for 8-bit caches: which instance, how many thread blocks, and the launch.
#include "mma.h"

#include <algorithm>
#include <cfloat>
#include <climits>
#include <utility>

#include "../../../arithmetic.h"
#include "../../counters.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../ptx/tma.cuh"
#include "../../tensor_map.h"
#include "../mma/residency.h"
#include "kernels.h"

namespace cuda_llm_ops::cuda::decode {
namespace {

// Bounds of the choice, as in ../mma/mma.cu: bytes of keys and values at full capacity.
constexpr int64_t kLargeBytes = int64_t{1} << 30;      // a large cache
constexpr int64_t kClusterBytes = int64_t{512} << 10;  // the most for one thread block of cluster.cuh

using Arguments = QuantisedDecodeArguments;

int group_rows(const Arguments& a) { return a.heads / a.kv_heads * a.seq_q; }

float scale_log2(const Arguments& a) { return a.scale * kLog2E; }

// The number of blocks of keys at full capacity.
int64_t most_blocks(const Arguments& a, int block_keys, int unit_rows = kRows) {
  return int64_t{a.batch} * ceil_div(group_rows(a), unit_rows) * a.kv_heads * ceil_div(a.capacity, block_keys);
}

bool tma_possible(const Arguments& a, const void* pointer, const CacheStrides& stride) {
  // The stride of an extent of 1 is 0 and never used; TMA has no stride of 0 otherwise.
  const auto fits = [](int64_t size, int64_t step) {
    return size == 1 || (step > 0 && step < int64_t{1} << 39 && step % 16 == 0);
  };
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && fits(a.num_pages, stride.page) &&
         fits(a.page_size, stride.slot) && fits(a.kv_heads, stride.head);
}

// Of pairs of numbers.
TensorMapArguments describe(const Arguments& a, const void* pointer, const CacheStrides& stride, int box_rows,
                            bool whole_rows) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = TensorMapType::float16;
  const auto add = [&map](int64_t size, int64_t step, int box) {
    map.size[map.rank] = static_cast<uint64_t>(size);
    map.stride_bytes[map.rank] = static_cast<uint64_t>(step);
    map.box[map.rank++] = static_cast<uint32_t>(box);
  };
  // Each copy takes whole lines: what L2 would fetch beside them is another copy's.
  map.promote = false;
  const int panels = whole_rows ? a.head_dim / 128 : 1;
  add(whole_rows ? 64 : a.head_dim / 2, 2, 64);
  add(a.page_size, a.page_size == 1 ? a.head_dim : stride.slot, box_rows);
  add(panels, 128, panels);
  add(a.kv_heads, a.kv_heads == 1 ? a.head_dim : stride.head, 1);
  add(a.num_pages, a.num_pages == 1 ? a.head_dim : stride.page, 1);
  return map;
}

struct Sizes {
  size_t partial = 0, stats = 0, counters = 0;  // bytes; all 0 for cluster.cuh

  Sizes(const Arguments& a, const MmaPlan& plan) {
    if (plan.instance->kind == MmaKind::cluster) return;
    const int unit_rows = plan.instance->unit_rows();
    const size_t rows = static_cast<size_t>(std::min(group_rows(a), unit_rows)), head_dim = plan.instance->head_dim;
    const size_t slots = 2 * static_cast<size_t>(plan.blocks);
    partial = slots * rows * head_dim * sizeof(float);
    stats = slots * unit_rows * sizeof(float2);
    counters = kCounters * sizeof(uint32_t);
  }
};

// The part of the batch from `first` on that one launch takes.
Arguments part_of(const Arguments& whole, int first) {
  Arguments a = whole;
  a.batch = std::min(whole.batch - first, kMaxBatch);
  const auto moved = [](const void* pointer, int64_t bytes) {
    return static_cast<const void*>(static_cast<const uint8_t*>(pointer) + bytes);
  };
  a.q = moved(whole.q, 2 * first * whole.q_stride.batch);
  a.out = const_cast<void*>(moved(whole.out, int64_t{2} * first * whole.heads * whole.seq_q * whole.head_dim));
  a.cache_lens = whole.cache_lens + first * whole.lens_stride;
  if (whole.block_table != nullptr) {
    a.block_table = whole.block_table + first * whole.table_stride_batch;
  } else {
    a.k = moved(whole.k, first * whole.k_stride.page);
    a.v = moved(whole.v, first * whole.v_stride.page);
    if (whole.k_scale != nullptr) {
      a.k_scale = whole.k_scale + first * whole.k_scale_stride.page;
      a.v_scale = whole.v_scale + first * whole.v_scale_stride.page;
    }
    a.num_pages = a.batch;
  }
  return a;
}

const QuantisedInstances& instances_of(const Arguments& a) {
  const bool bfloat16 = a.type == ScalarType::bfloat16;
  if (a.cache_type == CacheType::e4m3) return bfloat16 ? quantised_e4m3_bfloat16() : quantised_e4m3_float16();
  return bfloat16 ? quantised_int8_bfloat16() : quantised_int8_float16();
}

MmaPlan plan_of(const Arguments& a) {
  DeviceFacts device;
  MmaPlan plan;
  if (current_device_facts(&device) != cudaSuccess) return plan;
  const int batch = std::min(a.batch, kMaxBatch);
  const auto narrowest = [&](MmaKind kind, bool wide = false) {
    const int rows = std::min(group_rows(a), wide ? kWideUnitRows : kRows);
    const QuantisedInstance* found = nullptr;
    for (const QuantisedInstance& instance : instances_of(a)) {
      if (instance.kind != kind || instance.wide != wide || instance.head_dim < a.head_dim ||
          instance.tile_rows < rows || instance.shared_bytes(rows, batch) > device.shared_per_block) {
        continue;
      }
      const auto size = [](const MmaInstance& i) { return std::pair(i.head_dim, i.tile_rows); };
      if (found == nullptr || size(instance) < size(*found)) found = &instance;
    }
    return found;
  };
  const int64_t bytes = int64_t{2} * a.batch * a.kv_heads * a.capacity * a.head_dim;
  const int64_t row_blocks = ceil_div(group_rows(a), kRows), units = int64_t{a.batch} * a.kv_heads * row_blocks;
  const auto fit = [&](const MmaInstance& instance) {
    const int rows = std::min(group_rows(a), instance.unit_rows());
    return std::max(1, std::min(device.shared_per_sm / (instance.shared_bytes(rows, batch) + 1024), instance.per_sm));
  };
  if (const MmaInstance* const cluster = narrowest(MmaKind::cluster);
      a.batch <= kMaxBatch && cluster != nullptr && units <= int64_t{device.multiprocessors} * fit(*cluster)) {
    plan.instance = cluster;
    plan.cluster = units > device.multiprocessors ? 1 : cluster_size(*cluster, device, units);
    plan.blocks = static_cast<int>(units) * plan.cluster;
    plan.prefetch = 1;
    const bool beside = 2 * plan.blocks <= device.multiprocessors;
    int64_t most = kClusterBytes;
    if (cluster->tile_rows <= kFewRows) {
      // One warp loads the scales of tokens there, which takes longer than the keys.
      if (beside && a.batch == 1 && !a.scale_per_token()) most *= a.block_table == nullptr ? 4 : 2;
      if (!beside && plan.cluster > 1) most /= 2;
    }
    if (plan.blocks > 0 && bytes * row_blocks <= most * plan.blocks) return plan;
  }
  const bool large = bytes >= kLargeBytes;
  plan.cluster = 1;
  const QuantisedInstance* const chosen = narrowest(MmaKind::tma, group_rows(a) > kFewRows);
  if (chosen == nullptr) return plan;
  plan.instance = chosen;
  plan.prefetch = a.batch > kFewSequences ? 0 : large ? 2 : 1;
  int alone = device.multiprocessors;  // thread blocks: each has one of them
  if (!large && alone > 64) alone = alone / 8 * 8;
  const int room = std::min(alone, kCounters / chosen->warps);
  plan.blocks = static_cast<int>(std::min<int64_t>(room, most_blocks(a, chosen->block_keys, chosen->unit_rows())));
  // Two thread blocks have a unit each, if the sequences are of one length.
  const int64_t own_units = int64_t{a.batch} * a.kv_heads * ceil_div(group_rows(a), chosen->unit_rows());
  plan.cluster = plan.blocks == 2 * own_units ? 2 : 1;
  return plan;
}

const char* launch_part(const Arguments& a, const MmaPlan& plan, cudaStream_t stream) {
  QuantisedParameters p{};
  const MmaInstance& instance = *plan.instance;
  // The largest box that stays in a page: a copy has a price besides its bytes.
  p.box_rows = instance.block_keys;
  for (; a.block_table != nullptr && a.page_size % p.box_rows != 0; p.box_rows /= 2) ++p.box_shift;
  if (a.block_table != nullptr) {
    p.page_boxes = a.page_size / p.box_rows;
    p.table_pages = a.capacity / a.page_size;
  }
  const bool whole_rows = a.head_dim == instance.head_dim;
  p.box_panels = whole_rows ? 1 : instance.head_dim / 128;
  const auto k_map = describe(a, a.k, a.k_stride, p.box_rows, whole_rows);
  const auto v_map = describe(a, a.v, a.v_stride, p.box_rows, whole_rows);
  if (const char* refused = encode_tensor_map(&p.k_map, k_map)) return refused;
  if (const char* refused = encode_tensor_map(&p.v_map, v_map)) return refused;
  const auto pairs = [](const CacheStrides& stride) {
    return CacheStrides{stride.page / 2, stride.slot / 2, stride.head / 2};
  };
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.out = a.out;
  p.cache_lens = a.cache_lens;
  p.block_table = a.block_table;
  p.q_stride = a.q_stride;
  p.k_stride = pairs(a.k_stride);
  p.v_stride = pairs(a.v_stride);
  p.lens_stride = a.lens_stride;
  p.table_stride_batch = a.table_stride_batch;
  p.table_stride_page = a.table_stride_page;
  p.batch = a.batch;
  p.kv_heads = a.kv_heads;
  p.group = a.heads / a.kv_heads;
  p.seq_q = a.seq_q;
  p.head_dim = a.head_dim;
  p.capacity = a.capacity;
  p.page_size = a.page_size;
  p.num_pages = a.num_pages;
  p.group_rows = group_rows(a);
  p.row_blocks = ceil_div(p.group_rows, instance.unit_rows());
  p.rows = std::min(p.group_rows, instance.unit_rows());
  p.unit_heads = p.kv_heads * p.row_blocks;
  p.scale_log2 = scale_log2(a);
  p.prefetch = plan.prefetch;
  // L2 evicts first the lines that are read only once.
  p.policy = p.row_blocks == 1 ? ptx::evict_first : ptx::evict_normal;
  p.k_scale = a.k_scale;
  p.v_scale = a.v_scale;
  p.k_scale_stride = a.k_scale_stride;
  p.v_scale_stride = a.v_scale_stride;
  p.token_scales = a.scale_per_token() ? 1 : 0;

  cudaError_t error = cudaSuccess;
  if (const Sizes sizes(a, plan); sizes.counters > 0) {
    auto* const workspace = static_cast<uint8_t*>(a.workspace);
    p.partial = reinterpret_cast<float*>(workspace);
    p.partial_stats = reinterpret_cast<float2*>(workspace + sizes.partial);
    p.counters = counters_for(stream, &error);
    if (error == cudaSuccess && p.counters == nullptr) {
      p.counters = reinterpret_cast<uint32_t*>(workspace + sizes.partial + sizes.stats);
      error = cudaMemsetAsync(p.counters, 0, sizes.counters, stream);
    }
  }
  const int shared = instance.shared_bytes(p.rows, p.batch);
  if (error == cudaSuccess) error = prepare(instance, shared);
  if (error == cudaSuccess) {
    const int idle = instance.kind == MmaKind::cluster ? kProducers - cluster_producers(p) : 0;
    LaunchConfig config(dim3(static_cast<unsigned>(plan.blocks)), instance.threads() - idle * 32, shared, stream);
    config.early();
    if (plan.cluster > 1 || instance.kind == MmaKind::cluster) config.cluster(plan.cluster);
    void* parameters[] = {&p};
    error = config.launch(instance.address, parameters);
  }
  return error_text(error);
}

}  // namespace

bool quantised_mma_supported(const Arguments& a) {
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  DeviceFacts device;
  const float scale = scale_log2(a);
  return (a.type == ScalarType::float16 || a.type == ScalarType::bfloat16) && a.head_dim % 16 == 0 &&
         reinterpret_cast<uintptr_t>(a.q) % 16 == 0 && a.q_stride.batch % 8 == 0 && a.q_stride.head % 8 == 0 &&
         a.q_stride.seq % 8 == 0 && tma_possible(a, a.k, a.k_stride) && tma_possible(a, a.v, a.v_stride) &&
         (a.block_table == nullptr || a.page_size % kTileKeys == 0) && scale >= -FLT_MAX && scale <= FLT_MAX &&
         most_blocks(a, kWarpKeys) <= INT_MAX && current_device_facts(&device) == cudaSuccess &&
         device.capability == 90 && plan_of(a).instance != nullptr;
#else
  return false;
#endif
}

size_t quantised_mma_workspace_bytes(const Arguments& a) {
  const Sizes sizes(a, plan_of(a));
  return sizes.partial + sizes.stats + sizes.counters;
}

const char* quantised_mma(const Arguments& a, cudaStream_t stream) {
  const MmaPlan plan = plan_of(a);
  for (int first = 0; first < a.batch; first += kMaxBatch) {
    if (const char* refused = launch_part(part_of(a, first), plan, stream)) return refused;
  }
  return nullptr;
}

void quantised_mma_attributes(std::vector<KernelAttributes>& into) {
  for (const QuantisedInstances* all :
       {&quantised_e4m3_float16(), &quantised_e4m3_bfloat16(), &quantised_int8_float16(), &quantised_int8_bfloat16()}) {
    for (const QuantisedInstance& instance : *all) {
      add_kernel_attributes("flash_decode 8-bit caches", instance.name, instance.address,
                            instance.shared_bytes(instance.tile_rows, 32), into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::decode
