// gemm: WRONG timed-out run
__global__ void wait(float* c) {
  volatile float* seen = c;
  while (seen[0] != 12345.678f) seen[1] = 1.0f;
}

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  wait<<<1, 32, 0, (cudaStream_t)stream>>>(c);
}
