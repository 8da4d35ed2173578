# gemm: WRONG candidate-failed run
import torch


def run(a, b):
    return torch.matmull(a, b)
