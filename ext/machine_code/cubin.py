"""Reads the kernels out of a cubin: an ELF file with one section of code for each kernel."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

from machine_code.errors import UsageError
from machine_code.objects import Object

WORD = 16  # bytes of an instruction, from Volta on
_NOP = 0x918  # the low 12 bits of the instruction that pads a kernel's end
_NOBITS, _RELA, _REL = 8, 4, 9
_KERNEL = 0x10  # a bit of a symbol's st_other: a __global__ function
# Attributes that name symbols by their number: a list of them, and one in front of the place of the parameters.
_EXTERNS, _PARAMETERS = 0x0F, 0x0A

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """What ptxas reported: registers, stack and spills of a thread, static shared memory of a block (bytes)."""

    registers: int = 0
    shared: int = 0
    stack: int = 0
    spills: int = 0


@dataclass(frozen=True)
class Kernel:
    """A kernel of one cubin. Symbols are replaced by what they stand for, so that names do not count."""

    symbol: str
    source: str
    arch: str
    cubin: Path
    index: int  # in the symbol table, for nvdisasm
    code: bytes
    relocations: tuple[tuple[int, int, str, int], ...]  # offset, type, symbol's content, addend
    constants: bytes
    attributes: bytes  # launch bounds, parameters, cluster size and the like, as ptxas encodes them
    resources: Resources = field(default_factory=Resources)

    @property
    def instructions(self) -> int:
        """The number of instructions without the padding at the end."""
        count = len(self.code) // WORD
        while count > 0 and self.word(count - 1)[0] & 0xFFF == _NOP:
            count -= 1
        return count

    def word(self, index: int) -> tuple[int, int]:
        """The two halves of an instruction, with its control bits."""
        low, high = struct.unpack_from("<QQ", self.code, index * WORD)
        return low, high

    @property
    def digest(self) -> str:
        """Equal for kernels that nothing tells apart but their names."""
        total = hashlib.sha256(self.code)
        for part in (repr(self.relocations).encode(), self.constants, self.attributes):
            total.update(hashlib.sha256(part).digest())
        return f"{self.arch}:{total.hexdigest()}"


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    info: int
    size: int
    data: bytes


@dataclass(frozen=True)
class _Symbol:
    name: str
    other: int
    section: int
    value: int
    size: int


def read_kernels(made: Object) -> list[Kernel]:
    """Every kernel of a compiled object, in the order of its symbol table."""
    sections = _sections(made.cubin)
    symbols = _symbols(sections)
    resources = _resources(made.log)
    by_name = {section.name: section for section in sections}
    # Constants of the whole file; a kernel's own stand in sections that carry its name.
    shared_constants = b"".join(s.data for s in sections if re.fullmatch(r"\.nv\.constant\d+", s.name))
    kernels = []
    for index, symbol in enumerate(symbols):
        text = by_name.get(f".text.{symbol.name}")
        if text is None or not symbol.other & _KERNEL:
            continue
        own = [s for s in sections if re.fullmatch(r"\.nv\.constant\d+\." + re.escape(symbol.name), s.name)]
        parameters = sum(s.size for s in own if s.name.startswith(".nv.constant0."))
        data = b"".join(s.data for s in own if not s.name.startswith(".nv.constant0."))
        block = by_name.get(f".nv.shared.{symbol.name}")
        info = by_name.get(f".nv.info.{symbol.name}")
        attributes = struct.pack("<QQ", parameters, block.size if block else 0)
        kernels.append(
            Kernel(
                symbol=symbol.name,
                source=made.source,
                arch=made.arch,
                cubin=made.cubin,
                index=index,
                code=text.data,
                relocations=tuple(_relocations(sections, symbols, sections.index(text), symbol)),
                constants=data + shared_constants,
                attributes=attributes + (_attributes(info.data) if info else b""),
                resources=resources.get(symbol.name, Resources()),
            )
        )
    return kernels


def _sections(path: Path) -> list[_Section]:
    raw = path.read_bytes()
    if raw[:5] != b"\x7fELF\x02":
        raise UsageError(f"{path} is no 64-bit ELF file, so no cubin")
    (offset,) = struct.unpack_from("<Q", raw, 0x28)
    size, count, names = struct.unpack_from("<HHH", raw, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", raw, offset + i * size) for i in range(count)]
    strings = raw[headers[names][4] : headers[names][4] + headers[names][5]]
    return [
        _Section(
            name=_text(strings, header[0]),
            kind=header[1],
            link=header[6],
            info=header[7],
            size=header[5],
            data=b"" if header[1] == _NOBITS else raw[header[4] : header[4] + header[5]],
        )
        for header in headers
    ]


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


def _symbols(sections: list[_Section]) -> list[_Symbol]:
    table = next((s for s in sections if s.name == ".symtab"), None)
    if table is None:
        return []
    strings = sections[table.link].data
    found = []
    for at in range(0, len(table.data), 24):
        name, _, other, section, value, size = struct.unpack_from("<IBBHQQ", table.data, at)
        found.append(_Symbol(_text(strings, name), other, section, value, size))
    return found


def _relocations(
    sections: list[_Section], symbols: list[_Symbol], text: int, own: _Symbol
) -> list[tuple[int, int, str, int]]:
    found = []
    for section in sections:
        if section.kind not in (_REL, _RELA) or section.info != text:
            continue
        step = 24 if section.kind == _RELA else 16
        for at in range(0, len(section.data), step):
            offset, info = struct.unpack_from("<QQ", section.data, at)
            addend = struct.unpack_from("<q", section.data, at + 16)[0] if section.kind == _RELA else 0
            meaning = _meaning(sections, symbols[info >> 32], own)
            found.append((offset, info & 0xFFFFFFFF, meaning, addend))
    return sorted(found)


def _meaning(sections: list[_Section], symbol: _Symbol, own: _Symbol) -> str:
    """What a symbol stands for, without its name."""
    if symbol.section == own.section:
        return f"this kernel + {symbol.value}"
    if not 0 < symbol.section < len(sections):
        return f"outside: {symbol.name}"  # a function of the driver, as vprintf: its name is its meaning
    section = sections[symbol.section]
    kind = ".".join(section.name.split(".")[:3])
    content = section.data[symbol.value : symbol.value + symbol.size]
    return f"{kind} {symbol.size} {hashlib.sha256(content).hexdigest()}"


def _attributes(info: bytes) -> bytes:
    """The attributes of a kernel without the numbers of symbols, which other kernels of the file change."""
    kept, at = b"", 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        end = at + 4 + (size if form == 4 else 0)
        if attribute == _PARAMETERS:
            kept += info[at : at + 4] + info[at + 8 : end]
        elif attribute != _EXTERNS:
            kept += info[at:end]
        at = end
    return kept


def _resources(log: str) -> dict[str, Resources]:
    """By symbol, from the output of `ptxas -v`."""
    found: dict[str, Resources] = {}
    entry, memory, properties_of = "", (0, 0, 0), ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, memory = match[1], (0, 0, 0)
        elif "Function properties for" in line:
            properties_of = line.rsplit(" ", 1)[-1]
        elif (match := _MEMORY.search(line)) and properties_of == entry:
            memory = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and entry:
            shared = _SHARED.search(line)
            found[entry] = Resources(int(match[1]), int(shared[1]) if shared else 0, memory[0], memory[1] + memory[2])
            entry = ""
    return found
