// The shared memory that every kernel asks for on a card which is not there: the dispatch of all operators runs against
// a made-up CUDA runtime, which launches nothing. Arguments: compute capability (86), bytes of a block, bytes of a
// multiprocessor. Prints, once each, `symbol dynamic_bytes` of every kernel that a call chose, and `REFUSED reason` of
// calls that found none.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "decode.h"
#include "decode_quantised.h"
#include "fp8.h"
#include "kernels.h"
#include "weight_only.h"

using namespace cuda_llm_ops;

namespace {

int capability, block_bytes, multiprocessor_bytes;
std::map<const void*, std::string> symbols;
std::set<std::string> printed;

void print(const std::string& line) {
  if (printed.insert(line).second) std::printf("%s\n", line.c_str());
}

cudaError_t chosen(const void* kernel, size_t dynamic) {
  print(symbols.at(kernel) + " " + std::to_string(dynamic));
  return cudaSuccess;
}

void check(const char* operation, const char* refused) {
  if (refused != nullptr) print(std::string("REFUSED ") + operation + ": " + refused);
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  symbols[function] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }
namespace {
thread_local size_t pushed_bytes;
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t bytes, struct CUstream_st*) {
  pushed_bytes = bytes;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* bytes, void*) {
  *grid = dim3(1), *block = dim3(1), *bytes = pushed_bytes;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t bytes, cudaStream_t) {
  return chosen(kernel, bytes);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return chosen(kernel, config->dynamicSmemBytes);
}
// CUDA 13 registers kernels by handles, too.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t bytes, cudaStream_t) {
  return chosen(kernel, bytes);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = block_bytes; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = multiprocessor_bytes; break;
    case cudaDevAttrMultiProcessorCount: *value = 84; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
// A limit above the card's would be refused.
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) return chosen(kernel, value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->numRegs = 128;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t bytes) {
  *blocks = static_cast<int>(multiprocessor_bytes / (bytes + 1024));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, bytes);
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) {
  *clusters = 1;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemset2DAsync(void*, size_t, int, size_t, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
// The rest is asked only where its answer does not matter here. Their types differ from one CUDA to the next.
#define CUDA_LLM_OPS_IDLE(NAME)     \
  int idle_##NAME() __asm__(#NAME); \
  int idle_##NAME() { return 0; }
CUDA_LLM_OPS_IDLE(cudaFree)
CUDA_LLM_OPS_IDLE(cudaStreamGetCaptureInfo)
CUDA_LLM_OPS_IDLE(cudaStreamGetCaptureInfo_v2)
CUDA_LLM_OPS_IDLE(cudaUserObjectCreate)
CUDA_LLM_OPS_IDLE(cudaUserObjectRelease)
CUDA_LLM_OPS_IDLE(cudaGraphRetainUserObject)
CUDA_LLM_OPS_IDLE(cudaGetDriverEntryPoint)
CUDA_LLM_OPS_IDLE(cudaGetDriverEntryPointByVersion)
CUDA_LLM_OPS_IDLE(cudaGetSymbolAddress)

}  // extern "C"

namespace {

alignas(256) char memory[1 << 12];  // nobody reads it
void* at(int elements) { return memory + 2 * elements; }

const ScalarType types[] = {ScalarType::float32, ScalarType::float16, ScalarType::bfloat16};
const int rows_of[] = {1, 3, 16, 17, 64, 100, 256, 1000, 4096, 16384};

void products() {
  for (const ScalarType type : types) {
    for (const int m : rows_of) {
      for (const int n : {1, 33, 128, 1000, 4096, 4097, 32000}) {
        for (const int k : {1, 64, 100, 4096, 4097}) {
          for (int form = 0; form < 8; ++form) {
            GemmArguments g;
            const bool a_columns = form & 1, b_columns = form & 2, odd = form & 4;
            g.a = at(odd), g.b = at(0), g.out = memory, g.workspace = memory;
            g.m = m, g.n = n, g.k = k;
            g.a_stride_m = a_columns ? 1 : k, g.a_stride_k = a_columns ? m : 1;
            g.b_stride_k = b_columns ? 1 : n, g.b_stride_n = b_columns ? k : 1;
            g.in_type = g.out_type = type;
            check("gemm", cuda::gemm(g, nullptr));
            if (type == ScalarType::float32) continue;
            g.out_type = ScalarType::float32;
            check("tensor_core_gemm", cuda::tensor_core_gemm(g, nullptr));
          }
        }
      }
    }
  }
}

void attentions() {
  for (const ScalarType type : types) {
    for (int dim = 1; dim <= 256; ++dim) {
      for (const int tokens : {1, 77, 512, 8192}) {
        for (const int heads : {1, 16, 64}) {
          for (int form = 0; form < 4; ++form) {
            AttentionArguments a;
            a.q = at(form & 2 ? 1 : 0), a.k = memory, a.v = memory, a.out = memory, a.workspace = memory;
            a.batch = heads == 64 ? 4 : 1, a.heads = heads, a.kv_heads = heads;
            a.seq_q = tokens, a.seq_kv = tokens, a.head_dim = dim;
            a.q_stride = a.k_stride = a.v_stride =
                a.out_stride = {int64_t{heads} * tokens * dim, int64_t{tokens} * dim, dim};
            a.causal = form & 1;
            a.type = type;
            check("flash_attention", cuda::flash_attention(a, nullptr));
            check("flash_attention_varlen", cuda::flash_attention_varlen(a, AttentionOptions{}, nullptr));
            check("tiled_attention", cuda::tiled_attention(a, nullptr));
            check("naive_attention", cuda::naive_attention(a, nullptr));
          }
        }
      }
    }
  }
}

template <typename Arguments>
Arguments decode(ScalarType type, int dim, int batch, int group, int length, int tokens, bool paged) {
  Arguments a;
  a.q = memory, a.k = memory, a.v = memory, a.out = memory, a.workspace = memory;
  a.cache_lens = reinterpret_cast<const int32_t*>(memory);
  a.batch = batch, a.kv_heads = 4, a.heads = 4 * group, a.seq_q = tokens, a.head_dim = dim;
  a.capacity = length, a.page_size = length, a.num_pages = batch;
  if (paged) {
    a.block_table = a.cache_lens;
    a.page_size = 16, a.num_pages = batch * (length / 16), a.table_stride_batch = length / 16;
  }
  a.q_stride = {int64_t{4} * group * tokens * dim, int64_t{tokens} * dim, dim};
  const int64_t slot = paged ? 4 * dim : dim;
  a.k_stride = a.v_stride = {int64_t{4} * a.page_size * dim, slot, paged ? dim : int64_t{length} * dim};
  a.type = type;
  return a;
}

void decodes() {
  for (const ScalarType type : types) {
    for (const int dim : {8, 32, 40, 64, 72, 96, 128, 129, 192, 200, 255, 256}) {
      for (const int batch : {1, 7, 64, 300}) {
        for (const int group : {1, 4, 8, 16, 71}) {
          for (const int length : {16, 1024, 131072}) {
            for (int form = 0; form < 4; ++form) {
              const int tokens = form & 1 ? 5 : 1;
              const bool paged = form & 2;
              check(
                  "flash_decode",
                  cuda::flash_decode(decode<DecodeArguments>(type, dim, batch, group, length, tokens, paged), nullptr));
              for (const CacheType cache : {CacheType::e4m3, CacheType::int8}) {
                auto a = decode<QuantisedDecodeArguments>(type, dim, batch, group, length, tokens, paged);
                a.cache_type = cache;
                check("quantised decode", cuda::quantised_decode(a, nullptr));
                a.k_scale = a.v_scale = reinterpret_cast<const float*>(memory);
                a.k_scale_stride = a.v_scale_stride = {4 * a.page_size, 1, a.page_size};
                check("quantised decode", cuda::quantised_decode(a, nullptr));
              }
            }
          }
        }
      }
    }
  }
}

void weights() {
  for (const ScalarType type : {ScalarType::float16, ScalarType::bfloat16}) {
    for (const int m : rows_of) {
      for (const int n : {16, 1000, 4096, 28672}) {
        for (const int k : {64, 4096, 14336}) {
          for (const int bits : {4, 8}) {
            for (const int group : {64, 128}) {
              if (k % group != 0) continue;
              WeightOnlyArguments a;
              a.x = a.packed = a.scales = memory, a.out = memory, a.workspace = memory;
              a.m = m, a.n = n, a.k = k, a.group = group, a.bits = bits, a.x_stride = k, a.type = type;
              check("weight_only_gemm", cuda::weight_only_gemm(a, nullptr));
              a.zeros = bits == 4 ? memory : nullptr;
              check("weight_only_gemm", cuda::weight_only_gemm(a, nullptr));
            }
          }
        }
      }
    }
  }
}

void fp8() {
  for (const ScalarType type : types) {
    for (const int m : {1, 64, 1000}) {
      for (const bool block : {false, true}) {
        Fp8GemmArguments a;
        a.a = a.b = memory, a.out = memory, a.workspace = memory;
        a.scale_a = a.scale_b = reinterpret_cast<const float*>(memory);
        a.m = m, a.n = 1024, a.k = 1024, a.a_stride = a.b_stride = 1024;
        a.block_scales = block, a.out_type = type;
        check("fp8_gemm", cuda::fp8_gemm(a, nullptr));
      }
      for (const Fp8Scales scales :
           {Fp8Scales::tensor, Fp8Scales::row, Fp8Scales::row_block, Fp8Scales::square_block}) {
        for (const Fp8Source source : {Fp8Source::values, Fp8Source::rms_norm, Fp8Source::swiglu}) {
          Fp8QuantiseArguments a;
          a.x = a.other = memory, a.numbers = memory, a.scales_out = reinterpret_cast<float*>(memory);
          a.rows = m, a.columns = 4096, a.x_stride = a.other_stride = 4096;
          a.type = type, a.scales = scales, a.source = source;
          check("fp8_quantise", cuda::fp8_quantise(a, nullptr));
        }
      }
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s CAPABILITY BYTES_OF_A_BLOCK BYTES_OF_A_MULTIPROCESSOR\n", arguments[0]);
    return 2;
  }
  capability = std::atoi(arguments[1]);
  block_bytes = std::atoi(arguments[2]);
  multiprocessor_bytes = std::atoi(arguments[3]);
  products();
  attentions();
  decodes();
  weights();
  fp8();
}
