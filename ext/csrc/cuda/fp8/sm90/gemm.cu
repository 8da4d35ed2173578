#include "gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <climits>

#include "../../../arithmetic.h"
#include "../../device.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../numeric.cuh"
#include "../../tensor_map.h"
#include "cost_model.h"
#include "kernels.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {
namespace {

std::string name_of(const Plan& plan) {
  return std::string(plan.kernel->name) + (plan.kernel->few_rows ? " split " : " cluster ") +
         std::to_string(plan.cluster);
}

constexpr int kSplits[] = {1, 2, 4, 8};
constexpr int kMostFewRows = 256;  // rows of a from which on the transposed product is not tried

int k_blocks(const Fp8GemmArguments& g) { return ceil_div(g.k, kFp8Block); }

// Bytes of the factors of a few-rows kernel, whose block takes a part of k.
int factor_bytes(const Kernel& kernel, const Fp8GemmArguments& g, int split) {
  if (!kernel.few_rows || !kernel.block_scales) return 0;
  const int each = ceil_div(ceil_div(g.k, kernel.stage_k), split);
  return each * (kernel.stage_k / kFp8Block) * kernel.tile_m * static_cast<int>(sizeof(float));
}

bool fits(const Plan& plan, const Fp8GemmArguments& g, const DeviceFacts& device) {
  const Kernel& kernel = *plan.kernel;
  if (kernel.a_type != g.a_type || kernel.block_scales != g.block_scales) return false;
  if (!kernel.few_rows) return true;
  if (g.group_sizes != nullptr || g.m > kMostFewRows) return false;
  const int bytes = kernel.shared_bytes + factor_bytes(kernel, g, plan.cluster);
  if (bytes > device.shared_per_block) return false;
  if ((bytes + 1024) * kernel.blocks_per_sm > device.shared_per_sm) return false;
  return plan.cluster == 1 || ceil_div(g.k, kernel.stage_k) >= 2 * plan.cluster;
}

// Ordered by the model.
std::vector<Plan> possible(const Fp8GemmArguments& g, const DeviceFacts& device) {
  const bool e5m2 = g.a_type == Fp8Type::e5m2;
  std::vector<Plan> all;
  const auto consider = [&](Plan plan) {
    if (!fits(plan, g, device)) return;
    plan.microseconds = modelled_microseconds(g, plan, device.multiprocessors);
    all.push_back(plan);
  };
  for (const Kernel& kernel : e5m2 ? persistent_e5m2() : persistent_e4m3()) {
    for (const int cluster : {1, 2}) consider({&kernel, cluster});
  }
  for (const Kernel& kernel : e5m2 ? few_rows_e5m2() : few_rows_e4m3()) {
    for (const int split : kSplits) consider({&kernel, split});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Plan& x, const Plan& y) { return x.microseconds < y.microseconds; });
  return all;
}

// For tuning.
std::string forced_plan;
std::atomic<bool> forcing{false};

// The sizes and kinds that a choice depends on.
struct Key {
  int32_t m = -1, n = 0, k = 0, groups = 0, capacity = 0, kinds = 0;

  bool operator==(const Key& o) const {
    return m == o.m && n == o.n && k == o.k && groups == o.groups && capacity == o.capacity && kinds == o.kinds;
  }
};

// The choice costs microseconds, so each thread remembers its last ones.
Plan chosen(const Fp8GemmArguments& g, const DeviceFacts& device) {
  if (forcing.load(std::memory_order_acquire)) {
    for (const Plan& plan : possible(g, device)) {
      if (name_of(plan) == forced_plan) return plan;
    }
  }
  struct Entry {
    Key key;
    Plan plan;
  };
  constexpr size_t kEntries = 64;
  thread_local Entry cache[kEntries];
  const Key key{g.m,        g.n,
                g.k,        g.groups,
                g.capacity, static_cast<int>(g.a_type) | g.block_scales << 1 | (g.group_sizes != nullptr) << 2};
  uint64_t hash = 0;
  for (const int32_t part : {key.m, key.n, key.k, key.groups, key.kinds}) {
    hash = (hash ^ static_cast<uint32_t>(part)) * 0x9E3779B97F4A7C15ull;
  }
  Entry& entry = cache[hash >> 58];
  if (!(entry.key == key)) entry = {key, possible(g, device).front()};
  return entry.plan;
}

// k x rows x groups, in boxes of 128 of k.
TensorMapArguments describe(const void* pointer, int64_t rows, int64_t stride, int64_t groups, int64_t stride_group,
                            const Fp8GemmArguments& g, int box_rows) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = TensorMapType::bytes;
  map.rank = 3;
  map.size[0] = static_cast<uint64_t>(g.k);
  map.size[1] = static_cast<uint64_t>(rows);
  map.size[2] = static_cast<uint64_t>(groups);
  // A stride of a dimension of size 1 means nothing and is replaced by one that TMA accepts.
  map.stride_bytes[1] = static_cast<uint64_t>(rows > 1 ? stride : ceil_div(int64_t{g.k}, int64_t{16}) * 16);
  map.stride_bytes[2] = groups > 1 ? static_cast<uint64_t>(stride_group) : map.stride_bytes[1];
  map.box[0] = kFp8Block;
  map.box[1] = static_cast<uint32_t>(box_rows);
  map.box[2] = 1;
  return map;
}

TensorMapArguments describe_a(const Fp8GemmArguments& g, int box_rows) {
  return describe(g.a, g.m, g.a_stride, 1, 0, g, box_rows);
}

TensorMapArguments describe_b(const Fp8GemmArguments& g, int box_rows) {
  return describe(g.b, g.n, g.b_stride, g.groups, g.b_stride_group, g, box_rows);
}

TensorMapArguments describe_out(const Fp8GemmArguments& g) {
  TensorMapArguments map;
  const int bytes = element_bytes(g.out_type);
  map.pointer = g.out;
  map.type = g.out_type == ScalarType::bfloat16 ? TensorMapType::bfloat16 : TensorMapType::float16;
  map.rank = 3;
  map.size[0] = static_cast<uint64_t>(g.n);
  map.size[1] = static_cast<uint64_t>(g.m);
  map.size[2] = 1;
  map.stride_bytes[1] = static_cast<uint64_t>(g.n) * bytes;
  map.stride_bytes[2] = map.stride_bytes[1];
  map.box[0] = 64;
  map.box[1] = 64;
  map.box[2] = 1;
  return map;
}

// The tiles in flight read the fewest bytes if they form a patch that is nearly square.
int raster_of(const Kernel& kernel, int cluster, int sms) {
  const int in_flight = std::max(1, sms / cluster);
  int best = 1;
  int64_t least = INT64_MAX;
  for (int height = 1; height <= 32; ++height) {
    const int64_t bytes =
        int64_t{height} * kernel.tile_m + int64_t{ceil_div(in_flight, height)} * kernel.tile_n * cluster;
    if (bytes < least) least = bytes, best = height;
  }
  return best;
}

}  // namespace

bool supported(const Fp8GemmArguments& g) {
  return g.k > 0 && tensor_map_possible(describe_a(g, 64)) && tensor_map_possible(describe_b(g, 64));
}

const char* gemm(const Fp8GemmArguments& g, cudaStream_t stream) {
  DeviceFacts device;
  if (const cudaError_t error = current_device_facts(&device); error != cudaSuccess) return error_text(error);
  const Plan plan = chosen(g, device);
  const Kernel& kernel = *plan.kernel;
  const int sms = device.multiprocessors;
  const int shared_bytes = kernel.shared_bytes + factor_bytes(kernel, g, plan.cluster);
  if (const cudaError_t error = allow_dynamic_shared(kernel.function, shared_bytes); error != cudaSuccess) {
    return error_text(error);
  }

  KernelArguments arguments;
  arguments.g = g;
  arguments.k_blocks = k_blocks(g);
  arguments.cluster = plan.cluster;
  const int bytes = element_bytes(g.out_type);
  TensorMapArguments p, q;
  int64_t blocks = 0;
  if (kernel.few_rows) {
    arguments.tiles_n = ceil_div(g.m, kernel.tile_m);
    p = describe_b(g, kernel.tile_n);
    q = describe_a(g, kernel.tile_m);
    blocks = tiles_of(plan, g) * plan.cluster;
    // Blocks that do not split k walk over tiles, so that the next one's loads do not wait for a launch.
    if (plan.cluster == 1 && !kernel.block_scales) blocks = std::min<int64_t>(blocks, sms * kernel.blocks_per_sm);
  } else {
    arguments.tiles_n = ceil_div(ceil_div(g.n, kernel.tile_n), plan.cluster);
    arguments.raster = raster_of(kernel, plan.cluster, sms);
    p = describe_a(g, kernel.tile_m / plan.cluster);
    q = describe_b(g, kernel.tile_n);
    blocks = std::min<int64_t>(tiles_of(plan, g), sms / plan.cluster) * plan.cluster;
  }
  if (blocks > INT_MAX) return "the product has more tiles than a grid can hold";
  CUtensorMap p_map, q_map, out_map{};
  if (const char* refused = encode_tensor_map(&p_map, p)) return refused;
  if (const char* refused = encode_tensor_map(&q_map, q)) return refused;
  if (!kernel.few_rows && bytes == 2 && tensor_map_possible(describe_out(g))) {
    if (const char* refused = encode_tensor_map(&out_map, describe_out(g))) return refused;
    arguments.tma_store = 1;
  }
  LaunchConfig config(dim3(static_cast<unsigned>(blocks)), kernel.threads, shared_bytes, stream);
  config.early();
  if (plan.cluster > 1) config.cluster(plan.cluster);
  void* parameters[] = {&p_map, &q_map, &out_map, &arguments};
  return error_text(config.launch(kernel.function, parameters));
}

void attributes(std::vector<KernelAttributes>& into) {
  for (const KernelList& list : {persistent_e4m3(), persistent_e5m2(), few_rows_e4m3(), few_rows_e5m2()}) {
    for (const Kernel& kernel : list) {
      add_kernel_attributes(kernel.a_type == Fp8Type::e4m3 ? "fp8_gemm sm90 e4m3" : "fp8_gemm sm90 e5m2", kernel.name,
                            kernel.function, kernel.shared_bytes, into);
    }
  }
}

std::vector<std::string> plans(const Fp8GemmArguments& g) {
  DeviceFacts device;
  if (current_device_facts(&device) != cudaSuccess) return {};
  std::vector<std::string> names;
  for (const Plan& plan : possible(g, device)) names.push_back(name_of(plan));
  return names;
}

void force_plan(const std::string& name) {
  forced_plan = name;
  forcing.store(!name.empty(), std::memory_order_release);
}

}  // namespace cuda_llm_ops::cuda::fp8::sm90
