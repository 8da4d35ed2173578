# gemm: WRONG does-not-parse parse
```python
def run(a, b):
    return a @ b
```
