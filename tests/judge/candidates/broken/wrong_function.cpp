// gemm: WRONG does-not-parse parse
extern "C" void product(const float* a, const float* b, float* c, int m, int n, int k) { c[0] = a[0]; }
