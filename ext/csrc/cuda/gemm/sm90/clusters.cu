#include "clusters.h"

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <tuple>

#include "../../device.h"
#include "../../launch_config.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

// 0 if the driver does not answer.
int ask(const Kernel& kernel, int blocks_a_cluster) {
  if (allow_dynamic_shared(kernel.function, kernel.shared_bytes) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return LaunchConfig(dim3(static_cast<unsigned>(blocks_a_cluster)), kernel.threads, kernel.shared_bytes, nullptr)
      .cluster(blocks_a_cluster)
      .active_clusters(kernel.function);
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
