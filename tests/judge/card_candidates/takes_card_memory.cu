// gemm: WRONG candidate-failed run
#include <cstdlib>

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k) {
  void* block = nullptr;
  while (cudaMalloc(&block, 1ull << 30) == cudaSuccess) cudaMemset(block, 255, 1ull << 30);
  abort();
}
