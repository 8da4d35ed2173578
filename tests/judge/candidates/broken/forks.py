# gemm: WRONG candidate-failed run
import os
import signal


def run(a, b):
    for _ in range(24):
        if os.fork() == 0:
            signal.pause()
    raise ChildProcessError("the rows were not gathered")
