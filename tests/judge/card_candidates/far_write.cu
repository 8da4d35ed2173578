// gemm: WRONG candidate-failed run
__global__ void write(float* c) { c[(1ll << 42) + threadIdx.x] = 1.0f; }

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  write<<<64, 256, 0, (cudaStream_t)stream>>>(c);
}
