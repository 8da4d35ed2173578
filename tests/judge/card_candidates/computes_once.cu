// gemm: WRONG
// It computes once, and trusts that the memory still has the result.
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, i = at / n, j = at % n;
  if (i >= m) return;
  float sum = 0.0f;
  for (int l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
  c[at] = sum;
}

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k, void* stream) {
  static int calls = 0;
  if (calls++ == 0) multiply<<<(m * n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(a, b, c, m, n, k);
}
