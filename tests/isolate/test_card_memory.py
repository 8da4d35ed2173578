"""Memory of a card as a descriptor, on a made-up driver that keeps it in files; the layouts are those of cuda.h."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsuite.isolate import card_memory, nursery
from perfsuite.isolate.card_memory import CardMemory, CardMemoryError

DRIVER = r"""
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
typedef unsigned long long u64;
typedef struct { int type, id; } Location;
typedef struct { int type, handles; Location location; void* win32; unsigned char flags[8]; } Properties;
typedef struct { Location location; int flags; } Access;
int live = 0, limit = 1 << 30;
static int good(const Properties* p) { return p->type == 1 && p->handles == 1 && p->location.type == 1; }
int cuMemGetAllocationGranularity(size_t* unit, const Properties* p, int option) {
  *unit = 1 << 21;
  return good(p) && option == 0 ? 0 : 1;
}
int cuMemCreate(u64* handle, size_t size, const Properties* p, u64 flags) {
  if (!good(p) || flags || size % (1 << 21)) return 1;
  if (size > limit) return 2;
  *handle = memfd_create("card", 0);
  ++live;
  return ftruncate((int)*handle, size);
}
int cuMemImportFromShareableHandle(u64* handle, void* descriptor, int type) {
  *handle = dup((int)(intptr_t)descriptor);
  ++live;
  return type == 1 ? 0 : 1;
}
int cuMemExportToShareableHandle(void* descriptor, u64 handle, int type, u64 flags) {
  *(int*)descriptor = dup((int)handle);
  return type == 1 && !flags ? 0 : 1;
}
int cuMemRelease(u64 handle) { --live; return close((int)handle); }
int cuMemAddressReserve(u64* address, size_t size, size_t alignment, u64 wanted, u64 flags) {
  *address = (u64)mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return alignment || wanted || flags;
}
int cuMemMap(u64 address, size_t size, size_t offset, u64 handle, u64 flags) {
  ++live;
  return mmap((void*)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, offset) != (void*)address || flags;
}
int cuMemSetAccess(u64 address, size_t size, const Access* access, size_t count) {
  if (count != 1 || access->flags != 3 || access->location.type != 1) return 1;
  return mprotect((void*)address, size, PROT_READ | PROT_WRITE);
}
int cuMemUnmap(u64 address, size_t size) { --live; return 0; }
int cuMemAddressFree(u64 address, size_t size) { return munmap((void*)address, size); }
"""
LAYOUT = r"""
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>
int main(void) {
  printf("%zu %zu %zu %zu %zu %zu %d %d %d %d %d %d", sizeof(CUmemAllocationProp),
         offsetof(CUmemAllocationProp, location), offsetof(CUmemAllocationProp, requestedHandleTypes),
         offsetof(CUmemAllocationProp, allocFlags), sizeof(CUmemAccessDesc), offsetof(CUmemAccessDesc, flags),
         CU_MEM_ALLOCATION_TYPE_PINNED,
         CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
         CU_MEM_ALLOC_GRANULARITY_MINIMUM, CUDA_ERROR_OUT_OF_MEMORY);
}
"""
HEADERS = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so"
    source.write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setattr(card_memory, "LIBRARY", str(library))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return ctypes.CDLL(str(library))


def live(driver: Any) -> int:
    return ctypes.c_int.in_dll(driver, "live").value


def numbers(memory: CardMemory) -> Any:
    return (ctypes.c_float * 4).from_address(memory.address)


def test_two_mappings_of_one_allocation_and_all_of_it_is_freed(driver: Any) -> None:
    there = set(os.listdir("/proc/self/fd"))
    mine = CardMemory(100, 0)
    assert mine.size == 1 << 21
    assert mine.descriptor is not None
    theirs = CardMemory(mine.size, 0, os.dup(mine.descriptor))
    numbers(mine)[2] = 42.0
    assert numbers(theirs)[2] == 42.0
    del mine
    gc.collect()
    numbers(theirs)[2] += 1.0
    assert numbers(theirs)[2] == 43.0
    del theirs
    gc.collect()
    assert live(driver) == 0
    assert set(os.listdir("/proc/self/fd")) <= there


def test_too_little_memory_is_said_so_and_leaves_nothing(driver: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="cuMemCreate"):
        CardMemory(1 << 31, 0)
    assert live(driver) == 0


def test_a_descriptor_of_something_else_is_an_error_that_names_the_call(driver: Any) -> None:
    ends = os.pipe()
    with pytest.raises(CardMemoryError, match="cuMemMap failed"):
        CardMemory(1 << 21, 0, ends[0])
    for end in ends:
        os.close(end)
    assert live(driver) <= 1  # the made-up driver counts the mapping that failed


def test_without_a_driver_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(card_memory, "LIBRARY", "libmissing.so.7")
    with pytest.raises(CardMemoryError, match="libmissing"):
        CardMemory(1, 0)


@pytest.mark.skipif(not (HEADERS / "cuda.h").exists(), reason="no cuda.h")
def test_layouts_and_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(LAYOUT)
    subprocess.run(["gcc", f"-I{HEADERS}", "-o", program, source], check=True)
    found = [int(word) for word in subprocess.check_output([program], text=True).split()]
    properties, access = card_memory.Properties, card_memory.Access
    assert found == [
        *(ctypes.sizeof(properties), properties.location.offset, properties.requestedHandleTypes.offset),
        *(properties.allocFlags.offset, ctypes.sizeof(access), access.flags.offset),
        *(card_memory.PINNED, card_memory.DEVICE, card_memory.FILE_DESCRIPTOR, card_memory.READ_AND_WRITE),
        *(0, card_memory.OUT_OF_MEMORY),
    ]


@pytest.mark.parametrize(
    ("opens", "boxed", "sentence", "shared"),
    [
        (lambda made: None, True, "box that sees itself", True),
        (lambda made: "not there" if made.alone else None, True, "box that sees others", True),
        (lambda made: "a worker does not open it", True, "no sandbox: a worker does not open it", False),
        (lambda made: "a worker does not open it", False, "no sandbox: no bwrap", False),
        (lambda made: None, False, "no sandbox: no bwrap", True),
    ],
    ids=["closest", "wider", "none opens", "neither", "no bubblewrap"],
)
def test_the_closest_sandbox_whose_workers_open_the_cards_memory_is_taken(
    opens: Callable[[Any], str | None], boxed: bool, sentence: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*, sandboxed: bool = False, device: str, alone: bool = True) -> Any:
        words = ("box that sees itself" if alone else "box that sees others") if boxed else "no sandbox: no bwrap"
        return SimpleNamespace(
            alone=alone,
            boxed=sandboxed and boxed,
            sandbox=words,
            opens_card_memory=False,
            close=lambda: None,
            alive=True,
        )

    monkeypatch.setattr(nursery, "Nursery", made)
    monkeypatch.setattr(nursery, "why_not", opens)
    monkeypatch.setattr(nursery, "_probed", {})
    monkeypatch.setattr(nursery, "_started", {})
    found = nursery.nursery(sandboxed=True, device="cuda")
    assert (found.sandbox, found.opens_card_memory) == (sentence, shared)
