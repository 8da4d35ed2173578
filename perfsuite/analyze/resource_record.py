"""A record of compilations, so that only device code that changed since is compiled again."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from perfsuite.analyze.ptxas import Advisory, Compilation, KernelResources
from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
_SHORT = [one.name for one in fields(KernelResources) if one.name not in ("source", "arch")]


@dataclass(frozen=True)
class Compiler:
    """The compiler and its options: with the text of a source, they decide its machine code."""

    nvcc: str
    flags: Sequence[str]
    include: Sequence[Path]

    def version(self) -> str:
        """The compiler's version, as it prints it."""
        return subprocess.run([self.nvcc, "--version"], capture_output=True, text=True, check=True).stdout

    def digest(self, source: Path, arch: str, version: str) -> str:
        """A digest of the source, of every file of the project that it includes, of flags, architecture and version."""
        digest = hashlib.sha256(json.dumps([version, list(self.flags), arch]).encode())
        for path in self._texts(source):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def _texts(self, source: Path) -> list[Path]:
        """The source and the files that it includes, directly or not; the compiler's own headers are left out."""
        found, waiting = {source.resolve(): None}, [source.resolve()]
        while waiting:
            one = waiting.pop()
            for name in _INCLUDE.findall(one.read_bytes()):
                places = (folder / name.decode() for folder in (one.parent, *self.include))
                path = next((place.resolve() for place in places if place.is_file()), None)
                if path is not None and path not in found:
                    found[path] = None
                    waiting.append(path)
        return list(found)


class ResourceRecord:
    """The compilations of a file of JSON lines, one for each source and architecture."""

    def __init__(self, path: Path) -> None:
        """Read `path`; it may not exist yet. UserError names a line that cannot be read."""
        self.path = path
        self._lines: dict[tuple[str, str], dict[str, Any]] = {}
        try:
            text = path.read_text()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: {error}") from None
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                said = json.loads(line)
                self._lines[said["source"], said["arch"]] = said
                _compilation(said)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise UserError(f"{path}:{number} is no line of a record of compilations; remove the file") from None

    def get(self, source: Path, arch: str, digest: str) -> Compilation | None:
        """The compilation of that source as it is now; None if it was another then, or is not in the record."""
        said = self._lines.get((str(source), arch))
        return _compilation(said) if said is not None and said["digest"] == digest else None

    def put(self, source: Path, arch: str, digest: str, one: Compilation) -> None:
        """Replace the line of that source and architecture."""
        self._lines[str(source), arch] = {
            "source": str(source),
            "arch": arch,
            "digest": digest,
            "seconds": round(one.seconds, 1),
            "advisories": [asdict(each) for each in one.advisories],
            "kernels": [[getattr(kernel, name) for name in _SHORT] for kernel in one.kernels],
        }

    def write(self, known: Sequence[tuple[Path, str]]) -> None:
        """Write the lines of these sources and architectures, and those of other architectures.

        Other sources were removed from the project, and so were other pairs of these architectures.
        """
        asked = {(str(source), arch) for source, arch in known}
        sources, archs = ({pair[place] for pair in asked} for place in (0, 1))
        keys = sorted(key for key in self._lines if key in asked or (key[0] in sources and key[1] not in archs))
        lines = [json.dumps(self._lines[key], separators=(",", ":")) + "\n" for key in keys]
        write_whole(self.path, "".join(lines))


def _compilation(said: dict[str, Any]) -> Compilation:
    kernels = tuple(
        KernelResources(source=said["source"], arch=f"sm_{said['arch']}", **dict(zip(_SHORT, values, strict=True)))
        for values in said["kernels"]
    )
    return Compilation(kernels, tuple(Advisory(**one) for one in said["advisories"]), float(said["seconds"]))
