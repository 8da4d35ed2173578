// Host side of the tensor-core decode kernels: which instance, how many thread blocks, and the launch.
#include "mma.h"

#include <algorithm>
#include <cfloat>
#include <climits>
#include <numeric>
#include <utility>

#include "../../../arithmetic.h"
#include "../../counters.h"
#include "../../device.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../ptx/tma.cuh"
#include "../../tensor_map.h"
#include "../decode.h"
#include "residency.h"

namespace cuda_llm_ops::cuda::decode {
namespace {

// Bounds of the choice, measured on an H200 (docs/ladder-decode.md). Bytes are those of keys and values at full
// capacity, because the host does not know the lengths.
constexpr int64_t kLargeBytes = int64_t{1} << 30;           // a large cache
constexpr int64_t kLargeInSmallPages = int64_t{128} << 20;  // a large cache in small pages, for one group of warps
constexpr int64_t kClusterBytes = int64_t{512} << 10;       // the most for one thread block of cluster.cuh
constexpr int kSmallPage = 64;                              // keys; smaller pages are small
constexpr int kManySequences = 32;                          // with so many, thread blocks have several units each

int group_rows(const DecodeArguments& a) { return a.heads / a.kv_heads * a.seq_q; }

float scale_log2(const DecodeArguments& a) { return a.scale * kLog2E; }

// The number of blocks of keys at full capacity.
int64_t most_blocks(const DecodeArguments& a, int block_keys, int unit_rows = kRows) {
  return int64_t{a.batch} * ceil_div(group_rows(a), unit_rows) * a.kv_heads * ceil_div(a.capacity, block_keys);
}

bool multiples_of_8(const DecodeArguments& a, const CacheStrides& stride) {
  return stride.page % 8 == 0 && stride.slot % 8 == 0 && stride.head % 8 == 0 && a.head_dim % 8 == 0;
}

bool tma_possible(const DecodeArguments& a, const CacheStrides& stride) {
  // The stride of an extent of 1 is 0 and never used; TMA has no stride of 0 otherwise.
  const auto fits = [](int64_t size, int64_t step) { return size == 1 || (step > 0 && step < int64_t{1} << 38); };
  return fits(a.num_pages, stride.page) && fits(a.page_size, stride.slot) && fits(a.kv_heads, stride.head) &&
         (a.block_table == nullptr || a.page_size % kTileKeys == 0);
}

TensorMapArguments describe(const DecodeArguments& a, const void* pointer, const CacheStrides& stride, int box_rows,
                            bool whole_rows) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = a.type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  const auto add = [&map](int64_t size, int64_t step, int box) {
    map.size[map.rank] = static_cast<uint64_t>(size);
    map.stride_bytes[map.rank] = static_cast<uint64_t>(step) * 2;
    map.box[map.rank++] = static_cast<uint32_t>(box);
  };
  // Each copy takes whole lines: what L2 would fetch beside them is another copy's.
  map.promote = false;
  // As wide as the swizzle allows, or several of those where they are full.
  const int panels = whole_rows ? a.head_dim / 64 : 1;
  add(whole_rows ? 64 : a.head_dim, 1, 64);
  add(a.page_size, a.page_size == 1 ? a.head_dim : stride.slot, box_rows);
  add(panels, 64, panels);
  add(a.kv_heads, a.kv_heads == 1 ? a.head_dim : stride.head, 1);
  add(a.num_pages, a.num_pages == 1 ? a.head_dim : stride.page, 1);
  return map;
}

struct Sizes {
  size_t partial = 0, stats = 0, counters = 0;  // bytes; all 0 for cluster.cuh

  Sizes(const DecodeArguments& a, const MmaPlan& plan) {
    const int unit_rows = plan.instance->unit_rows();
    const size_t rows = static_cast<size_t>(std::min(group_rows(a), unit_rows)), head_dim = plan.instance->head_dim;
    if (plan.instance->kind == MmaKind::cluster) return;
    const size_t slots = 2 * static_cast<size_t>(plan.blocks);
    partial = slots * rows * head_dim * sizeof(float);
    stats = slots * unit_rows * sizeof(float2);
    counters = kCounters * sizeof(uint32_t);
  }
};

// The part of the batch from `first` on that one launch takes.
DecodeArguments part_of(const DecodeArguments& whole, int first) {
  DecodeArguments a = whole;
  a.batch = std::min(whole.batch - first, kMaxBatch);
  const auto moved = [](const void* pointer, int64_t elements) {
    return static_cast<const void*>(static_cast<const uint16_t*>(pointer) + elements);
  };
  a.q = moved(whole.q, first * whole.q_stride.batch);
  a.out = const_cast<void*>(moved(whole.out, int64_t{first} * whole.heads * whole.seq_q * whole.head_dim));
  a.cache_lens = whole.cache_lens + first * whole.lens_stride;
  if (whole.block_table != nullptr) {
    a.block_table = whole.block_table + first * whole.table_stride_batch;
  } else {
    a.k = moved(whole.k, first * whole.k_stride.page);
    a.v = moved(whole.v, first * whole.v_stride.page);
    a.num_pages = a.batch;
  }
  return a;
}

const char* launch_part(const DecodeArguments& a, const MmaPlan& plan, cudaStream_t stream) {
  MmaParameters p{};
  const MmaInstance& instance = *plan.instance;
  if (instance.tma()) {
    // The largest box that stays in a page: a copy has a price besides its bytes.
    p.box_rows = instance.block_keys;
    for (; a.block_table != nullptr && a.page_size % p.box_rows != 0; p.box_rows /= 2) ++p.box_shift;
    if (a.block_table != nullptr) {
      p.page_boxes = a.page_size / p.box_rows;
      p.table_pages = a.capacity / a.page_size;
    }
    const bool whole_rows = a.head_dim == instance.head_dim && !(instance.wide && p.box_shift > 0);
    p.box_panels = whole_rows ? 1 : instance.head_dim / 64;
    const auto k_map = describe(a, a.k, a.k_stride, p.box_rows, whole_rows);
    const auto v_map = describe(a, a.v, a.v_stride, p.box_rows, whole_rows);
    if (const char* refused = encode_tensor_map(&p.k_map, k_map)) return refused;
    if (const char* refused = encode_tensor_map(&p.v_map, v_map)) return refused;
  }
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.out = a.out;
  p.cache_lens = a.cache_lens;
  p.block_table = a.block_table;
  p.q_stride = a.q_stride;
  p.k_stride = a.k_stride;
  p.v_stride = a.v_stride;
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
  p.by_head = plan.by_head;
  // L2 evicts first the lines that are read only once.
  p.policy = p.row_blocks == 1 ? ptx::evict_first : ptx::evict_normal;

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
    if (instance.tma()) {
      config.early();  // cp.async's do not wait for what comes before them
      if (plan.cluster > 1 || instance.kind == MmaKind::cluster) config.cluster(plan.cluster);
    }
    void* parameters[] = {&p};
    error = config.launch(instance.address, parameters);
  }
  return error_text(error);
}

}  // namespace

bool mma_supported(const DecodeArguments& a) {
  DeviceFacts device;
  const auto aligned = [](const void* pointer, int bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; };
  return (a.type == ScalarType::float16 || a.type == ScalarType::bfloat16) && multiples_of_8(a, a.k_stride) &&
         multiples_of_8(a, a.v_stride) && aligned(a.k, 16) && aligned(a.v, 16) && aligned(a.q, 16) &&
         a.q_stride.batch % 8 == 0 && a.q_stride.head % 8 == 0 && a.q_stride.seq % 8 == 0 && scale_log2(a) > 0.0f &&
         scale_log2(a) <= FLT_MAX &&  // 0 times an infinite score is NaN, as is inf - inf
         most_blocks(a, kTileKeys) <= INT_MAX && current_device_facts(&device) == cudaSuccess &&
         device.capability >= 80 && mma_plan(a).instance != nullptr;
}

MmaPlan mma_plan(const DecodeArguments& a) {
  DeviceFacts device;
  MmaPlan plan;
  if (current_device_facts(&device) != cudaSuccess) return plan;
  bool tma = false;
#ifdef CUDA_LLM_OPS_SM90_ATTENTION
  tma = device.capability == 90 && tma_possible(a, a.k_stride) && tma_possible(a, a.v_stride);
#endif
  const int batch = std::min(a.batch, kMaxBatch);
  const auto narrowest = [&](MmaKind kind, int groups = 1, bool by_head = false, bool wide = false) {
    const int rows = std::min(group_rows(a), wide ? kWideRows : kRows);
    const MmaInstance* found = nullptr;
    for (const MmaInstance& instance : a.type == ScalarType::bfloat16 ? mma_bfloat16() : mma_float16()) {
      if (instance.kind != kind || instance.groups != groups || instance.by_head != by_head || instance.wide != wide ||
          instance.head_dim < a.head_dim || instance.tile_rows < rows ||
          instance.shared_bytes(rows, batch) > device.shared_per_block) {
        continue;
      }
      const auto size = [](const MmaInstance& i) { return std::pair(i.head_dim, i.tile_rows); };
      if (found == nullptr || size(instance) < size(*found)) found = &instance;
    }
    return found;
  };
  // As measured on an H200 (docs/ladder-decode.md).
  const int64_t bytes = int64_t{4} * a.batch * a.kv_heads * a.capacity * a.head_dim;
  const int64_t row_blocks = ceil_div(group_rows(a), kRows), units = int64_t{a.batch} * a.kv_heads * row_blocks;
  const auto fit = [&](const MmaInstance& instance) {
    const int rows = std::min(group_rows(a), instance.unit_rows());
    return std::max(1, std::min(device.shared_per_sm / (instance.shared_bytes(rows, batch) + 1024), 2));
  };
  const auto pages_below = [&a](int keys) { return a.block_table != nullptr && a.page_size < keys; };
  const bool small_pages = pages_below(kSmallPage);
  if (const MmaInstance* const cluster = narrowest(MmaKind::cluster);
      tma && a.batch <= kMaxBatch && cluster != nullptr && units <= int64_t{device.multiprocessors} * fit(*cluster)) {
    plan.instance = cluster;
    plan.cluster = units > device.multiprocessors ? 1 : cluster_size(*cluster, device, units);
    plan.blocks = static_cast<int>(units) * plan.cluster;
    plan.prefetch = std::max(1, 128 / cluster->head_dim);
    // More, where this launch and the next have multiprocessors of their own, and all clusters, of one sequence, have
    // as much to do; less, where they have not, and two groups of warps are the other choice.
    const bool beside = 2 * plan.blocks <= device.multiprocessors;
    int64_t most = kClusterBytes;
    if (cluster->head_dim == 128 && cluster->tile_rows == kFewRows) {
      if (beside && a.batch == 1) most *= a.block_table == nullptr ? 4 : 2;
      if (!beside && plan.cluster > 1) most /= 2;
    }
    if (plan.blocks > 0 && bytes * row_blocks <= most * plan.blocks) return plan;
  }
  const bool large = bytes >= kLargeBytes;
  bool wide = large || (small_pages && bytes >= kLargeInSmallPages);
  plan.prefetch = large ? 0 : 2;
  plan.instance = narrowest(tma ? MmaKind::tma : MmaKind::cp_async);
  if (plan.instance == nullptr) return plan;
  // Of heads that lie side by side in memory, few would be read at once, where thread blocks have several units each.
  const auto side_by_side = [&a](const CacheStrides& stride) { return a.kv_heads > 1 && stride.head < stride.slot; };
  const bool by_head = side_by_side(a.k_stride) && side_by_side(a.v_stride) && a.batch >= kManySequences;
  int alone = device.multiprocessors;  // thread blocks, where each has one of them
  if (const MmaInstance* const two = narrowest(MmaKind::tma, 2);
      tma && (!(large && small_pages) || by_head) && two != nullptr && two->head_dim == plan.instance->head_dim) {
    plan.instance = two;
    plan.prefetch = a.batch > kFewSequences ? 0 : large ? 2 : 1;
    wide = false;
    // A few are left free: the last thread block of the next launch has to wait for the one that ends last, and would
    // be the last to end again. And whole units often fit a multiple of eight. (Of large caches this is a part too
    // small to pay for what a card loses whose multiprocessors that are left free are all of one half.)
    if (!large && alone > 64) alone = alone / 8 * 8;
  }
  if (const MmaInstance* const many = narrowest(MmaKind::tma, 1, false, true);
      tma && group_rows(a) > kRows && many != nullptr && many->head_dim == plan.instance->head_dim) {
    plan.instance = many;
    plan.prefetch = a.batch > kFewSequences ? 0 : large ? 2 : 1;
    wide = false;
    alone = device.multiprocessors;
    if (!large && alone > 64) alone = alone / 8 * 8;
  }
  const int64_t room =
      std::min(!tma || wide ? device.multiprocessors * fit(*plan.instance) : alone, kCounters / plan.instance->warps);
  plan.blocks = static_cast<int>(std::min(room, most_blocks(a, plan.instance->block_keys, plan.instance->unit_rows())));
  // Two thread blocks have a unit each, if the sequences are of one length.
  const int64_t own_units = int64_t{a.batch} * a.kv_heads * ceil_div(group_rows(a), plan.instance->unit_rows());
  plan.cluster = (plan.instance->groups == 2 || plan.instance->wide) && plan.blocks == 2 * own_units ? 2 : 1;
  if (const MmaInstance* const heads = narrowest(MmaKind::tma, 2, true);
      by_head && plan.instance->groups == 2 && plan.cluster == 1 && heads != nullptr) {
    plan.instance = heads;
    plan.by_head = std::gcd(plan.blocks, static_cast<int>(units / a.batch));
  }
  return plan;
}

size_t mma_plan_workspace_bytes(const DecodeArguments& a, const MmaPlan& plan) {
  const Sizes sizes(a, plan);
  return sizes.partial + sizes.stats + sizes.counters;
}

const char* mma_launch(const DecodeArguments& a, const MmaPlan& plan, cudaStream_t stream) {
  for (int first = 0; first < a.batch; first += kMaxBatch) {
    if (const char* refused = launch_part(part_of(a, first), plan, stream)) return refused;
  }
  return nullptr;
}

size_t mma_workspace_bytes(const DecodeArguments& a) {
  const MmaPlan plan = mma_plan(a);
  return plan.instance == nullptr ? 0 : mma_plan_workspace_bytes(a, plan);
}

const char* mma(const DecodeArguments& a, cudaStream_t stream) {
  const MmaPlan plan = mma_plan(a);
  if (plan.instance == nullptr) return "no decode kernel for this device and head_dim";
  return mma_launch(a, plan, stream);
}

void mma_attributes(std::vector<KernelAttributes>& into) {
  for (const MmaInstances* all : {&mma_float16(), &mma_bfloat16()}) {
    for (const MmaInstance& instance : *all) {
      add_kernel_attributes("flash_decode", instance.name, instance.address,
                            instance.shared_bytes(instance.tile_rows, 32), into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::decode
