"""Judge a thousand candidates by a service, while parts of it are killed: python -m tests.judge.thousand --http.

The first word names the service, one of the files thousand_NAME.py beside this one; `--help` behind it lists the rest.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    known = [f"--{path.stem.removeprefix('thousand_')}" for path in sorted(HERE.glob("thousand_*.py"))]
    word, *rest = sys.argv[1:] or [""]
    if word not in known:
        print(f"the service is {word!r}; allowed are {', '.join(known)}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(HERE))
    return int(import_module(f"thousand_{word.removeprefix('--')}").main(rest))


if __name__ == "__main__":
    sys.exit(main())
