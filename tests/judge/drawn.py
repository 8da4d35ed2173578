"""Jobs for the services, drawn from the hundred candidates: nine tenths judge to an end, one tenth goes wrong.

On a card the hundred lose those in C++. Half of the others are then in Triton and CUDA, from card_texts.py, and those
that go wrong are also drawn from the folder card_candidates.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from card_texts import Text, cuda_texts, triton_texts

HERE = Path(__file__).parent
BAD = {
    "crashing": ("broken/aborts.py", "broken/segmentation_fault.py", "broken/null_pointer.cpp"),
    "hanging": ("broken/hangs.py", "broken/hangs_on_import.py", "broken/sleeps.py"),
    "eating memory": ("broken/eats_memory.py",),
    "forking": ("broken/forks.py",),
    "cheating": ("cheating/returns_input.py", "cheating/replaces_softmax.py", "cheating/exits_cleanly.py"),
    "not compiling": ("broken/missing_semicolon.cpp", "broken/unknown_header.cpp", "broken/no_colon.py"),
}
"""Kind of fault -> candidates."""
BAD_ON_CARDS = {
    "crashing": ("null_pointer.cu", "far_write.cu", "far_write.py", "trap.cu"),
    "hanging": ("waits_for_ever.cu", "waits_for_ever.py"),
    "eating memory": ("takes_card_memory.cu", "takes_card_memory.py"),
    "cheating": ("does_nothing.cu", "computes_once.cu", "first_row_only.py"),
    "not compiling": ("missing_semicolon.cu", "unknown_function.cu", "unknown_word.py", "range_of_three.py"),
}
"""The same in the folder card_candidates."""
GOOD = ("right", "wrong")
"""Folders of the other candidates: their answers need no timing, so they are the same on a busy machine."""


RUN_SECONDS, HANG_SECONDS = 20.0, 2.0


@dataclass(frozen=True)
class Drawn:
    """A job and its expected answer."""

    id: str
    kind: str
    candidate: dict[str, Any]
    problem: str
    """The name of a file in tests/judge/problems."""
    expected: tuple[str, ...]
    """The verdict, and perhaps the reason and the stage."""
    terms: dict[str, Any]
    """Of kinds that hang, a short limit: nobody waits for them."""

    def fault(self, answer: dict[str, Any]) -> str | None:
        """One sentence if the answer is not the expected one."""
        got = (answer["verdict"], answer["reason"], answer["stage"])[: len(self.expected)]
        if got == self.expected:
            return None
        return f"{self.id} is {' '.join(got)}, not {' '.join(self.expected)}: {answer['sentence']}"


def drawn(count: int, seed: int = 0, device: str = "cpu") -> list[Drawn]:
    """Jobs with identifiers of their own; equal seeds give equal jobs."""
    draw, on_card = random.Random(seed), device == "cuda"
    suffixes = (".py",) if on_card else (".py", ".cpp")
    kinds = list(BAD.items())
    good = [("plain", file) for folder in GOOD for file in sorted(HERE.glob(f"candidates/{folder}/*.*"))]
    good = [one for one in good if one[1].suffix in suffixes]
    found: list[tuple[str, Path | Text]] = []
    for number in range(count // 10):
        kind, files = kinds[number % len(kinds)]
        places = [HERE / "candidates" / one for one in files if one.endswith(suffixes)]
        if on_card:
            places += [HERE / "card_candidates" / one for one in BAD_ON_CARDS.get(kind, ())]
        found.append((kind, draw.choice(places)))
    texts = (count - len(found)) // 4 if on_card else 0
    found += [("plain", text) for text in triton_texts(texts, seed) + cuda_texts(texts, seed)]
    found += [draw.choice(good) for _ in range(count - len(found))]
    draw.shuffle(found)
    return [
        of_text(f"{number:04}-{one.name}", one)
        if isinstance(one, Text)
        else of_file(f"{number:04}-{one.parent.name}-{one.stem}", kind, one)
        for number, (kind, one) in enumerate(found)
    ]


def problem_value(name: str) -> Any:
    """The problem as a pool takes it: a path or a JSON value."""
    path = HERE / "problems" / name
    return json.loads(path.read_text()) if path.suffix == ".json" else str(path)


def of_text(id: str, text: Text) -> Drawn:
    """The job of a right candidate in Triton or CUDA."""
    return Drawn(id, "plain", text.candidate, text.problem, ("MET",), {"timed": False, "run_seconds": RUN_SECONDS})


def of_file(id: str, kind: str, file: Path) -> Drawn:
    """The job of a file whose first line names the problem and the expected answer."""
    text = file.read_text()
    problem, _, expected = text.partition("\n")[0].lstrip("#/ ").partition(": ")
    (place,) = HERE.glob(f"problems/{problem}.*")
    terms = {"timed": False, "run_seconds": HANG_SECONDS if kind == "hanging" else RUN_SECONDS}
    return Drawn(id, kind, {"files": {file.name: text}}, place.name, tuple(expected.split()), terms)
