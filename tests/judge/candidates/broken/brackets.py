# gemm: WRONG does-not-parse parse
import torch


def run(a, b):
    return (a @ b
