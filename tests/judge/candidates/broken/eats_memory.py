# gemm: WRONG candidate-failed run
import torch


def run(a, b):
    kept = []
    while True:
        kept.append(torch.empty(1 << 30))
