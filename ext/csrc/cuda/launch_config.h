// A launch's configuration with its attributes (cluster, early launch), for cudaLaunchKernelExC.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_llm_ops::cuda {

class LaunchConfig {
 public:
  LaunchConfig(dim3 blocks, int threads, int shared_bytes, cudaStream_t stream) {
    config_.gridDim = blocks;
    config_.blockDim = dim3(static_cast<unsigned>(threads));
    config_.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config_.stream = stream;
  }

  // Thread blocks of a cluster.
  LaunchConfig& cluster(int blocks) {
    cudaLaunchAttribute& attribute = add(cudaLaunchAttributeClusterDimension);
    attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
    return *this;
  }

  // The kernel may begin before the one before it in the stream has ended, for which it waits itself
  // (ptx/griddepcontrol.cuh).
  LaunchConfig& early() {
    add(cudaLaunchAttributeProgrammaticStreamSerialization).val.programmaticStreamSerializationAllowed = 1;
    return *this;
  }

  // `arguments` as cudaLaunchKernel takes them.
  cudaError_t launch(const void* kernel, void** arguments) const {
    const cudaLaunchConfig_t config = whole();
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }

  // How many of its clusters run at once on the current device; 0 if the driver does not answer.
  int active_clusters(const void* kernel) const {
    const cudaLaunchConfig_t config = whole();
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess) return clusters;
    cudaGetLastError();
    return 0;
  }

 private:
  cudaLaunchAttribute& add(cudaLaunchAttributeID id) {
    cudaLaunchAttribute& attribute = attributes_[count_++];
    attribute.id = id;
    return attribute;
  }
  // With the attributes' address as of now: this may have been copied.
  cudaLaunchConfig_t whole() const {
    cudaLaunchConfig_t config = config_;
    config.attrs = const_cast<cudaLaunchAttribute*>(attributes_);
    config.numAttrs = count_;
    return config;
  }

  cudaLaunchConfig_t config_{};
  cudaLaunchAttribute attributes_[2]{};
  unsigned count_ = 0;
};

}  // namespace cuda_llm_ops::cuda
