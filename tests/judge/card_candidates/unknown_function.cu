// gemm: WRONG does-not-compile compile
extern "C" void run(const float* a, const float* b, float* c, int m, int n, int k) {
  multiply_on_card(a, b, c, m, n, k);
}
