// gemm: WRONG candidate-failed run
__global__ void write(float* nowhere, const float* a) { nowhere[threadIdx.x] = a[threadIdx.x]; }

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  write<<<1, 32, 0, (cudaStream_t)stream>>>(nullptr, a);
}
