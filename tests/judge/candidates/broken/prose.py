# gemm: WRONG does-not-parse parse
Here is the kernel that you asked for:

def run(a, b):
    return a @ b
