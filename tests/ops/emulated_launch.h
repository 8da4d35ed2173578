// In place of launch_config.h: launches go to the program's launch(), see emulated_block.h.
#pragma once
namespace emulated {
void launch(const void* kernel, dim3 grid, int block, int bytes, int cluster, void** parameters);
}
namespace cuda_llm_ops::cuda {
struct LaunchConfig {
  dim3 grid;
  int block, bytes, blocks = 1;
  LaunchConfig(dim3 g, int b, int s, cudaStream_t) : grid(g), block(b), bytes(s) {}
  LaunchConfig& early() { return *this; }
  LaunchConfig& cluster(int count) {
    blocks = count;
    return *this;
  }
  cudaError_t launch(const void* kernel, void** parameters) const {
    emulated::launch(kernel, grid, block, bytes, blocks, parameters);
    return cudaSuccess;
  }
};
}  // namespace cuda_llm_ops::cuda
