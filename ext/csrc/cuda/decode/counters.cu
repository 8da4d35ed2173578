#include "counters.h"

#include <map>
#include <mutex>
#include <tuple>

namespace cuda_llm_ops::cuda::decode {
namespace {

constexpr int kSets = 256;

// Zeros when the module is loaded on a device: no allocation, no memset that a capture would have to repeat.
__device__ uint32_t counters[kSets * kCounters];

struct Taken {
  uint32_t* first = nullptr;
  int sets = 0;
};

std::mutex taken_mutex;
std::map<int, Taken> taken_by_device;
std::map<std::tuple<int, cudaStream_t, unsigned long long>, uint32_t*> set_by_use;

}  // namespace

uint32_t* counters_for(cudaStream_t stream, cudaError_t* error) {
  // One handle for the streams of many threads: none of them can be told from the others.
  *error = cudaSuccess;
  if (stream == cudaStreamPerThread) return nullptr;
  int device = 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  *error = cudaGetDevice(&device);
  if (*error == cudaSuccess) *error = cudaStreamGetCaptureInfo(stream, &status, &capture);
  if (*error != cudaSuccess) return nullptr;
  if (status != cudaStreamCaptureStatusActive) capture = 0;

  const std::lock_guard<std::mutex> lock(taken_mutex);
  uint32_t*& set = set_by_use[{device, stream, capture}];
  if (set != nullptr) return set;
  Taken& taken = taken_by_device[device];
  if (taken.first == nullptr) {
    void* first = nullptr;
    *error = cudaGetSymbolAddress(&first, counters);
    if (*error != cudaSuccess) return nullptr;
    taken.first = static_cast<uint32_t*>(first);
  }
  if (taken.sets == kSets) return nullptr;
  return set = taken.first + kCounters * taken.sets++;
}

}  // namespace cuda_llm_ops::cuda::decode
