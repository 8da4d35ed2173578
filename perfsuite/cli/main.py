"""The `perfsuite` command: each module of `commands` that has HELP, add_arguments and run is a subcommand.

    HELP = "what it does, in one line"
    EXAMPLE = "example:\\n  perfsuite name FILE"
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(arguments: argparse.Namespace) -> int: ...      # the exit code; outcome.UserError gives 2

Only the module of the chosen subcommand is imported. `perfsuite --help` reads every HELP from the source files.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from perfsuite import __version__
from perfsuite.cli.completion import VARIABLE, answer
from perfsuite.cli.help_text import HelpFormatter
from perfsuite.cli.parsers import Parser, add_choice, parser_of
from perfsuite.exporters.listing import helps
from perfsuite.outcome import UserError, one_line

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""The exit code of a shell after Ctrl-C."""
OPTIONAL = ("torch", "scipy", "numpy")
"""Packages that some commands need; each is installed by its own name."""


EPILOG = """`perfsuite COMMAND --help` describes each command with an example.

Words are completed in a shell after `pip install argcomplete` and
  eval "$(register-python-argcomplete perfsuite)"

exit codes: 0 done or all met, 1 slower or wrong, 2 bad input, 20 undecided, 21 nothing measured, 130 interrupted"""


def commands() -> dict[str, str]:
    return helps(Path(__file__).parent / "commands")


def parser() -> argparse.ArgumentParser:
    """The parser of the command itself; it does not parse a subcommand's own arguments."""
    top = Parser(
        prog="perfsuite",
        description="Judges GPU kernels. Gates run in pytest (`pytest --gpu`); this command works with their records.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"perfsuite {__version__}")
    add_choice(top, "command", commands())
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that `argv` names, and return its exit code, or 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal's encoding lacks must not end the command
            stream.reconfigure(errors="backslashreplace")
    command = ""
    if VARIABLE in os.environ:
        answer(commands())
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if not words:
            parser().print_help()
            return 0
        for word in words:
            _refuse_unless_named(word)
        arguments = parser().parse_args(words)
        command = f" {arguments.command}"
        module = import_module(f"perfsuite.cli.commands.{arguments.command.replace('-', '_')}")
        own = parser_of(f"perfsuite{command}", module)
        module.add_arguments(own)
        code = int(module.run(own.parse_args(arguments.rest)))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (`| head`) stopped reading. Without this, Python would complain when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        sentence, code = "interrupted", EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in OPTIONAL:
            raise
        sentence, code = f"{package} is needed, and it is not installed: pip install {package}", EXIT_USAGE
    except (UserError, OSError) as error:
        # OSError: a file cannot be written, or a program is not installed.
        sentence, code = str(error), EXIT_USAGE
    if "\n" not in sentence:  # several lines: the output of a program that failed
        sentence = one_line(sentence)
    print(f"perfsuite{command}: {sentence}", file=sys.stderr)
    return code


def _refuse_unless_named(word: str) -> None:
    """UserError if no file could have the word as its name. No shell can pass such a word; another program can."""
    try:
        fits = b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        fits = False
    if not fits:
        shown = word.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        raise UserError(f"the word {shown!r} has a NUL or half of a surrogate pair, which no file's name can have")
