// gemm: WRONG candidate-failed run
extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k) {
  volatile float* nowhere = nullptr;
  *nowhere = a[0];
}
