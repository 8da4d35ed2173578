"""The `perfsuite` command: each module of `commands` that has HELP, add_arguments and run is a subcommand.

    HELP = "what it does, in one line"
    EXAMPLE = "example:\\n  perfsuite name FILE"
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(arguments: argparse.Namespace) -> int: ...      # the exit code; cli.errors.UsageError gives 2

Only the module of the subcommand that was asked for is imported, so that none pays for the libraries of another;
`perfsuite --help` reads the HELP of all of them from their source.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from perfsuite import __version__
from perfsuite.cli.errors import UsageError
from perfsuite.record.schema import RecordError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""What a shell makes of Ctrl-C."""


def commands() -> dict[str, str]:
    """Name and help of each subcommand. A module's underscores are hyphens on the command line."""
    found = {}
    for path in sorted(Path(__file__).parent.joinpath("commands").glob("*.py")):
        text = help_of(path)
        if text is not None:
            found[path.stem.replace("_", "-")] = text
    return found


def help_of(path: Path) -> str | None:
    """The HELP that a module assigns, read without running it; None where it is no subcommand."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
            if name == "HELP" and isinstance(value, ast.Constant):
                return str(value.value)
    return None


def parser() -> argparse.ArgumentParser:
    """The parser of the command itself; a subcommand's own arguments are left to it."""
    known = commands()
    listed = "\n".join(f"  {name:<{max(map(len, known)) + 2}}{text}" for name, text in known.items())
    top = argparse.ArgumentParser(
        prog="perfsuite",
        description="Judges GPU kernels. Gates run in pytest (`pytest --gpu`); this command works on what they leave.",
        epilog=f"commands:\n{listed}\n\n`perfsuite COMMAND --help` shows each with an example.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"perfsuite {__version__}")
    top.add_argument("command", metavar="COMMAND", choices=list(known), help="one of the commands below")
    top.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the subcommand that `argv` names, and return its exit code; 2 where the input is bad."""
    arguments = parser().parse_args(argv)
    module = import_module(f"perfsuite.cli.commands.{arguments.command.replace('-', '_')}")
    own = argparse.ArgumentParser(
        prog=f"perfsuite {arguments.command}",
        description=(module.__doc__ or module.HELP).strip(),
        epilog=getattr(module, "EXAMPLE", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(own)
    try:
        code = int(module.run(own.parse_args(arguments.rest)))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted. Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        said, code = "interrupted", EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        said, code = "torch is needed, and it is not installed: pip install 'perfsuite[torch]'", EXIT_USAGE
    except _errors_of(module) as error:
        said, code = str(error), EXIT_USAGE
    print(f"perfsuite {arguments.command}: {said}", file=sys.stderr)
    return code


def _errors_of(module: ModuleType) -> tuple[type[Exception], ...]:
    """What a subcommand raises on bad input: its own UsageError where it has one.

    OSError: a file that cannot be written, a program that is not installed.
    """
    return UsageError, RecordError, OSError, getattr(module, "UsageError", UsageError)
