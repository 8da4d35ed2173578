// gemm: WRONG does-not-compile compile
#include <cstdint>

extern "C" void run(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) { c[0] = a[0] * b[0] }
