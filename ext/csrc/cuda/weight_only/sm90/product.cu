#include "product.h"

#include <algorithm>
#include <climits>

#include "../../../arithmetic.h"
#include "../../counters.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../tensor_map.h"
#include "few_rows_plan.h"
#include "kernels.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

namespace {

// Of the fewest rows that are enough, or of the most.
const Kernel& kernel_for(const WeightOnlyArguments& a, int32_t repeats = 1) {
  const bool half = a.type == ScalarType::float16;
  const KernelList few = half ? few_rows_float16_kernels() : few_rows_bfloat16_kernels();
  const KernelList more = half ? float16_kernels() : bfloat16_kernels();
  const Kernel* found = nullptr;
  for (const Kernel& one : a.m <= kMostFewRows ? few : more) {
    if (one.bits != a.bits || (a.bits == 4 && one.group != a.group) || one.repeats != repeats) continue;
    if (found == nullptr || found->rows < a.m) found = &one;
  }
  return *found;
}

// How thread blocks share the work. Those of a tile that is shared must meet at its end, so whole tiles, or the same
// number of blocks for each, are better than even runs unless they leave multiprocessors idle.
Split split_for(const WeightOnlyArguments& a, const Kernel& kernel, const DeviceFacts& device) {
  constexpr double busy = 0.93;
  const int32_t resident = device.multiprocessors * kernel.blocks_per_sm;
  const int32_t tiles = ceil_div(a.n, kColumns) * ceil_div(a.m, kernel.rows);
  const int32_t chunks = ceil_div(a.k, kChunk);
  const int32_t rounds = ceil_div(tiles, resident);
  const int32_t sharers = std::min(resident / tiles, chunks);
  if (tiles >= busy * rounds * resident) return whole_split(chunks, tiles, ceil_div(tiles, rounds));
  if (sharers * tiles >= busy * resident) return shared_split(chunks, tiles, sharers);
  return even_split(chunks, tiles, resident);
}

size_t partial_bytes(const Split& split, const Kernel& kernel) {
  return size_t{2} * split.blocks * kernel.rows * kColumns * sizeof(float);
}

// Used only where counters_for() has no set left, or too few in it.
size_t counter_bytes(const Split& split) { return static_cast<size_t>(split.units / split.chunks) * sizeof(uint32_t); }

// Boxes of `tiles` packed tiles beside each other, `depth` along k.
TensorMapArguments describe_weights(const WeightOnlyArguments& a, int32_t tiles, int32_t depth) {
  TensorMapArguments map;
  const int tile = weight_tile_bytes(a.bits);
  map.pointer = a.packed;
  map.type = TensorMapType::float32;  // a box has at most 256 elements along a dimension
  map.rank = 3;
  map.size[0] = static_cast<uint64_t>(tile / 4);
  map.size[1] = static_cast<uint64_t>(a.k / kWeightDepth);
  map.size[2] = static_cast<uint64_t>(ceil_div(a.n, kWeightColumns));
  map.stride_bytes[1] = static_cast<uint64_t>(tile);
  map.stride_bytes[2] = map.size[1] * tile;
  map.box[0] = static_cast<uint32_t>(tile / 4);
  map.box[1] = static_cast<uint32_t>(depth);
  map.box[2] = static_cast<uint32_t>(tiles);
  map.swizzle_128 = false;
  return map;
}

TensorMapType type_of(const WeightOnlyArguments& a) {
  return a.type == ScalarType::float16 ? TensorMapType::float16 : TensorMapType::bfloat16;
}

// 64 of k x rows x panels of 64 of k, of which a box has `depth`.
TensorMapArguments describe_x(const WeightOnlyArguments& a, int rows, int32_t depth) {
  TensorMapArguments map;
  map.pointer = a.x;
  map.type = type_of(a);
  map.rank = 3;
  map.size[0] = kWeightDepth;
  map.size[1] = static_cast<uint64_t>(a.m);
  map.size[2] = static_cast<uint64_t>(a.k / kWeightDepth);
  // The stride of a dimension of size 1 means nothing and is replaced by one that TMA accepts.
  map.stride_bytes[1] = static_cast<uint64_t>(a.m > 1 ? a.x_stride : a.k) * 2;
  map.stride_bytes[2] = kWeightDepth * 2;
  map.box[0] = kWeightDepth;
  map.box[1] = static_cast<uint32_t>(rows);
  map.box[2] = static_cast<uint32_t>(depth);
  return map;
}

// Scales or zero points: columns x groups, in boxes for packed tiles as of describe_weights().
TensorMapArguments describe_groups(const WeightOnlyArguments& a, const void* pointer, TensorMapType type, int bytes,
                                   int32_t tiles, int32_t depth) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = type;
  map.rank = 3;
  map.size[0] = static_cast<uint64_t>(a.n);
  map.size[1] = static_cast<uint64_t>(a.k / a.group);
  map.size[2] = 1;
  map.stride_bytes[1] = map.size[0] * bytes;
  map.stride_bytes[2] = map.stride_bytes[1] * map.size[1];
  map.box[0] = static_cast<uint32_t>(tiles * kWeightColumns);
  map.box[1] = static_cast<uint32_t>(depth * kWeightDepth / a.group);
  map.box[2] = 1;
  map.swizzle_128 = false;
  return map;
}

uint32_t box_bytes(const TensorMapArguments& map, int element) {
  return map.box[0] * map.box[1] * map.box[2] * static_cast<uint32_t>(element);
}

// The tensor maps of a launch, for boxes of `tiles` packed tiles beside each other and `depth` along k.
struct Maps {
  CUtensorMap weights, x, scales{}, zeros{};
  uint32_t bytes = 0;  // of a box of each

  const char* encode(const WeightOnlyArguments& a, int rows, int32_t tiles, int32_t depth) {
    const TensorMapArguments of_weights = describe_weights(a, tiles, depth), of_x = describe_x(a, rows, depth);
    if (const char* refused = encode_tensor_map(&weights, of_weights)) return refused;
    if (const char* refused = encode_tensor_map(&x, of_x)) return refused;
    bytes = box_bytes(of_weights, 4) + box_bytes(of_x, 2);
    if (a.bits == 8) return nullptr;
    const TensorMapArguments of_scales = describe_groups(a, a.scales, type_of(a), 2, tiles, depth);
    if (const char* refused = encode_tensor_map(&scales, of_scales)) return refused;
    bytes += box_bytes(of_scales, 2);
    if (a.zeros == nullptr) return nullptr;
    const TensorMapArguments of_zeros = describe_groups(a, a.zeros, TensorMapType::bytes, 1, tiles, depth);
    bytes += box_bytes(of_zeros, 1);
    return encode_tensor_map(&zeros, of_zeros);
  }
};

const char* few_rows_product(const WeightOnlyArguments& a, const DeviceFacts& device, cudaStream_t stream) {
  const int32_t rows = kernel_for(a).rows;
  FewRowsParameters p{};
  p.scales = a.scales;
  p.out = a.out;
  p.m = a.m, p.n = a.n;
  p.column_tiles = ceil_div(a.n, kWeightColumns);
  p.has_zeros = a.zeros != nullptr;
  p.plan = few_rows_plan(a, rows, device.multiprocessors);
  const Kernel& kernel = kernel_for(a, p.plan.repeats);
  const int32_t depth = 2 * p.plan.parts * p.plan.repeats;
  p.column_blocks = ceil_div(p.column_tiles, p.plan.tiles), p.chunks = ceil_div(a.k / kWeightDepth, depth);
  const FewRowsStage stage = few_rows_stage(a, rows, p.plan);
  p.stage_bytes = stage.bytes, p.weights_at = stage.weights_at, p.scales_at = stage.scales_at;
  p.zeros_at = stage.zeros_at;
  p.stages = few_rows_stages(stage.bytes);

  Maps maps;
  if (const char* refused = maps.encode(a, rows, p.plan.tiles, depth)) return refused;
  p.stage_arrives = maps.bytes;
  const int shared_bytes = p.stages * (stage.bytes + 16), warps = p.plan.tiles * p.plan.parts + 1;
  if (const cudaError_t error = allow_dynamic_shared(kernel.function, kFewRowsSharedBytes); error != cudaSuccess) {
    return error_text(error);
  }
  // Blocks that share their columns with none walk over column blocks.
  const int32_t sharers = p.plan.parts * p.plan.cluster, resident = device.multiprocessors * kFewRowsBlocksPerSm;
  const int32_t blocks =
      sharers > 1 ? p.column_blocks * p.plan.cluster : ceil_div(p.column_blocks, ceil_div(p.column_blocks, resident));
  LaunchConfig config(dim3(static_cast<unsigned>(blocks)), warps * 32, shared_bytes, stream);
  config.early();
  if (p.plan.cluster > 1) config.cluster(p.plan.cluster);
  void* parameters[] = {&maps.weights, &maps.x, &maps.scales, &maps.zeros, &p};
  return error_text(config.launch(kernel.function, parameters));
}

}  // namespace

bool supported(const WeightOnlyArguments& a, const DeviceFacts& device) {
  if (device.capability != 90 || a.n % kWeightColumns != 0) return false;
  const int64_t units = int64_t{ceil_div(a.n, kColumns)} * ceil_div(a.m, kernel_for(a).rows) * ceil_div(a.k, kChunk);
  if (units > INT_MAX) return false;
  if (reinterpret_cast<uintptr_t>(a.scales) % 16 != 0 || reinterpret_cast<uintptr_t>(a.zeros) % 16 != 0) return false;
  return tensor_map_possible(describe_weights(a, 1, 2)) && tensor_map_possible(describe_x(a, 8, 2));
}

size_t workspace_bytes(const WeightOnlyArguments& a, const DeviceFacts& device) {
  if (a.m <= kMostFewRows) return 0;
  const Kernel& kernel = kernel_for(a);
  const Split split = split_for(a, kernel, device);
  return partial_bytes(split, kernel) + counter_bytes(split);
}

const char* product(const WeightOnlyArguments& a, const DeviceFacts& device, cudaStream_t stream) {
  if (a.m <= kMostFewRows) return few_rows_product(a, device, stream);
  const Kernel& kernel = kernel_for(a);
  Parameters p{};
  p.packed = static_cast<const uint8_t*>(a.packed);
  p.scales = a.scales;
  p.out = a.out;
  p.partial = static_cast<float*>(a.workspace);
  p.m = a.m, p.n = a.n;
  p.column_tiles = ceil_div(a.n, kWeightColumns), p.depth_tiles = a.k / kWeightDepth;
  p.row_tiles = ceil_div(a.m, kernel.rows);
  p.has_zeros = a.zeros != nullptr;
  p.split = split_for(a, kernel, device);
  Maps maps;
  if (const char* refused = maps.encode(a, kernel.rows, kColumns / kWeightColumns, kChunk / kWeightDepth)) {
    return refused;
  }
  p.stage_arrives = maps.bytes;

  cudaError_t error = cudaSuccess;
  if (p.split.units / p.split.chunks <= kCounters) p.counters = counters_for(stream, &error);
  if (error == cudaSuccess && p.counters == nullptr) {
    p.counters = reinterpret_cast<uint32_t*>(static_cast<char*>(a.workspace) + partial_bytes(p.split, kernel));
    error = cudaMemsetAsync(p.counters, 0, counter_bytes(p.split), stream);
  }
  if (error == cudaSuccess) error = allow_dynamic_shared(kernel.function, kernel.shared_bytes);
  if (error != cudaSuccess) return error_text(error);
  LaunchConfig config(dim3(static_cast<unsigned>(p.split.blocks)), kernel.threads, kernel.shared_bytes, stream);
  config.early();
  void* parameters[] = {&maps.weights, &maps.x, &maps.scales, &maps.zeros, &p};
  return error_text(config.launch(kernel.function, parameters));
}

void attributes(std::vector<KernelAttributes>& into) {
  for (const KernelList& list :
       {float16_kernels(), bfloat16_kernels(), few_rows_float16_kernels(), few_rows_bfloat16_kernels()}) {
    for (const Kernel& kernel : list) {
      add_kernel_attributes(
          kernel.type == ScalarType::float16 ? "weight_only_gemm sm90 f16" : "weight_only_gemm sm90 bf16", kernel.name,
          kernel.function, kernel.shared_bytes, into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
