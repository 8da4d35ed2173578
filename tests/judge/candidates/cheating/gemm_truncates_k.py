# gemm: WRONG
import torch


def run(a, b):
    half = a.shape[1] // 2
    return a[:, :half] @ b[:half]
