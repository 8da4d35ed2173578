# gemm: WRONG timed-out run
import time


def run(a, b):
    time.sleep(3600)
    return a @ b
