# gemm: WRONG candidate-failed run
import fast_matmul


def run(a, b):
    return fast_matmul.mm(a, b)
