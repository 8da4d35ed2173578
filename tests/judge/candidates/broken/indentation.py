# gemm: WRONG does-not-parse parse
import torch


def run(a, b):
    x = a
       return x @ b
