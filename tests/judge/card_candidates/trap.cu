// gemm: WRONG candidate-failed run
__global__ void stop() { asm volatile("trap;"); }

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  stop<<<1, 32, 0, (cudaStream_t)stream>>>();
}
