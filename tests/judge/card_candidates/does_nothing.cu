// gemm: WRONG
extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k) {}
