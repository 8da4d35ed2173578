"""What candidates leave in their sandbox reaches their own text alone; a process that does not start accuses nobody."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.isolate import compare_isolated, nursery, own_files, sandbox
from perfsuite.isolate.own_files import KeptFiles, OwnFiles
from perfsuite.isolate.source import Source
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Gemm
from perfsuite.settings import Settings

needs_bubblewrap = pytest.mark.skipif(sandbox.why_not() is not None, reason=f"no sandbox: {sandbox.why_not()}")
CACHE = """
import os, subprocess, sys, time
from pathlib import Path

place = Path(os.environ["HOME"], ".triton", "cache", "0123", "kernel.py")
shared = Path("/dev/shm/kernel.py")


def kept(text):
    for one in (place, shared):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text(text)
"""
PLANTS = (
    CACHE
    + """
def run(a, b):
    kept("def product(a, b): return a @ b * 0")
    place.parent.chmod(0o500)
    return a @ b
"""
)
PLANTS_LATER = (
    CACHE
    + """
LATER = '''
import os, sys, time
os.setsid()
for _ in range(4000):
    time.sleep(0.005)
    os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
    open(sys.argv[1], "w").write("def product(a, b): return a @ b * 0")
'''


def run(a, b):
    if not place.exists():
        subprocess.Popen([sys.executable, "-c", LATER, str(place)], stdin=subprocess.DEVNULL)
    return a @ b
"""
)
LOADS = (
    CACHE
    + """
def run(a, b):
    names = {}
    for one in (place, shared):
        if one.exists():
            exec(one.read_text(), names)
            return names["product"](a, b)
    return a @ b
"""
)
COMPILES = (
    CACHE
    + """
found = place.exists() and not shared.exists()


def run(a, b):
    kept("")
    if not found:
        raise ImportError("nothing is compiled")
    return a @ b
"""
)


def judged(text: str, **options: Any) -> Comparison:
    settings = Settings(device="cpu", seconds=0.05)
    source = Source(text, "run", **options)
    return compare_isolated(Ask(Gemm(32, 32, 32, "float32"), source, settings=settings), seconds=60.0)


@needs_bubblewrap
@pytest.mark.parametrize("attack", [PLANTS, PLANTS_LATER], ids=["at once", "later"])
def test_a_candidate_plants_nothing_in_the_cache_of_another(attack: str) -> None:
    assert judged(attack).verdict is Verdict.MET
    one = judged(LOADS)
    assert one.verdict is Verdict.MET, one.sentence


@needs_bubblewrap
def test_the_same_text_finds_what_it_has_compiled() -> None:
    first, other, again = judged(COMPILES), judged(COMPILES + "# another text\n"), judged(COMPILES)
    assert (first.reason, other.reason) == (Reason.CANDIDATE_FAILED, Reason.CANDIDATE_FAILED), other.sentence
    assert again.verdict is Verdict.MET, again.sentence


@needs_bubblewrap
def test_the_same_text_finds_it_in_another_sandbox_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that judges has several sandboxes, since the next candidate's process starts beside this one's."""
    text = f"{COMPILES}# in another sandbox\n"
    for expected in (Reason.CANDIDATE_FAILED, Reason.CHECKED):
        monkeypatch.setattr(nursery, "_started", {})
        assert judged(text).reason is expected
        for made in (there for kind in nursery._started.values() for there in kind):
            made.settle()
            made.close()


@needs_bubblewrap
def test_text_beside_others_in_a_folder_keeps_nothing(tmp_path: Path) -> None:
    assert {judged(COMPILES, folder=tmp_path).reason for _ in range(2)} == {Reason.CANDIDATE_FAILED}


@needs_bubblewrap
def test_a_cache_that_the_user_has_moved_lies_in_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery, "_started", {})
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    writes = 'from pathlib import Path\nimport os\nPath(os.environ["TRITON_CACHE_DIR"]).mkdir()\n'
    one = judged(writes + "def run(a, b):\n    return a @ b\n")
    for made in (there for kind in nursery._started.values() for there in kind):
        made.close()
    assert one.verdict is Verdict.MET, one.sentence
    assert not list(tmp_path.iterdir())


def open_memory() -> set[str]:
    """The pieces of memory without a name that this process has open, by device and number of the file."""
    found = set()
    for one in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "memfd:perfsuite" in os.readlink(place := f"/proc/self/fd/{one}"):
                found.add(f"{os.stat(place).st_dev}:{os.stat(place).st_ino}")
    return found


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "shm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(own_files, "IN_MEMORY", str(tmp_path / "shm"))
    return tmp_path / "home"


def test_what_is_no_plain_file_is_not_kept_and_is_removed(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    files = OwnFiles(str(home))
    files.put_back(True, None)
    (home / "link").symlink_to(outside / "secret")
    (home / "folder").symlink_to(outside)
    os.mkfifo(home / "pipe")
    (home / "closed" / "in").mkdir(parents=True)
    (home / "closed" / "in" / "kernel").write_text("kernel")
    (home / "closed" / "in").chmod(0o500)
    left = files.take_away()
    assert left is not None
    assert not list(home.iterdir())
    assert (outside / "secret").read_text() == "secret"
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(left, b"x", 0)
    files.put_back(True, left)
    assert files_in(home) == {"closed/in/kernel": b"kernel"}


def test_what_is_too_large_is_not_kept_and_the_oldest_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_files, "MOST_BYTES", 1000)
    monkeypatch.setattr(own_files, "MOST_KEPT_BYTES", 2500)
    files, kept = OwnFiles(str(home)), KeptFiles()
    gc.collect()  # other tests may have left memory of theirs
    there = open_memory()

    def leave(key: str, size: int) -> None:
        files.put_back(bool(key), None)
        (home / "kernel").write_bytes(bytes(size))
        if (left := files.take_away()) is not None:
            kept.keep(key, left)

    def found(key: str) -> int:
        descriptor = kept.of(key)
        files.put_back(True, None if descriptor is None else os.dup(descriptor))
        size = sum(map(len, files_in(home).values()))
        own_files.empty(str(home))
        return size

    for key, size in (("large", 1001), ("a", 900), ("b", 900), ("", 900), ("c", 900)):
        leave(key, size)
    assert len(open_memory() - there) == 2
    assert [found(key) for key in ("large", "a", "b", "c", "")] == [0, 0, 900, 900, 0]
    monkeypatch.setattr(own_files, "MOST_TEXTS", 1)
    leave("small", 1)
    assert len(open_memory() - there) == 1
    assert [found(key) for key in ("b", "c", "small")] == [0, 0, 1]


def test_a_process_without_a_context_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery, "_started", {})
    monkeypatch.setattr(nursery, "SERVE", REFUSES + nursery.SERVE)
    one = judged("def run(a, b):\n    return a @ b\n")
    for made in (there for kind in nursery._started.values() for there in kind):
        made.close()
    assert (one.verdict, one.reason) == (Verdict.UNDECIDED, Reason.NOT_STARTED), one.sentence
    assert "busy or unavailable" in one.sentence


REFUSES = """from perfsuite.isolate.worker import Worker
def full(self, device): raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")
Worker.do_begin = full
"""
