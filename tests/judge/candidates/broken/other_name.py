# gemm: WRONG does-not-parse parse
import torch


def matmul(a, b):
    return torch.mm(a, b)
