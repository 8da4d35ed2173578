#include "product.h"

#include <algorithm>
#include <climits>

#include "../../../arithmetic.h"
#include "../../counters.h"
#include "../../error_text.h"
#include "../../kernel_attributes.h"
#include "../../launch_config.h"
#include "../../tensor_map.h"
#include "kernels.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

namespace {

KernelList kernels_of(ScalarType type) { return type == ScalarType::float16 ? float16_kernels() : bfloat16_kernels(); }

// Of the fewest rows that are enough, or of the most.
const Kernel& kernel_for(const WeightOnlyArguments& a) {
  const Kernel* found = nullptr;
  for (const Kernel& one : kernels_of(a.type)) {
    if (one.bits != a.bits || (a.bits == 4 && one.group != a.group)) continue;
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

// The blocks of a tile are a cluster where clusters of that size fill a card's groups of multiprocessors.
int32_t cluster_of(const Split& split, const Kernel& kernel, const DeviceFacts& device) {
  constexpr double most = 0.97;  // of the blocks that a card holds
  if (split.blocks > most * device.multiprocessors * kernel.blocks_per_sm) return 0;
  return split.sharers == 2 || split.sharers == 4 || split.sharers == 8 ? split.sharers : 0;
}

size_t partial_bytes(const Split& split, const Kernel& kernel) {
  return size_t{2} * split.blocks * kernel.rows * kColumns * sizeof(float);
}

// Used only where counters_for() has no set left, or too few in it.
size_t counter_bytes(const Split& split) { return static_cast<size_t>(split.units / split.chunks) * sizeof(uint32_t); }

TensorMapArguments describe_weights(const WeightOnlyArguments& a) {
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
  map.box[1] = kChunk / kWeightDepth;
  map.box[2] = kColumns / kWeightColumns;
  map.swizzle_128 = false;
  return map;
}

TensorMapType type_of(const WeightOnlyArguments& a) {
  return a.type == ScalarType::float16 ? TensorMapType::float16 : TensorMapType::bfloat16;
}

// 64 of k x rows x panels of 64 of k.
TensorMapArguments describe_x(const WeightOnlyArguments& a, int rows) {
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
  map.box[2] = kChunk / kWeightDepth;
  return map;
}

// Scales or zero points: columns x groups.
TensorMapArguments describe_groups(const WeightOnlyArguments& a, const void* pointer, TensorMapType type, int bytes) {
  TensorMapArguments map;
  map.pointer = pointer;
  map.type = type;
  map.rank = 3;
  map.size[0] = static_cast<uint64_t>(a.n);
  map.size[1] = static_cast<uint64_t>(a.k / a.group);
  map.size[2] = 1;
  map.stride_bytes[1] = map.size[0] * bytes;
  map.stride_bytes[2] = map.stride_bytes[1] * map.size[1];
  map.box[0] = kColumns;
  map.box[1] = static_cast<uint32_t>(kChunk / a.group);
  map.box[2] = 1;
  map.swizzle_128 = false;
  return map;
}

uint32_t box_bytes(const TensorMapArguments& map, int element) {
  return map.box[0] * map.box[1] * map.box[2] * static_cast<uint32_t>(element);
}

}  // namespace

bool supported(const WeightOnlyArguments& a, const DeviceFacts& device) {
  if (device.capability != 90 || a.n % kWeightColumns != 0) return false;
  const int64_t units = int64_t{ceil_div(a.n, kColumns)} * ceil_div(a.m, kernel_for(a).rows) * ceil_div(a.k, kChunk);
  if (units > INT_MAX) return false;
  if (reinterpret_cast<uintptr_t>(a.scales) % 16 != 0 || reinterpret_cast<uintptr_t>(a.zeros) % 16 != 0) return false;
  return tensor_map_possible(describe_weights(a)) && tensor_map_possible(describe_x(a, 8));
}

size_t workspace_bytes(const WeightOnlyArguments& a, const DeviceFacts& device) {
  const Kernel& kernel = kernel_for(a);
  const Split split = split_for(a, kernel, device);
  return partial_bytes(split, kernel) + counter_bytes(split);
}

const char* product(const WeightOnlyArguments& a, const DeviceFacts& device, cudaStream_t stream) {
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
  p.cluster = cluster_of(p.split, kernel, device);

  const TensorMapArguments weights = describe_weights(a), x = describe_x(a, kernel.rows);
  CUtensorMap weights_map, x_map, scales_map{}, zeros_map{};
  if (const char* refused = encode_tensor_map(&weights_map, weights)) return refused;
  if (const char* refused = encode_tensor_map(&x_map, x)) return refused;
  p.stage_arrives = box_bytes(weights, 4) + box_bytes(x, 2);
  if (a.bits == 4) {
    const TensorMapArguments scales = describe_groups(a, a.scales, type_of(a), 2);
    if (const char* refused = encode_tensor_map(&scales_map, scales)) return refused;
    p.stage_arrives += box_bytes(scales, 2);
    if (p.has_zeros) {
      const TensorMapArguments zeros = describe_groups(a, a.zeros, TensorMapType::bytes, 1);
      if (const char* refused = encode_tensor_map(&zeros_map, zeros)) return refused;
      p.stage_arrives += box_bytes(zeros, 1);
    }
  }

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
  if (p.cluster > 1) config.cluster(p.cluster);
  void* parameters[] = {&weights_map, &x_map, &scales_map, &zeros_map, &p};
  return error_text(config.launch(kernel.function, parameters));
}

void attributes(std::vector<KernelAttributes>& into) {
  for (const KernelList& list : {float16_kernels(), bfloat16_kernels()}) {
    for (const Kernel& kernel : list) {
      add_kernel_attributes(
          kernel.type == ScalarType::float16 ? "weight_only_gemm sm90 f16" : "weight_only_gemm sm90 bf16", kernel.name,
          kernel.function, kernel.shared_bytes, into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
