#include "gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../numeric.cuh"
#include "clusters.h"
#include "launch.h"
#include "operand.h"
#include "parts.h"
#include "plan.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

TensorMapArguments describe_out(const GemmArguments& g) {
  TensorMapArguments map;
  const int bytes = element_bytes(g.out_type);
  map.pointer = g.out;
  map.type = g.out_type == ScalarType::float32    ? TensorMapType::float32
             : g.out_type == ScalarType::bfloat16 ? TensorMapType::bfloat16
                                                  : TensorMapType::float16;
  map.rank = 3;
  map.size[0] = static_cast<uint64_t>(g.n);
  map.size[1] = static_cast<uint64_t>(g.m);
  map.size[2] = static_cast<uint64_t>(g.batch);
  map.stride_bytes[1] = static_cast<uint64_t>(g.n) * bytes;
  map.stride_bytes[2] = map.stride_bytes[1] * g.m;
  map.box[0] = 128 / bytes;
  map.box[1] = 64;
  map.box[2] = 1;
  return map;
}

// The number of tiles along m that are walked together. The tiles in flight read the fewest bytes if they form a patch
// of D that is nearly square.
int raster_group(int tiles_m, int in_flight, int height, int width) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int group = 1; group <= std::min(tiles_m, 32); ++group) {
    const int64_t bytes = int64_t{group} * height + int64_t{ceil_div(in_flight, group)} * width;
    if (bytes < least) least = bytes, best = group;
  }
  return best;
}

// Operands small enough that one fetch of the whole is over before the loads need it, and large enough to be worth its
// own time: measured better at 512 and 768 cubed, worse at 256, 1024 and 2048 (docs/ladder-gemm-hopper.md).
constexpr int64_t kLeastPrefetchBytes = 256 << 10, kMostPrefetchBytes = 5 << 18;

// The bytes to fetch, or 0.
uint32_t prefetch_bytes(const Operand& operand) {
  const int64_t bytes = operand.mn * operand.k * operand.batches() * 2;
  const bool dense = (operand.outer() == 1 || operand.stride() == operand.inner()) &&
                     (operand.batches() == 1 || operand.stride_batch == operand.mn * operand.k);
  return dense && bytes >= kLeastPrefetchBytes && bytes <= kMostPrefetchBytes ? static_cast<uint32_t>(bytes / 16 * 16)
                                                                              : 0;
}

// How much of the weights a grid prefetches into L2, and when the next grid may begin to do so. From 128 to 2048 bytes
// along k were tried for each; these were best or near it for nearly all of 20 products (docs/ladder-gemm-hopper.md).
void fetch_ahead(KernelArguments& arguments, const Kernel& kernel, const Operand& weights) {
  constexpr int kAheadK = 256, kLateK = 128;
  arguments.ahead = weights.pointer;
  arguments.ahead_stride = weights.stride() * 2;
  arguments.ahead_lines = static_cast<int>(weights.outer());
  arguments.ahead_line_bytes = weights.inner() * 2;
  arguments.ahead_blocks = std::max(kAheadK / kernel.tile_k, 1);
  arguments.ahead_q = !kernel.swap;
  arguments.late_blocks = kLateK / kernel.tile_k;
}

constexpr int kMaxKernels = 1024;

// Raises the dynamic shared memory limit, once a kernel and device.
const char* prepare(const Kernel& kernel) {
  static std::atomic<uint64_t> prepared[kMaxKernels];  // a bit a device
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error_text(error);
  const std::vector<const Kernel*>& all = all_kernels();
  const size_t index =
      static_cast<size_t>(std::lower_bound(all.begin(), all.end(), &kernel, std::less<>()) - all.begin());
  const bool known = index < kMaxKernels && device < 64;
  const uint64_t bit = known ? uint64_t{1} << device : 0;
  if (known && (prepared[index].load(std::memory_order_acquire) & bit) != 0) return nullptr;
  error = cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes);
  if (error != cudaSuccess) return error_text(error);
  if (known) prepared[index].fetch_or(bit, std::memory_order_release);
  return nullptr;
}

// The facts that a choice depends on: sizes, types and storage, not pointers.
struct PlanKey {
  int32_t m = 0, n = 0, k = 0, batch = 0, kinds = 0, sms = 0;

  PlanKey() = default;
  PlanKey(const GemmArguments& g, int sms_, bool parts)
      : m(g.m),
        n(g.n),
        k(g.k),
        batch(g.batch),
        kinds((g.a_stride_k == 1) | (g.b_stride_k == 1) << 1 | static_cast<int>(g.in_type) << 2 |
              static_cast<int>(g.out_type) << 4 | (g.c != nullptr) << 6 | parts << 7),
        sms(sms_) {}

  bool operator==(const PlanKey& o) const {
    return m == o.m && n == o.n && k == o.k && batch == o.batch && kinds == o.kinds && sms == o.sms;
  }
};

// The choice costs microseconds, so each thread remembers its last ones.
Plan cached_plan(const GemmArguments& arguments, int sms, bool parts) {
  struct Entry {
    PlanKey key;
    Plan plan;
  };
  constexpr size_t kEntries = 128;
  thread_local Entry cache[kEntries];
  const PlanKey key(arguments, sms, parts);
  uint64_t hash = 0;
  for (const int32_t part : {key.m, key.n, key.k, key.batch, key.kinds}) {
    hash = (hash ^ static_cast<uint32_t>(part)) * 0x9E3779B97F4A7C15ull;
  }
  Entry& entry = cache[hash >> 57];
  if (entry.plan.kernel == nullptr || !(entry.key == key)) entry = {key, choose_plan(arguments, sms, parts)};
  return entry.plan;
}

// For tuning.
std::string forced_plan;
std::atomic<bool> forcing{false};

// `parts`: also one that needs a workspace.
Plan plan_of(const GemmArguments& arguments, int sms, bool parts) {
  if (forcing.load(std::memory_order_acquire)) {
    for (const Plan& plan : possible_plans(arguments, parts)) {
      if (plan_name(plan) == forced_plan) return plan;
    }
  }
  return cached_plan(arguments, sms, parts);
}

int multiprocessors() {
  static std::atomic<int> counts[64];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (device < 64 && counts[device].load(std::memory_order_relaxed) != 0) return counts[device];
  int count = 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  if (device < 64) counts[device].store(count, std::memory_order_relaxed);
  return count;
}

}  // namespace

const char* launch_plan(const GemmArguments& g, const Plan& plan, int sms, cudaStream_t stream) {
  const Kernel& kernel = *plan.kernel;
  if (plan.parts > 1 && g.workspace == nullptr) return "a plan with parts of k needs a workspace for them";
  if (const char* refused = prepare(kernel)) return refused;

  const Operand p = kernel.swap ? operand_b(g) : operand_a(g);
  const Operand q = kernel.swap ? operand_a(g) : operand_b(g);
  const int cluster = plan.cluster_m * plan.cluster_n;

  TensorMapArguments p_description = describe(p, g.in_type);
  p_description.box[0] = 64;
  p_description.box[1] = static_cast<uint32_t>((kernel.p_mn_major ? kernel.tile_k : kernel.tile_m) / plan.cluster_n);
  p_description.box[2] = 1;
  TensorMapArguments q_description = describe(q, g.in_type);
  q_description.box[0] = 64;
  q_description.box[1] = static_cast<uint32_t>((kernel.q_mn_major ? kernel.tile_k : kernel.tile_n) / plan.cluster_m);
  q_description.box[2] = 1;

  // Rows of a tile beyond its operand are not loaded: TMA would fill them with zeros, which takes time. They hold
  // anything then, and end in elements of the product that nobody stores.
  KernelArguments arguments;
  const auto clip = [&](const Operand& operand, bool mn_major, int tile, int sharers, TensorMapArguments& map) {
    if (mn_major || sharers > 1 || operand.mn >= tile) return;
    map.box[1] = static_cast<uint32_t>(operand.mn);
    arguments.clipped_bytes += (tile - static_cast<int>(operand.mn)) * kernel.tile_k * 2;
  };
  clip(p, kernel.p_mn_major, kernel.tile_m, plan.cluster_n, p_description);
  clip(q, kernel.q_mn_major, kernel.tile_n, plan.cluster_m, q_description);

  // An operand that only one row or column of tiles reads need not be fetched into L2 in larger pieces than asked for:
  // worth 1 to 6 % where 256 bytes of a line are asked for at once, or where the grid fetches ahead; else a loss
  // (docs/ladder-gemm-hopper.md).
  const bool small_pieces = kernel.tile_k >= 128 || fetches_ahead(g, plan);
  p_description.promote = q.mn > kernel.tile_n * plan.cluster_n || !small_pieces;
  q_description.promote = p.mn > kernel.tile_m * plan.cluster_m || !small_pieces;
  CUtensorMap p_map, q_map, out_map{};
  if (const char* refused = encode_tensor_map(&p_map, p_description)) return refused;
  if (const char* refused = encode_tensor_map(&q_map, q_description)) return refused;

  arguments.rows = static_cast<int>(p.mn);
  arguments.columns = static_cast<int>(q.mn);
  arguments.k_blocks = ceil_div(g.k, kernel.tile_k);
  arguments.tiles_m = static_cast<int>(ceil_div(ceil_div(p.mn, kernel.tile_m), plan.cluster_m));
  arguments.tiles_n = static_cast<int>(ceil_div(ceil_div(q.mn, kernel.tile_n), plan.cluster_n));
  arguments.cluster_m = plan.cluster_m;
  arguments.cluster_n = plan.cluster_n;
  arguments.p_batched = p_description.size[2] > 1;
  arguments.q_batched = q_description.size[2] > 1;
  arguments.out_float = g.out_type == ScalarType::float32;
  arguments.out = g.out;
  arguments.c = g.c;
  arguments.c_stride_batch = g.c_stride_batch;
  arguments.c_stride_m = g.c_stride_m;
  arguments.c_stride_n = g.c_stride_n;
  arguments.alpha = g.alpha;
  arguments.beta = g.c == nullptr ? 0.0f : g.beta;
  // Parts of k take the place of a batch, in float32, and become the product in a second kernel.
  const bool in_parts = plan.parts > 1;
  if (in_parts) {
    arguments.parts = plan.parts;
    arguments.out_float = 1;
    arguments.out = g.workspace;
    arguments.alpha = 1.0f;
    arguments.beta = 0.0f;
  }
  const int64_t tiles = static_cast<int64_t>(arguments.tiles_m) * arguments.tiles_n * g.batch * plan.parts;
  if (tiles * plan.split * cluster > INT_MAX) return "the product has more tiles than a grid can hold";
  arguments.tiles = static_cast<int>(tiles);

  int64_t grid = 0;
  if (kernel.persistent) {
    const TensorMapArguments out_description = describe_out(g);
    arguments.tma_store = arguments.beta == 0.0f && tensor_map_possible(out_description);
    if (kernel.swap && arguments.tma_store == 0) return "a transposing kernel stores through TMA only";
    if (arguments.tma_store != 0) {
      if (const char* refused = encode_tensor_map(&out_map, out_description)) return refused;
    }
    // A cluster that waits for others to end has all of its tiles left then: of four blocks, 30 run at once, not 33.
    const int at_once = std::min(sms * kernel.blocks_per_sm / cluster, clusters_at_once(kernel, cluster, sms));
    grid = std::min<int64_t>(tiles, at_once) * cluster;
  } else {
    const int bytes = element_bytes(g.out_type);
    arguments.vector_store =
        in_parts || (reinterpret_cast<uintptr_t>(g.out) % 16 == 0 && static_cast<int64_t>(g.n) * bytes % 16 == 0);
    grid = tiles * plan.split * cluster;
  }
  if (fetches_ahead(g, plan)) fetch_ahead(arguments, kernel, operand_b(g));
  const int in_flight = kernel.persistent ? static_cast<int>(grid / cluster)
                                          : std::max(1, sms * kernel.blocks_per_sm / (plan.split * cluster));
  arguments.group =
      raster_group(arguments.tiles_m, in_flight, kernel.tile_m * plan.cluster_m, kernel.tile_n * plan.cluster_n);

  const uint32_t p_bytes = prefetch_bytes(p), q_bytes = prefetch_bytes(q);
  if (p_bytes > 0 && q_bytes > 0) {
    arguments.prefetch_p = p.pointer;
    arguments.prefetch_q = q.pointer;
    arguments.prefetch_p_bytes = p_bytes;
    arguments.prefetch_q_bytes = q_bytes;
  }

  LaunchConfig config(dim3(static_cast<unsigned>(grid)), kernel.threads, kernel.shared_bytes, stream);
  config.early();
  if (cluster * plan.split > 1) config.cluster(cluster * plan.split);
  void* parameters[] = {&p_map, &q_map, &out_map, &arguments};
  const cudaError_t error = config.launch(kernel.function, parameters);
  if (error != cudaSuccess) return error_text(error);
  return in_parts ? add_parts(g, plan.parts, stream) : nullptr;
}

bool gemm_supported(const GemmArguments& arguments) {
  if (arguments.in_type != ScalarType::float16 && arguments.in_type != ScalarType::bfloat16) return false;
  return describable(operand_a(arguments), arguments.in_type) && describable(operand_b(arguments), arguments.in_type);
}

std::vector<GemmPlanFacts> plan_facts(const GemmArguments& arguments, int sms) {
  std::vector<GemmPlanFacts> all;
  for (const Plan& plan : possible_plans(arguments, true)) {
    const Kernel& kernel = *plan.kernel;
    all.push_back({plan_name(plan),
                   modelled_microseconds(arguments, plan, sms),
                   kernel.persistent,
                   kernel.swap,
                   kernel.pingpong,
                   kernel.multicasts,
                   kernel.p_mn_major,
                   kernel.q_mn_major,
                   kernel.tile_m,
                   kernel.tile_n,
                   kernel.tile_k,
                   kernel.stages,
                   kernel.shared_bytes,
                   kernel.blocks_per_sm,
                   plan.split,
                   plan.cluster_m,
                   plan.cluster_n,
                   plan.parts,
                   clusters_at_once(kernel, plan.split * plan.cluster_m * plan.cluster_n, sms),
                   sms});
  }
  std::sort(all.begin(), all.end(), [](const GemmPlanFacts& x, const GemmPlanFacts& y) {
    return std::tie(x.microseconds, x.name) < std::tie(y.microseconds, y.name);
  });
  return all;
}

void force_plan(const std::string& name) {
  forced_plan = name;
  forcing.store(!name.empty(), std::memory_order_release);
}

bool plan_is_forced() { return forcing.load(std::memory_order_acquire); }

double modelled_microseconds(const GemmArguments& arguments) {
  const int sms = multiprocessors();
  return sms == 0 ? 0.0 : modelled_microseconds(arguments, plan_of(arguments, sms, false), sms);
}

size_t workspace_bytes(const GemmArguments& arguments) {
  const int sms = multiprocessors();
  return sms == 0 ? 0 : parts_bytes(arguments, plan_of(arguments, sms, true));
}

const char* gemm(const GemmArguments& arguments, cudaStream_t stream) {
  const int sms = multiprocessors();
  if (sms == 0) return "no CUDA device is current";
  Plan plan = plan_of(arguments, sms, true);
  if (plan.parts > 1 && arguments.workspace == nullptr) plan = plan_of(arguments, sms, false);
  return launch_plan(arguments, plan, sms, stream);
}

void gemm_attributes(std::vector<KernelAttributes>& into) {
  for (const Kernel* kernel : all_kernels()) {
    add_kernel_attributes("gemm sm90", kernel->name, kernel->function, kernel->shared_bytes, into);
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
