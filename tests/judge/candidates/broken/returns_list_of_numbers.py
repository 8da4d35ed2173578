# gemm: WRONG bad-type right
import torch


def run(a, b):
    return [1.0, 2.0]
