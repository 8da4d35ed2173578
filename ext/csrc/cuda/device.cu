#include "device.h"

#include <map>
#include <mutex>
#include <utility>

namespace cuda_llm_ops::cuda {
namespace {

std::mutex facts_mutex;
std::map<int, DeviceFacts> facts_by_device;

std::mutex allowed_mutex;
std::map<std::pair<int, const void*>, int> allowed_bytes;

constexpr int kAlwaysAllowed = 48 * 1024;

}  // namespace

cudaError_t current_device_facts(DeviceFacts* facts) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(facts_mutex);
  if (const auto known = facts_by_device.find(device); known != facts_by_device.end()) {
    *facts = known->second;
    return cudaSuccess;
  }
  int major = 0, minor = 0;
  const std::pair<int*, cudaDeviceAttr> wanted[] = {
      {&facts->multiprocessors, cudaDevAttrMultiProcessorCount},
      {&major, cudaDevAttrComputeCapabilityMajor},
      {&minor, cudaDevAttrComputeCapabilityMinor},
      {&facts->shared_per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor},
      {&facts->shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin},
  };
  for (const auto& [value, attribute] : wanted) {
    if (const cudaError_t error = cudaDeviceGetAttribute(value, attribute, device); error != cudaSuccess) return error;
  }
  facts->capability = 10 * major + minor;
  facts_by_device.emplace(device, *facts);
  return cudaSuccess;
}

DeviceFacts current_device_or_none() {
  DeviceFacts facts{};
  if (current_device_facts(&facts) == cudaSuccess) return facts;
  cudaGetLastError();
  return DeviceFacts{};
}

cudaError_t allow_dynamic_shared(const void* kernel, int bytes) {
  if (bytes <= kAlwaysAllowed) return cudaSuccess;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(allowed_mutex);
  int& allowed = allowed_bytes[{device, kernel}];
  if (allowed >= bytes) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) allowed = bytes;
  return error;
}

}  // namespace cuda_llm_ops::cuda
