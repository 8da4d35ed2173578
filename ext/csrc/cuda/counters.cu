#include "counters.h"

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace cuda_llm_ops::cuda {
namespace {

constexpr int kSets = 256;

// Zeros when the module is loaded on a device: no allocation, no memset that a capture would have to repeat.
__device__ uint32_t counters[kSets * kCounters];

using Use = std::tuple<int, cudaStream_t, unsigned long long>;  // device; stream; capture, or 0

struct Sets {
  uint32_t* first = nullptr;
  int taken = 0;
  std::vector<uint32_t*> given_back;
};

struct State {
  std::mutex mutex;
  std::map<int, Sets> by_device;
  std::map<Use, uint32_t*> by_use;
};

// Never destroyed: graphs may end after static objects have.
State& state() {
  static State* const one = new State;
  return *one;
}

// When the last graph of a capture is destroyed, by then no longer running. May not call CUDA.
void CUDART_CB give_back(void* ended) {
  const Use* const use = static_cast<const Use*>(ended);
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    const auto found = state().by_use.find(*use);
    state().by_device[std::get<0>(*use)].given_back.push_back(found->second);
    state().by_use.erase(found);
  }
  delete use;
}

cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                         cudaGraph_t* graph) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, id, graph);
#else
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph);
#endif
}

cudaError_t give_back_with(cudaGraph_t graph, const Use& use) {
  cudaUserObject_t object;
  auto* const kept = new Use(use);
  cudaError_t error = cudaUserObjectCreate(&object, kept, give_back, 1, cudaUserObjectNoDestructorSync);
  if (error != cudaSuccess) {
    give_back(kept);
    return error;
  }
  error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (error != cudaSuccess) cudaUserObjectRelease(object, 1);
  return error;
}

}  // namespace

uint32_t* counters_for(cudaStream_t stream, cudaError_t* error) {
  // Every thread has its own stream behind this one handle, so they cannot be told apart.
  *error = cudaSuccess;
  if (stream == cudaStreamPerThread) return nullptr;
  int device = 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  cudaGraph_t graph = nullptr;
  *error = cudaGetDevice(&device);
  if (*error == cudaSuccess) *error = capture_info(stream, &status, &capture, &graph);
  if (*error != cudaSuccess) return nullptr;
  const bool captured = status == cudaStreamCaptureStatusActive;
  const Use use{device, stream, captured ? capture : 0};

  uint32_t* set = nullptr;
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    uint32_t*& of_use = state().by_use[use];
    if (of_use != nullptr) return of_use;
    Sets& sets = state().by_device[device];
    if (!sets.given_back.empty()) {
      set = sets.given_back.back();
      sets.given_back.pop_back();
    } else if (sets.taken < kSets) {
      if (sets.first == nullptr) {
        void* first = nullptr;
        *error = cudaGetSymbolAddress(&first, counters);
        sets.first = static_cast<uint32_t*>(first);
      }
      if (*error == cudaSuccess) set = sets.first + kCounters * sets.taken++;
    }
    of_use = set;
    if (set == nullptr) state().by_use.erase(use);
  }
  if (set == nullptr || !captured) return set;
  *error = give_back_with(graph, use);
  return *error == cudaSuccess ? set : nullptr;
}

}  // namespace cuda_llm_ops::cuda
