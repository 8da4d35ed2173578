# gemm: MISSED
import torch


def run(a, b):
    return torch.stack([row @ b for row in a])
