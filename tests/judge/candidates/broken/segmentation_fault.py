# gemm: WRONG candidate-failed run
import ctypes


def run(a, b):
    ctypes.string_at(0)
    return a @ b
