"""Write a first gate for a kernel into this repository, and the files around it.

The test goes to tests/perf. Beside it the command writes perf_targets.toml, a workflow for
GitHub, asv.conf.json with its benchmarks, and a line of .gitignore. The kernel and its rival
are called once, to find arguments that both take. Files that differ are overwritten only if
you say so; --yes says so to every question.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from perfsuite.cli import first_files
from perfsuite.cli.first_kernel import First, first_of, guessed_rival, needs_folder_on_path, side_of
from perfsuite.cli.plugin_known import install_words, known, pytest_words
from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole

HELP = "write a first gate of a kernel into this repository"
EXAMPLE = """example:
  perfsuite init kernels:softmax --against 'lambda x: torch.softmax(x, -1)'
  perfsuite init kernels:matmul --against torch.matmul --shape 1024x512 --shape 512x256
  perfsuite init layers:FastLinear --against layers:Linear --dtype float16 --yes

exit codes: 0 all files are there, 2 bad input"""
KEPT = ("perf_targets.toml", "conftest.py")
"""Files that hold the user's own text: they are written, and never overwritten."""
IGNORED = ".perfsuite/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kernel", nargs="?", metavar="KERNEL", help="module:function, or module:Class of a torch module"
    )
    parser.add_argument(
        "--against", metavar="RIVAL", help="module:function, a dotted name, or a lambda (default: torch's of that name)"
    )
    parser.add_argument(
        "--shape", action="append", type=_shape, default=[], metavar="SIZES",
        help="shape of the arguments, such as 1024x512; repeat it for each (default: tried)",
    )  # fmt: skip
    parser.add_argument("--dtype", default="float32", help="dtype of the arguments (default float32)")
    parser.add_argument("--at-least", type=float, default=0.9, metavar="SPEED", help="the target (default 0.9)")
    parser.add_argument("--yes", action="store_true", help="ask nothing: overwrite files that differ")


def run(arguments: argparse.Namespace) -> int:
    """Look at the kernel, write the files, and print what comes next."""
    if not 0.0 < arguments.at_least < 1000.0:
        raise UserError(f"--at-least is {arguments.at_least:g}; it must lie between 0 and 1000")
    if arguments.dtype not in ("float32", "float16", "bfloat16", "float64"):
        raise UserError(f"--dtype is {arguments.dtype!r}; allowed are float32, float16, bfloat16 and float64")
    kernel = arguments.kernel or _asked("Which kernel (module:function)? ", arguments.yes)
    if not kernel:
        raise UserError("name a kernel as module:function, such as kernels:softmax")
    rival = arguments.against or _rival(kernel, arguments.yes)
    candidate = side_of(kernel, "KERNEL")
    if not candidate.imports:
        raise UserError(f"KERNEL is {kernel!r}; it must be module:function, which the test can import")
    first = first_of(candidate, side_of(rival, "--against"), arguments.shape, arguments.dtype)
    conftest = needs_folder_on_path(candidate.imports)
    for path, text in first_files.files(first, at_least=arguments.at_least, conftest=conftest).items():
        print(f"{path}: {_write(path, text, arguments.yes)}")
    print(f".gitignore: {_ignore()}")
    print(_next(first))
    return 0


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8}){0,7}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write sizes with x, such as 1024x512")
    return tuple(map(int, text.split("x")))


def _rival(kernel: str, yes: bool) -> str:
    guess = guessed_rival(kernel)
    hint = f" [{guess}]" if guess else ""
    found = _asked(f"Against what (module:function, or a lambda){hint}? ", yes) or guess
    if not found:
        raise UserError("name the rival by --against, such as --against torch.nn.functional:gelu")
    return found


def _asked(question: str, yes: bool) -> str:
    """The user's answer; "" if nobody can be asked."""
    if yes or not sys.stdin.isatty():
        return ""
    try:
        return input(question).strip()
    except EOFError:
        return ""


def _write(path: Path, text: str, yes: bool) -> str:
    """Write a file, unless it is there; the word for what was done."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
        return "written"
    if path.read_text(encoding="utf-8", errors="replace") == text:
        return "unchanged"
    if path.name in KEPT:
        return "kept, since it may hold your own text"
    if not yes and _asked(f"{path} is there and differs. Overwrite it [y/N]? ", yes).lower() not in ("y", "yes"):
        return "kept, since it differs (--yes overwrites it)"
    write_whole(path, text)
    return "overwritten"


def _ignore() -> str:
    path = Path(".gitignore")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if IGNORED in (line.strip().lstrip("/") for line in text.splitlines()):
        return "unchanged"
    write_whole(path, text + ("\n" if text and not text.endswith("\n") else "") + IGNORED + "\n")
    return f"{IGNORED} added"


def _next(first: First) -> str:
    test = first_files.test_path(first)
    if first.untried:
        head = f"The arguments in {test} were not found by a call ({first.untried}): look at them first."
    else:
        head = f"Both sides take the arguments in {test}: look at them, then measure."
    if not known():
        head += f" pytest does not know the plugin: {install_words()}"
    gate = f"{pytest_words()} --gpu"
    return f"""
{head}

  {gate:<34}  # on a machine without a GPU: --perf-portable
  perfsuite ab HEAD~1                 # after a commit: did it get slower?
  perfsuite history HEAD              # measure a commit, and keep a record of it
  perfsuite export asv RECORD && asv publish"""
