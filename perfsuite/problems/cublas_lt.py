"""cuBLASLt by its C interface: the algorithms that it proposes for a matrix product, and a product by one of them.

torch takes the first algorithm that the library's heuristics name and offers no way to another: its TunableOp chooses
among rocBLAS's and hipBLASLt's algorithms on AMD's cards, and built for CUDA it has its default alone to choose from.
So the library, which torch has loaded, is called here as torch calls it, with the algorithm as an argument.

cuBLAS counts matrices by columns: a row-major c = a b is asked for as its transpose, c' = b' a', and no data moves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WORKSPACE_BYTES = 64 << 20
"""torch gives its own calls 32 MiB on a Hopper card; more room lets more ways of splitting a sum take part."""
FULL_ALIGNMENT = 256

# Values of the enumerations of library_types.h, cublas_api.h and cublasLt.h.
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
_COMPUTE_FLOAT32 = 68
_TRANSPOSED = 1
_DESC_TRANS_A, _DESC_TRANS_B = 3, 4
_LAYOUT_BATCH_COUNT, _LAYOUT_BATCH_STRIDE = 5, 6
_PREFER_WORKSPACE, _PREFER_REDUCTIONS, _PREFER_ALIGNMENT_A, _PREFER_ALIGNMENT_B = 1, 3, 5, 6
_IN_ONE_PART, _REDUCED_IN_FLOAT32, _REDUCED_IN_ANY = 0, 2, 7
_CONFIG = {"id": 0, "tile": 1, "split": 2, "reduction": 3, "stages": 6}
_STATUSES = {1: "not initialized", 3: "allocation failed", 7: "invalid value", 8: "architecture mismatch"}
_STATUSES |= {13: "execution failed", 14: "internal error", 15: "not supported"}


class LtError(RuntimeError):
    """The library is not there, or a call of it did not succeed."""


class Algorithm(ctypes.Structure):
    """What the library says of one algorithm (cublasLtMatmulHeuristicResult_t); the first 64 bytes are its name."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Operand:
    """How a matrix (or a batch of them) lies in memory: by rows, or by columns, with what between two of them."""

    by_columns: bool
    leading: int
    batch_stride: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Operand | None:
        """None where neither rows nor columns are contiguous."""
        rows, columns = tensor.shape[-2:]
        down, across = tensor.stride()[-2:]
        batch_stride = tensor.stride(0) if tensor.dim() == 3 else 0
        if across == 1 and (down >= columns or rows == 1):
            return Operand(False, max(down, columns), batch_stride)
        if down == 1 and (across >= rows or columns == 1):
            return Operand(True, max(across, rows), batch_stride)
        return None


class Library:
    """The functions of a cuBLASLt, and a handle on one device. Made under that device."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = library
        handle = ctypes.c_void_p()
        self.call("Create", ctypes.byref(handle))
        self.handle = handle

    def call(self, name: str, *arguments: Any) -> None:
        """`cublasLt<name>(*arguments)`; LtError says how it ended if not well."""
        status = getattr(self._functions, f"cublasLt{name}")(*arguments)
        if status:
            raise LtError(f"cublasLt{name}: {_STATUSES.get(status, f'status {status}')}")

    def function(self, name: str, *types: Any) -> Callable[..., int]:
        """A function to be called often, with its arguments' types declared."""
        found = getattr(self._functions, f"cublasLt{name}")
        found.argtypes, found.restype = types, ctypes.c_int
        return found

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """A new object of the library's; it is kept as long as the process."""
        created = ctypes.c_void_p()
        self.call(f"{name}Create", ctypes.byref(created), *arguments)
        return created

    def put(self, name: str, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of an object to a ctypes value."""
        self.call(
            f"{name}SetAttribute",
            target,
            ctypes.c_int(attribute),
            ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )


def load(cuda: str | None) -> ctypes.CDLL:
    """The library that belongs to torch's CUDA of that version, which torch has in the process."""
    if cuda is None:
        raise LtError("this torch is not built for CUDA")
    name = f"libcublasLt.so.{cuda.partition('.')[0]}"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise LtError(f"{name} cannot be loaded: {error}") from None


class Product:
    """One matrix product: its operands' shapes and places, not their values. Sums are float32.

    a (m, k), b (k, n), or batches of them: tensors like those that it will be run on, whose layouts Operand knows.
    """

    def __init__(self, library: Library, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> None:
        left, right = Operand.of(a), Operand.of(b)
        if left is None or right is None:
            raise LtError("an operand has neither its rows nor its columns contiguous")
        (m, k), n = a.shape[-2:], b.shape[-1]
        self._library, self._batch = library, a.shape[0] if a.dim() == 3 else 0
        self._description = library.made(
            "MatmulDesc", ctypes.c_int(_COMPUTE_FLOAT32), ctypes.c_int(_type(out_dtype, a))
        )
        for attribute, operand in ((_DESC_TRANS_A, right), (_DESC_TRANS_B, left)):
            if operand.by_columns:
                library.put("MatmulDesc", self._description, attribute, ctypes.c_int32(_TRANSPOSED))
        self._a = self._layout(a.dtype, (m, k), left)
        self._b = self._layout(a.dtype, (k, n), right)
        self._c = self._layout(out_dtype, (m, n), Operand(False, n, m * n))
        self._exact = _name(out_dtype) == "float32"
        self._alignments = alignment(a), alignment(b)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        pointer = ctypes.c_void_p
        self._matmul = library.function("Matmul", *[pointer] * 14, ctypes.c_size_t, pointer)

    def _layout(self, dtype: torch.dtype, shape: tuple[int, int], operand: Operand) -> ctypes.c_void_p:
        """By the library's count: columns of what is stored by rows are its rows."""
        rows, columns = shape if operand.by_columns else shape[::-1]
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(operand.leading)
        layout = self._library.made("MatrixLayout", ctypes.c_int(_TYPES[_name(dtype)]), *sizes)
        if self._batch:
            put = self._library.put
            put("MatrixLayout", layout, _LAYOUT_BATCH_COUNT, ctypes.c_int32(self._batch))
            put("MatrixLayout", layout, _LAYOUT_BATCH_STRIDE, ctypes.c_int64(operand.batch_stride))
        return layout

    def algorithms(self, most: int) -> list[Algorithm]:
        """Those that the library proposes, its first choice first.

        A question has few answers (cuBLAS 13.1 gives eight, if asked for more), so three are asked, of at most so many
        answers each: with all the workspace, with none, and with no sum in parts. None adds partial sums in less than
        float32: those would be no rival at equal precision.
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
        except LtError:  # it has none for this product
            return []
        finally:
            self._library.call("MatmulPreferenceDestroy", preference)
        return list(found[: count.value])

    def config(self, algorithm: Algorithm) -> dict[str, int]:
        """What the library tells of an algorithm: its number, tile, stages, parts of the sum and how they are added."""
        told = {}
        for name, attribute in _CONFIG.items():
            value, written = ctypes.c_int32(), ctypes.c_size_t()
            self._library.call(
                "MatmulAlgoConfigGetAttribute",
                *(ctypes.byref(algorithm), ctypes.c_int(attribute)),
                *(ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(written)),
            )
            told[name] = value.value
        return told

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
        if status:
            raise LtError(f"cublasLtMatmul: {_STATUSES.get(status, f'status {status}')}")


def alignment(tensor: torch.Tensor) -> int:
    """The largest power of two, up to FULL_ALIGNMENT, that divides the address."""
    address = tensor.data_ptr() | FULL_ALIGNMENT
    return address & -address


def _type(out_dtype: torch.dtype, a: torch.Tensor) -> int:
    """The type of the factors on product and addend: float32 as the sums. Refuses types that are not known here."""
    for dtype in (out_dtype, a.dtype):
        if _name(dtype) not in _TYPES:
            raise LtError(f"{_name(dtype)} is none of {', '.join(_TYPES)}")
    return _TYPES["float32"]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
