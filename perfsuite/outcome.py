"""The four verdicts, the closed list of their reasons, and the exit codes of a run."""

from __future__ import annotations

from enum import StrEnum

MOST_CHARACTERS = 300
"""Longest sentence about bad input."""


def one_line(sentence: str) -> str:
    """The sentence as one printable line of at most MOST_CHARACTERS; a longer one lacks its middle.

    The beginning names the thing, and the end says what is allowed.
    """
    plain = printable(sentence[: 2 * MOST_CHARACTERS] + sentence[2 * MOST_CHARACTERS :][-2 * MOST_CHARACTERS :])
    if len(plain) <= MOST_CHARACTERS:
        return plain
    half = MOST_CHARACTERS // 2
    return f"{plain[: half - 3]} ... {plain[2 - half :]}"


def printable(text: str) -> str:
    """The text, with an escaped form of each letter that a terminal would not print."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class UserError(Exception):
    """Bad input, or something that this machine lacks; one sentence. Commands print it and exit with 2."""


class Verdict(StrEnum):
    """The result of a gated case."""

    MET = "MET"
    MISSED = "MISSED"
    WRONG = "WRONG"
    UNDECIDED = "UNDECIDED"


class Reason(StrEnum):
    """The reason of a verdict. The value is its code in records."""

    # MET
    FAST_ENOUGH = "fast-enough"
    CHECKED = "checked"
    # MISSED
    TOO_SLOW = "too-slow"
    TOO_MUCH_MEMORY = "too-much-memory"
    TOO_MANY_LAUNCHES = "too-many-launches"
    SYNCHRONISES = "synchronises"
    REGRESSED = "regressed"
    # WRONG
    INACCURATE = "inaccurate"
    NOT_FINITE = "not-finite"
    BAD_SHAPE = "bad-shape"
    BAD_DTYPE = "bad-dtype"
    BAD_DEVICE = "bad-device"
    BAD_TYPE = "bad-type"
    INPUTS_CHANGED = "inputs-changed"
    OUTPUT_CHANGED = "output-changed"
    UNWRITTEN = "unwritten"
    NOT_DETERMINISTIC = "not-deterministic"
    FASTER_THAN_THE_CARD = "faster-than-the-card"
    TAMPERED = "tampered"
    CANDIDATE_FAILED = "candidate-failed"
    # UNDECIDED
    BUDGET_SPENT = "budget-spent"
    PROCESSES_DISAGREE = "processes-disagree"
    TOO_NOISY = "too-noisy"
    THROTTLED = "throttled"
    SHARED_DEVICE = "shared-device"
    NO_ROUNDS = "no-rounds"
    NO_RIVAL = "no-rival"
    RIVAL_FAILED = "rival-failed"
    RIVAL_WRONG = "rival-wrong"
    REFERENCE_IMPRECISE = "reference-imprecise"
    OUT_OF_MEMORY = "out-of-memory"
    # the run as a whole
    NO_DEVICE = "no-device"
    PORTABLE_BUILD = "portable-build"
    NOTHING_COLLECTED = "nothing-collected"


# Exit codes of a gated run. pytest's own codes (2 interrupted, 3 internal error, 4 usage error) keep their meaning.
EXIT_MET = 0
EXIT_MISSED = 1
EXIT_UNDECIDED = 20
EXIT_NOTHING_MEASURED = 21
