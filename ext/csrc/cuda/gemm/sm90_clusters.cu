#include "sm90_clusters.h"

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <tuple>

#include "../device.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

// 0 where the driver does not tell.
int ask(const Kernel& kernel, int blocks_a_cluster) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks_a_cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_a_cluster));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<size_t>(kernel.shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  if (allow_dynamic_shared(kernel.function, kernel.shared_bytes) != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &config) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return clusters;
}

}  // namespace

int clusters_at_once(const Kernel& kernel, int blocks_a_cluster, int multiprocessors) {
  if (blocks_a_cluster == 1) return multiprocessors * kernel.blocks_per_sm;
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int>, int> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, fresh] = known.try_emplace({device, kernel.blocks_per_sm, blocks_a_cluster}, 0);
  if (fresh) place->second = ask(kernel, blocks_a_cluster);
  if (place->second > 0) return place->second;
  return multiprocessors * kernel.blocks_per_sm / blocks_a_cluster;
}

}  // namespace cuda_llm_ops::cuda::sm90
