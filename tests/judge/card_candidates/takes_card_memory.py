# gemm: WRONG candidate-failed run
import torch


def run(a, b):
    kept = []
    while True:
        kept.append(torch.full((1 << 28,), 1.0, device=a.device))
