"""Calls cuBLASLt by its C interface: lists its algorithms for a matrix product, and runs one of them.

torch takes the first algorithm of the library's heuristics and offers no other. Its TunableOp chooses among algorithms
of rocBLAS and hipBLASLt; built for CUDA it has only the default. So this module calls the library that torch has
loaded, with the algorithm as an argument.

cuBLAS stores matrices by columns: a row-major c = a b is computed as its transpose, c' = b' a', and no data moves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.problems.checks import plain_name

if TYPE_CHECKING:
    import torch

WORKSPACE_BYTES = 64 << 20
"""torch gives its own calls 32 MiB on a Hopper card; more room lets more ways of splitting a sum take part."""
FULL_ALIGNMENT = 256

# Values of the enumerations of library_types.h, cublas_api.h and cublasLt.h.
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29}
_COMPUTE_FLOAT32 = 68
_TRANSPOSED = 1
_DESC_TRANS_A, _DESC_TRANS_B = 3, 4
_DESC_SCALE_A, _DESC_SCALE_B, _DESC_FAST_SUMS = 17, 18, 25
_LAYOUT_BATCH_COUNT, _LAYOUT_BATCH_STRIDE = 5, 6
_PREFER_WORKSPACE, _PREFER_REDUCTIONS, _PREFER_ALIGNMENT_A, _PREFER_ALIGNMENT_B = 1, 3, 5, 6
_IN_ONE_PART, _REDUCED_IN_FLOAT32, _REDUCED_IN_ANY = 0, 2, 7
_CONFIG = {"id": 0, "tile": 1, "split": 2, "reduction": 3, "stages": 6}
_STATUSES = {1: "not initialized", 3: "allocation failed", 7: "invalid value", 8: "architecture mismatch"}
_STATUSES |= {13: "execution failed", 14: "internal error", 15: "not supported"}


class LtError(RuntimeError):
    """The library is missing, or a call of it failed."""


class Algorithm(ctypes.Structure):
    """A proposed algorithm (cublasLtMatmulHeuristicResult_t); the first 64 bytes identify it."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Operand:
    """The layout of a matrix, or a batch of matrices, by rows or by columns; strides count elements."""

    by_columns: bool
    leading: int
    batch_stride: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Operand | None:
        """The layout of a tensor; None if neither its rows nor its columns are contiguous."""
        rows, columns = tensor.shape[-2:]
        down, across = tensor.stride()[-2:]
        batch_stride = tensor.stride(0) if tensor.dim() == 3 else 0
        if across == 1 and (down >= columns or rows == 1):
            return Operand(False, max(down, columns), batch_stride)
        if down == 1 and (across >= rows or columns == 1):
            return Operand(True, max(across, rows), batch_stride)
        return None


class Library:
    """The functions of cuBLASLt, and a handle on the current device."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = library
        handle = ctypes.c_void_p()
        self.call("Create", ctypes.byref(handle))
        self.handle = handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call `cublasLt<name>(*arguments)`; LtError if it fails."""
        _require(name, getattr(self._functions, f"cublasLt{name}")(*arguments))

    def function(self, name: str, *types: Any) -> Callable[..., int]:
        """A function for frequent calls, with the types of its arguments declared."""
        found = getattr(self._functions, f"cublasLt{name}")
        found.argtypes, found.restype = types, ctypes.c_int
        return found

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """A new object of the library; it lives as long as the process."""
        created = ctypes.c_void_p()
        self.call(f"{name}Create", ctypes.byref(created), *arguments)
        return created

    def put(self, name: str, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of an object to a ctypes value."""
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.call(f"{name}SetAttribute", target, ctypes.c_int(attribute), ctypes.byref(value), size)


def _require(name: str, status: int) -> None:
    if status:
        raise LtError(f"cublasLt{name}: {_STATUSES.get(status, f'status {status}')}")


def load(cuda: str | None) -> ctypes.CDLL:
    """The library of torch's CUDA version, which torch has loaded."""
    if cuda is None:
        raise LtError("this torch is not built for CUDA")
    name = f"libcublasLt.so.{cuda.partition('.')[0]}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise LtError(f"{name} cannot be loaded: {error}") from None


class Product:
    """A matrix product of one shape and layout, with float32 sums.

    a (m, k), b (k, n), or batches of them: tensors of the shapes, strides and alignments that `run` will get.
    """

    def __init__(self, library: Library, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> None:
        left, right = Operand.of(a), Operand.of(b)
        if left is None or right is None:
            raise LtError("an operand has neither its rows nor its columns contiguous")
        (m, k), n = a.shape[-2:], b.shape[-1]
        self._library, self._batch = library, a.shape[0] if a.dim() == 3 else 0
        for dtype in (plain_name(out_dtype), plain_name(a.dtype), plain_name(b.dtype)):
            if dtype not in _TYPES:
                raise LtError(f"{dtype} is none of {', '.join(_TYPES)}")
        # The factors on the product have the type of the sums.
        factors = ctypes.c_int(_TYPES["float32"])
        self._description = library.made("MatmulDesc", ctypes.c_int(_COMPUTE_FLOAT32), factors)
        for attribute, operand in ((_DESC_TRANS_A, right), (_DESC_TRANS_B, left)):
            if operand.by_columns:
                library.put("MatmulDesc", self._description, attribute, ctypes.c_int32(_TRANSPOSED))
        self._a = self._layout(a.dtype, (m, k), left)
        self._b = self._layout(b.dtype, (k, n), right)
        self._c = self._layout(out_dtype, (m, n), Operand(False, n, m * n))
        self._exact = plain_name(out_dtype) == "float32"
        self._alignments = alignment(a), alignment(b)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        pointer = ctypes.c_void_p
        self._matmul = library.function("Matmul", *[pointer] * 14, ctypes.c_size_t, pointer)

    def _layout(self, dtype: torch.dtype, shape: tuple[int, int], operand: Operand) -> ctypes.c_void_p:
        """A layout as the library counts: the columns of a matrix stored by rows are its rows."""
        rows, columns = shape if operand.by_columns else shape[::-1]
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(operand.leading)
        layout = self._library.made("MatrixLayout", ctypes.c_int(_TYPES[plain_name(dtype)]), *sizes)
        if self._batch:
            put = self._library.put
            put("MatrixLayout", layout, _LAYOUT_BATCH_COUNT, ctypes.c_int32(self._batch))
            put("MatrixLayout", layout, _LAYOUT_BATCH_STRIDE, ctypes.c_int64(operand.batch_stride))
        return layout

    def algorithms(self, most: int) -> list[Algorithm]:
        """The library's proposals, its first choice first.

        One query has few answers (eight from cuBLAS 13.1, if asked for more). So there are three, each for `most`
        answers: with all the workspace, with no workspace, and with sums in one part. Algorithms that add partial sums
        in less than float32 are left out: they would not be a rival at equal precision.
        """
        allowed = _REDUCED_IN_ANY if self._exact else _REDUCED_IN_FLOAT32
        questions = (WORKSPACE_BYTES, allowed), (0, allowed), (WORKSPACE_BYTES, _IN_ONE_PART)
        found: dict[bytes, Algorithm] = {}
        for question in questions:
            for one in self._proposed(most, *question):
                found.setdefault(bytes(one.algo), one)
        good = [one for one in found.values() if one.state == 0 and one.workspace <= WORKSPACE_BYTES]
        return [one for one in good if self._exact or self.config(one)["reduction"] in (0, _REDUCED_IN_FLOAT32)]

    def _proposed(self, most: int, workspace: int, reductions: int) -> list[Algorithm]:
        preference = self._library.made("MatmulPreference")
        for attribute, value in (
            (_PREFER_WORKSPACE, ctypes.c_uint64(workspace)),
            (_PREFER_REDUCTIONS, ctypes.c_uint32(reductions)),
            (_PREFER_ALIGNMENT_A, ctypes.c_uint32(self._alignments[1])),
            (_PREFER_ALIGNMENT_B, ctypes.c_uint32(self._alignments[0])),
        ):
            self._library.put("MatmulPreference", preference, attribute, value)
        found, count = (Algorithm * most)(), ctypes.c_int()
        try:
            self._library.call(
                "MatmulAlgoGetHeuristic",
                *(self._library.handle, self._description, self._b, self._a, self._c, self._c, preference),
                *(ctypes.c_int(most), found, ctypes.byref(count)),
            )
        except LtError:  # it has no algorithm for this product
            return []
        finally:
            self._library.call("MatmulPreferenceDestroy", preference)
        return list(found[: count.value])

    def config(self, algorithm: Algorithm) -> dict[str, int]:
        """An algorithm's number, tile, parts of the sum, way of adding them, and stages."""
        found = {}
        for name, attribute in _CONFIG.items():
            value, written = ctypes.c_int32(), ctypes.c_size_t()
            self._library.call(
                "MatmulAlgoConfigGetAttribute",
                *(ctypes.byref(algorithm), ctypes.c_int(attribute)),
                *(ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(written)),
            )
            found[name] = value.value
        return found

    def run(
        self,
        algorithm: Algorithm,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor,
        workspace: torch.Tensor,
        stream: int,
    ) -> None:
        """out = a b on the stream, out contiguous."""
        c = out.data_ptr()
        one, zero, algo = map(ctypes.byref, (self._one, self._zero, algorithm))
        status = self._matmul(
            *(self._library.handle, self._description, one, b.data_ptr(), self._b, a.data_ptr(), self._a),
            *(zero, c, self._c, c, self._c, algo, workspace.data_ptr(), WORKSPACE_BYTES, stream),
        )
        _require("Matmul", status)


class ScaledProduct(Product):
    """A product of 8-bit numbers with one scale an operand. fast: sums of many products of k with few bits are allowed.

    a is (m, k) with contiguous rows, b is (k, n) with contiguous columns. `scale_by` comes before `run`.
    """

    def __init__(
        self, library: Library, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, *, fast: bool
    ) -> None:
        import torch

        super().__init__(library, a, b, out_dtype)
        library.put("MatmulDesc", self._description, _DESC_FAST_SUMS, ctypes.c_int8(fast))
        self._one_scale = torch.ones((), device=a.device)
        self.scale_by(self._one_scale, self._one_scale)

    def scale_by(self, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
        """Multiply the next products by these float32 scalars, which lie where the operands do."""
        for attribute, scale in ((_DESC_SCALE_A, scale_b), (_DESC_SCALE_B, scale_a)):
            self._library.put("MatmulDesc", self._description, attribute, ctypes.c_void_p(scale.data_ptr()))


def alignment(tensor: torch.Tensor) -> int:
    """The largest power of two, up to FULL_ALIGNMENT, that divides the address."""
    address = tensor.data_ptr() | FULL_ALIGNMENT
    return address & -address
