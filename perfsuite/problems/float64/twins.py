"""One float64 twin for every storage that a function meets.

Views and writes in place then need no rules: a view of a storage has the same sizes, strides and offset in the twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.answers import Mark

SWEEP, SWEEP_BYTES = 64, 1 << 26
"""Twins, and bytes of them, that are made between two looks for storages that the function has dropped."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """float64 for floating-point dtypes, complex128 for complex ones, the same dtype for others."""
    import torch

    if dtype.is_floating_point:
        return torch.float64
    return torch.complex128 if dtype.is_complex else dtype


class _Entry:
    """A storage that was met, and its twin as one vector; None while the storage itself holds the right values."""

    def __init__(self, tensor: torch.Tensor, twin: torch.Tensor | None, *, made_here: bool) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = tensor.untyped_storage()
        # While the weak reference lives, no other storage gets this one's address: who has a tensor at it has this one.
        self.alive = StorageWeakRef(storage)
        self.kind, self.bytes, self.twin = _real(tensor.dtype), storage.nbytes(), twin
        self.made_here = made_here
        self.mark: Mark | None = None
        self.foreign = False
        """True if code that torch does not see may write to the storage at any time."""

    def fits(self, tensor: torch.Tensor) -> bool:
        """True if the twin's elements are the elements of `tensor`, a view of the storage."""
        return self.kind is _real(tensor.dtype) and self.bytes == tensor.untyped_storage().nbytes()


class Twins:
    """The twins of all storages, for as long as the storages live; and of tensors without a plain storage."""

    def __init__(self) -> None:
        from torch.utils.weak import WeakIdKeyDictionary

        self._entries: dict[int, _Entry] = {}
        self._others: Any = WeakIdKeyDictionary()
        self._made = self._bytes = 0

    def clear(self) -> None:
        """Drop all twins."""
        self._entries.clear()
        self._others.clear()

    def of(self, tensor: torch.Tensor, *, written: bool = False) -> torch.Tensor:
        """`tensor` in float64; integers as they are, or as float64 made them.

        written: the caller writes into the result, so the tensor itself is never returned.
        """
        return self._of(tensor, self.entry(tensor), written=written) if plain(tensor) else self._other(tensor)

    def read(self, tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """(what `of` gives, True for memory that the function made and that torch has not seen anybody write to)."""
        if not plain(tensor):
            return self._other(tensor), False
        entry = self.entry(tensor)
        unfilled = entry is not None and entry.twin is None and entry.made_here and inexact(tensor)
        return self._of(tensor, entry), unfilled

    def _of(self, tensor: torch.Tensor, entry: _Entry | None, *, written: bool = False) -> torch.Tensor:
        if entry is None or entry.twin is None:
            if tensor.dtype is wide(tensor.dtype) and not written:
                return tensor
            twin = _flat(tensor).to(wide(_real(tensor.dtype)), copy=True)
            if (entry is not None and entry.foreign) or (entry is None and self._otherwise(tensor) and not written):
                return _seen(twin, tensor)  # made anew at each reading
            if entry is None:
                entry = self._note(tensor, twin, made_here=False)
            entry.twin = twin
        assert entry.twin is not None
        return _seen(entry.twin, tensor)

    def entry(self, tensor: torch.Tensor) -> _Entry | None:
        """The entry of the tensor's storage; None if the storage is not known, or was known by other elements."""
        found = self._entries.get(tensor.untyped_storage()._cdata)
        if found is None:
            return None
        if not found.fits(tensor):
            if found.foreign or found.twin is None:
                found.kind, found.bytes = _real(tensor.dtype), tensor.untyped_storage().nbytes()
                return found
            if found.bytes != tensor.untyped_storage().nbytes():
                self.forget(tensor)  # resized
            return None  # its bits are seen as another type: only the storage itself can answer
        return found

    def _otherwise(self, tensor: torch.Tensor) -> bool:
        """True if the storage is known by elements of another type, and keeps its twin."""
        found = self._entries.get(tensor.untyped_storage()._cdata)
        return found is not None and not found.fits(tensor)

    def put(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Make `value` the twin of `tensor`, a tensor with a new storage."""
        import torch

        if not plain(tensor):
            self._others[tensor] = value
            return
        if value.is_conj() or value.is_neg():
            value = value.resolve_conj().resolve_neg()
        count = tensor.untyped_storage().nbytes() // _real(tensor.dtype).itemsize
        value = value.to(wide(tensor.dtype))
        dense = torch.view_as_real(value) if value.is_complex() else value
        same = tensor.stride() == value.stride() and tensor.storage_offset() == value.storage_offset() == 0
        if same and dense.untyped_storage().nbytes() >= count * dense.element_size():
            twin = dense.as_strided((count,), (1,), 0)
        else:
            twin = torch.zeros(count, dtype=dense.dtype, device=tensor.device)
            _seen(twin, tensor, bits=False).copy_(value)
        self._note(tensor, twin, made_here=True)

    def note_empty(self, tensor: torch.Tensor) -> None:
        """Remember memory that has no values yet; it has no twin until torch writes to it."""
        if plain(tensor):
            self._note(tensor, None, made_here=True)

    def note_foreign(self, tensor: torch.Tensor) -> None:
        """Remember that other code has the address of this memory: from now on the memory itself is believed."""
        if plain(tensor):
            entry = self.entry(tensor) or self._note(tensor, None, made_here=False)
            entry.foreign, entry.twin = True, None

    def made_here(self, tensor: torch.Tensor) -> bool:
        """True if the function made the tensor's storage; False for its arguments and parameters."""
        entry = self.entry(tensor) if plain(tensor) else None
        return entry is not None and entry.made_here

    def mark(self, tensor: torch.Tensor) -> Mark | None:
        """The mark of the tensor's storage."""
        entry = self.entry(tensor) if plain(tensor) else None
        return None if entry is None else entry.mark

    def set_mark(self, tensor: torch.Tensor, mark: Mark) -> None:
        """Mark the tensor's storage, which has an entry."""
        entry = self.entry(tensor)
        if entry is not None:
            entry.mark = mark

    def forget(self, tensor: torch.Tensor) -> None:
        """Drop the twin: the tensor's own values are the best that is known."""
        if plain(tensor):
            self._entries.pop(tensor.untyped_storage()._cdata, None)
        else:
            self._others.pop(tensor, None)

    def _note(self, tensor: torch.Tensor, twin: torch.Tensor | None, *, made_here: bool) -> _Entry:
        self._made += 1
        self._bytes += 0 if twin is None else twin.nbytes
        if self._made >= SWEEP or self._bytes >= SWEEP_BYTES:
            self._made = self._bytes = 0
            gone = [key for key, entry in self._entries.items() if entry.alive.expired()]
            for key in gone:
                del self._entries[key]
        entry = _Entry(tensor, twin, made_here=made_here)
        self._entries[tensor.untyped_storage()._cdata] = entry
        return entry

    def _other(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self._others.get(tensor)
        if found is None:
            found = self._others[tensor] = tensor.to(wide(tensor.dtype))
        assert found is not None
        return found


def plain(tensor: torch.Tensor) -> bool:
    """True if the tensor's elements lie in a storage at its strides."""
    import torch

    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta


def inexact(tensor: torch.Tensor) -> bool:
    """True for floating-point and complex tensors."""
    return tensor.is_floating_point() or tensor.is_complex()


def _real(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself; for a complex one, that of its real part."""
    if not dtype.is_complex:
        return dtype
    import torch

    halves = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
    return halves[dtype]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage as a vector of real numbers."""
    import torch

    kind, storage = _real(tensor.dtype), tensor.untyped_storage()
    count = storage.nbytes() // kind.itemsize
    return torch.empty(0, dtype=kind, device=tensor.device).set_(storage, 0, (count,), (1,))


def _seen(twin: torch.Tensor, tensor: torch.Tensor, *, bits: bool = True) -> torch.Tensor:
    """The view of the twin that `tensor` is of the storage. bits: with its conjugate and negative bits."""
    import torch

    if tensor.dtype.is_complex:
        twin = torch.view_as_complex(twin.view(-1, 2))
    view = twin.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    if bits and tensor.is_conj():
        view = view.conj()
    return torch._neg_view(view) if bits and tensor.is_neg() else view
