// The weight-only product on CUDA: which instance computes it, how its work is split, its launches.
#include <algorithm>

#include "../../arithmetic.h"
#include "../../weight_only.h"
#include "../counters.h"
#include "../device.h"
#include "../error_text.h"
#include "../kernel_attributes.h"
#include "kernel.cuh"
#include "sm90/product.h"

namespace cuda_llm_ops::cuda {
namespace weight_only {
namespace {

constexpr int32_t kMostRows = 64;  // of a launch

struct Instance {
  const char* name;
  const void* kernel;
  ScalarType type;
  int32_t bits, rows;
  int shared_bytes, blocks_per_sm;
};

template <ScalarType Type, int Bits, int Rows>
Instance instance(const char* name) {
  using T = typename ElementOf<Type>::type;
  using S = Shape<Bits, Rows>;
  return {name,
          reinterpret_cast<const void*>(&weight_only_product<T, Bits, Rows>),
          Type,
          Bits,
          Rows,
          S::bytes,
          S::blocks_per_sm};
}

const Instance instances[] = {
    instance<ScalarType::float16, 4, 8>("f16 int4 8 rows"),
    instance<ScalarType::float16, 4, 16>("f16 int4 16 rows"),
    instance<ScalarType::float16, 4, 32>("f16 int4 32 rows"),
    instance<ScalarType::float16, 4, 64>("f16 int4 64 rows"),
    instance<ScalarType::float16, 8, 8>("f16 int8 8 rows"),
    instance<ScalarType::float16, 8, 16>("f16 int8 16 rows"),
    instance<ScalarType::float16, 8, 32>("f16 int8 32 rows"),
    instance<ScalarType::float16, 8, 64>("f16 int8 64 rows"),
    instance<ScalarType::bfloat16, 4, 8>("bf16 int4 8 rows"),
    instance<ScalarType::bfloat16, 4, 16>("bf16 int4 16 rows"),
    instance<ScalarType::bfloat16, 4, 32>("bf16 int4 32 rows"),
    instance<ScalarType::bfloat16, 4, 64>("bf16 int4 64 rows"),
    instance<ScalarType::bfloat16, 8, 8>("bf16 int8 8 rows"),
    instance<ScalarType::bfloat16, 8, 16>("bf16 int8 16 rows"),
    instance<ScalarType::bfloat16, 8, 32>("bf16 int8 32 rows"),
    instance<ScalarType::bfloat16, 8, 64>("bf16 int8 64 rows"),
};

// Of the fewest rows that are enough.
const Instance& instance_for(const WeightOnlyArguments& a, int32_t rows) {
  const Instance* found = nullptr;
  for (const Instance& one : instances) {
    if (one.type == a.type && one.bits == a.bits && (found == nullptr || found->rows < rows)) found = &one;
  }
  return *found;
}

// How many of its blocks a device holds at once. A card with less shared memory than Hopper's holds one, if any.
int resident(const Instance& chosen, const DeviceFacts& facts) {
  const int fitting = facts.shared_per_sm / (chosen.shared_bytes + 1024);
  return facts.multiprocessors * std::clamp(fitting, 1, chosen.blocks_per_sm);
}

Split split_for(const WeightOnlyArguments& a, const Instance& chosen, const DeviceFacts& facts) {
  return even_split(ceil_div(a.k, kChunk), ceil_div(a.n, kColumns), resident(chosen, facts));
}

size_t partial_bytes(const WeightOnlyArguments& a, const Instance& chosen, const DeviceFacts& facts) {
  return size_t{2} * split_for(a, chosen, facts).blocks * chosen.rows * kColumns * sizeof(float);
}

// Used only where counters_for() has no set left.
size_t counter_bytes(const WeightOnlyArguments& a) {
  return static_cast<size_t>(ceil_div(a.n, kColumns)) * sizeof(uint32_t);
}

const char* launch(const WeightOnlyArguments& a, int32_t first, int32_t rows, const DeviceFacts& facts,
                   cudaStream_t stream) {
  const Instance& chosen = instance_for(a, rows);
  if (chosen.shared_bytes > facts.shared_per_block)
    return "the device has less shared memory for a thread block than the kernel needs";
  Parameters p{};
  p.packed = static_cast<const uint8_t*>(a.packed);
  p.x_stride_bytes = a.x_stride * 2;
  p.x = static_cast<const char*>(a.x) + first * p.x_stride_bytes;
  p.scales = a.scales;
  p.zeros = static_cast<const uint8_t*>(a.zeros);
  p.out = static_cast<char*>(a.out) + int64_t{first} * a.n * 2;
  p.partial = static_cast<float*>(a.workspace);
  p.m = rows, p.n = a.n;
  p.column_tiles = ceil_div(a.n, kWeightColumns), p.depth_tiles = a.k / kWeightDepth;
  p.small_groups = a.bits == 4 && a.group == 64;
  p.groups = a.bits == 4 ? a.k / a.group : 1;
  p.split = split_for(a, chosen, facts);
  cudaError_t error = cudaSuccess;
  if (ceil_div(a.n, kColumns) <= kCounters) p.counters = counters_for(stream, &error);
  if (error == cudaSuccess && p.counters == nullptr) {
    p.counters = reinterpret_cast<uint32_t*>(static_cast<char*>(a.workspace) + partial_bytes(a, chosen, facts));
    error = cudaMemsetAsync(p.counters, 0, counter_bytes(a), stream);
  }
  if (error == cudaSuccess) error = allow_dynamic_shared(chosen.kernel, chosen.shared_bytes);
  if (error != cudaSuccess) return error_text(error);
  void* arguments[] = {&p};
  return error_text(cudaLaunchKernel(chosen.kernel, dim3(static_cast<unsigned>(p.split.blocks)), dim3(kThreads),
                                     arguments, static_cast<size_t>(chosen.shared_bytes), stream));
}

}  // namespace
}  // namespace weight_only

size_t weight_only_workspace_bytes(const WeightOnlyArguments& a) {
  using namespace weight_only;
  const DeviceFacts facts = current_device_or_none();
  if (sm90::supported(a, facts)) return sm90::workspace_bytes(a, facts);
  const int32_t last = a.m % kMostRows;
  const size_t of_last = last == 0 ? 0 : partial_bytes(a, instance_for(a, last), facts);
  const size_t of_most = a.m < kMostRows ? 0 : partial_bytes(a, instance_for(a, kMostRows), facts);
  return std::max(of_last, of_most) + counter_bytes(a);
}

const char* weight_only_gemm(const WeightOnlyArguments& a, void* on) {
  using namespace weight_only;
  DeviceFacts facts{};
  if (const cudaError_t refused = current_device_facts(&facts); refused != cudaSuccess) return error_text(refused);
  if (sm90::supported(a, facts)) return sm90::product(a, facts, static_cast<cudaStream_t>(on));
  for (int32_t first = 0; first < a.m; first += kMostRows) {
    const int32_t rows = std::min(kMostRows, a.m - first);
    if (const char* refused = launch(a, first, rows, facts, static_cast<cudaStream_t>(on))) return refused;
  }
  return nullptr;
}

void weight_only_attributes(std::vector<KernelAttributes>& into) {
  for (const weight_only::Instance& one : weight_only::instances) {
    add_kernel_attributes("weight_only_gemm", one.name, one.kernel, one.shared_bytes, into);
  }
  weight_only::sm90::attributes(into);
}

}  // namespace cuda_llm_ops::cuda
