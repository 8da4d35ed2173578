"""The variables of the environment that can change what is measured or judged."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

NAMES = (
    *("PERFSUITE_COMMIT", "PERFSUITE_SUITE", "PERFSUITE_REFERENCE_CACHE", "PERFSUITE_FLASH_ATTN_OBJECTS"),
    "CUDA_LLM_OPS_BUILD",
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "NVIDIA_TF32_OVERRIDE"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_COMPILE_DISABLE"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_BLAS_PREFER_CUBLASLT", "TORCHDYNAMO_DISABLE", "TRITON_INTERPRET"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"),
    *("PYTHONHASHSEED", "PYTEST_ADDOPTS"),
)
MOST_SHOWN = 200
"""Characters of a value that a record keeps."""


OWN = "PERFSUITE_"
"""The start of the names of perfsuite's own variables."""


def restore_own(environ: MutableMapping[str, str], found: Mapping[str, str]) -> None:
    """Give perfsuite's own variables among NAMES the values that the run found. A test may have changed them."""
    for name in NAMES:
        if name.startswith(OWN) and environ.get(name) != found.get(name):
            environ.pop(name, None)
            if name in found:
                environ[name] = found[name]


def found_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those of NAMES that are set."""
    return {name: environ[name] for name in NAMES if name in environ}
