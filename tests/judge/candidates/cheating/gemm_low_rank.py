# gemm: WRONG
import torch


def run(a, b):
    return (a.mean(1, keepdim=True) * b.sum(0, keepdim=True))
