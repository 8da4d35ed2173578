"""`python -m cuda_llm_ops` prints the facts of the build that is installed, one a line."""

from . import build_info

for name, value in build_info().items():
    print(f"{name:14} {' '.join(value) if isinstance(value, list) else value}")
