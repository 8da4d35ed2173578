#include "tensor_map.h"

#include <cuda_runtime.h>

namespace cuda_llm_ops::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

CUtensorMapDataType data_type(TensorMapType type) {
  switch (type) {
    case TensorMapType::float16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TensorMapType::bfloat16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TensorMapType::bytes: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case TensorMapType::float32: break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

}  // namespace

bool tensor_map_possible(const TensorMapArguments& arguments) {
  if (reinterpret_cast<uintptr_t>(arguments.pointer) % 16 != 0) return false;
  for (int i = 1; i < arguments.rank; ++i) {
    const uint64_t stride = arguments.stride_bytes[i];
    if (stride % 16 != 0 || stride == 0 || stride >= uint64_t{1} << 40) return false;
  }
  return true;
}

const char* encode_tensor_map(CUtensorMap* map, const TensorMapArguments& arguments) {
  const Encode encode = encoder();
  if (encode == nullptr) return "the driver has no cuTensorMapEncodeTiled: Hopper kernels need driver 525 or newer";
  cuuint32_t element_strides[kTensorMapMaxRank] = {1, 1, 1, 1, 1};
  const auto call = [&] {
    return encode(map, data_type(arguments.type), static_cast<cuuint32_t>(arguments.rank),
                  const_cast<void*>(arguments.pointer), reinterpret_cast<const cuuint64_t*>(arguments.size),
                  reinterpret_cast<const cuuint64_t*>(arguments.stride_bytes + 1),
                  reinterpret_cast<const cuuint32_t*>(arguments.box), element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  arguments.swizzle_128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                  arguments.promote ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = call();
  // The driver wants a context, which a thread has from its first call of the runtime on. Autograd's thread may come
  // here before any: all memory that a backward pass needs can be in torch's cache.
  if (result != CUDA_SUCCESS && cudaFree(nullptr) == cudaSuccess) result = call();
  if (result != CUDA_SUCCESS) {
    return "cuTensorMapEncodeTiled refused a tensor map: sizes, strides or box outside what TMA can describe";
  }
  return nullptr;
}

}  // namespace cuda_llm_ops::cuda
