# gemm: WRONG does-not-parse parse
import torch


def run(a, b):
    if a
        return b
