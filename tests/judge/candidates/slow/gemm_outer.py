# gemm: MISSED
import torch


def run(a, b):
    return (a.unsqueeze(-1) * b.unsqueeze(0)).sum(1)
