# gemm: WRONG timed-out run
import threading

threading.Event().wait()


def run(a, b):
    return a @ b
