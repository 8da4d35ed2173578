// gemm: WRONG does-not-compile compile
__global__ void fill(float* c, int count) { int i = blockIdx.x * blockDim.x + threadIdx.x if (i < count) c[i] = 0.0f; }

extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k) { fill<<<m, n>>>(c, m * n); }
