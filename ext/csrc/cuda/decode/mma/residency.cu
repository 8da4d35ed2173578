#include "residency.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "../../launch_config.h"

namespace cuda_llm_ops::cuda::decode {

cudaError_t prepare(const MmaInstance& instance, int bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, int> allowed;
  const void* const kernel = instance.address;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  int& most = allowed[{device, kernel}];
  if (most >= bytes) return cudaSuccess;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) most = bytes;
  return error;
}

int cluster_size(const MmaInstance& instance, const DeviceFacts& facts, int64_t units) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::array<int, kMaxCluster + 1>> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  const int alone = facts.shared_per_sm / 2 + 1024;
  if (alone > facts.shared_per_block || prepare(instance, alone) != cudaSuccess) return 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, is_new] = known.try_emplace({device, instance.address});
  auto& active = found->second;
  if (is_new) {
    for (int size = 1; size <= kMaxCluster; ++size) {
      active[size] = LaunchConfig(dim3(static_cast<unsigned>(size)), instance.threads(), alone, nullptr)
                         .cluster(size)
                         .active_clusters(instance.address);
    }
  }
  int size = kMaxCluster;
  while (size > 0 && active[size] < units) --size;
  return size;
}

}  // namespace cuda_llm_ops::cuda::decode
