# gemm: WRONG does-not-parse parse

