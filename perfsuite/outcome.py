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


class UnjudgeableError(UserError):
    """A call or a result of a form that perfsuite cannot judge; the message ends with the remedy."""


class Verdict(StrEnum):
    """The result of a gated case."""

    MET = "MET"
    MISSED = "MISSED"
    WRONG = "WRONG"
    UNDECIDED = "UNDECIDED"


class Reason(StrEnum):
    """The reason of a verdict. The value is its code in records.

    The text below a member names its verdict, its meaning and, after "Remedy:", what to do. The reference shows it.
    """

    FAST_ENOUGH = "fast-enough"
    """MET: the answer is right, and the speed reaches the target."""
    CHECKED = "checked"
    """MET: the answer is right; no time was asked for, or the limit of another marker is kept."""

    TOO_SLOW = "too-slow"
    """MISSED: the whole interval of the speed lies below the target, or a marker's limit of time is broken.
    Remedy: make the kernel faster, or set a target that it can reach in `perf_targets.toml`."""
    TOO_MUCH_MEMORY = "too-much-memory"
    """MISSED: a call holds more memory than `memory_target` allows, or its memory grows faster with the length.
    Remedy: look for temporaries; `gpu_memory` measures a block of code."""
    TOO_MANY_LAUNCHES = "too-many-launches"
    """MISSED: a call launches more kernels than `launches` allows. Remedy: `perfsuite trace` lists the kernels."""
    SYNCHRONISES = "synchronises"
    """MISSED: a call waits for the device. Remedy: look for `.item()`, `.cpu()`, `print` or a copy to the host."""
    REGRESSED = "regressed"
    """MISSED: the case became slower than its stored history.
    Remedy: `perfsuite bisect` names the commit; a line `Perf-Accept:` in a commit's message accepts the loss."""

    INACCURATE = "inaccurate"
    """WRONG: the answer is further from float64 than twice the library's own error.
    Remedy: accumulate in float32; compare with the float64 reference on the inputs that the sentence names."""
    NOT_FINITE = "not-finite"
    """WRONG: the answer has NaN or infinity where the right answer has none.
    Remedy: look for an overflow in float16, or a row that is masked out completely."""
    BAD_SHAPE = "bad-shape"
    """WRONG: a result has another shape than the rival's. Remedy: return the shape that the sentence names."""
    BAD_DTYPE = "bad-dtype"
    """WRONG: a result has another dtype than the rival's. Remedy: convert the result inside the kernel."""
    BAD_DEVICE = "bad-device"
    """WRONG: a result lies on another device than the inputs. Remedy: allocate it with `device=x.device`."""
    BAD_TYPE = "bad-type"
    """WRONG: a result has another structure than the rival's, is no plain tensor, or lies in an input's memory.
    Remedy: return what the rival returns, in new memory unless the rival works in place."""
    INPUTS_CHANGED = "inputs-changed"
    """WRONG: the call changed an input that the rival leaves as it is.
    Remedy: write to new memory, or compare with a rival that works in place."""
    OUTPUT_CHANGED = "output-changed"
    """WRONG: a result changed after its call, or depends on an earlier call.
    Remedy: allocate a new result in each call; for a kernel that keeps state, use `reset=`."""
    UNWRITTEN = "unwritten"
    """WRONG: elements of the result were never written. Remedy: check the last block and the masks of stores."""
    NOT_DETERMINISTIC = "not-deterministic"
    """WRONG: equal inputs gave other bits. Remedy: look for a race.
    If atomic additions are intended, use `@pytest.mark.correctness(deterministic=False)`."""
    FASTER_THAN_THE_CARD = "faster-than-the-card"
    """WRONG: no such card can do the stated work in that time.
    Remedy: check `flops=` and `bytes=`; otherwise the candidate does not do all of the work."""
    TAMPERED = "tampered"
    """WRONG: the candidate replaced a function or an object that the measurement uses.
    Remedy: leave torch, the clock and the plugin as they are."""
    CANDIDATE_FAILED = "candidate-failed"
    """WRONG: the candidate raised an exception where its rival runs.
    Remedy: the report shows the last frames of its code, and `pytest --pdb` stops there."""
    DOES_NOT_PARSE = "does-not-parse"
    """WRONG: judged source text is no valid program of its language, or lacks the function that is judged.
    Remedy: the sentence names the file and the line."""
    DOES_NOT_COMPILE = "does-not-compile"
    """WRONG: the compiler refused judged source text. Remedy: the answer holds the compiler's output."""
    TIMED_OUT = "timed-out"
    """WRONG: judged source text passed the time limit of a stage.
    Remedy: look for an endless loop or a wait; the sentence names the limit."""
    SANITIZER = "sanitizer"
    """WRONG: a tool of compute-sanitizer found an error in the candidate that it does not find in the rival.
    Remedy: the sentence names the tool, the error and the kernel."""

    BUDGET_SPENT = "budget-spent"
    """UNDECIDED: the interval still contains the target when the time is spent.
    Remedy: raise `--perf-seconds`, quieten the machine, or move the target away from the true speed."""
    PROCESSES_DISAGREE = "processes-disagree"
    """UNDECIDED: the target was missed in one process and not in a fresh one. Remedy: run again."""
    RIVAL_SLOWED = "rival-slowed"
    """UNDECIDED: the rival was slower beside the isolated candidate than before its process started, and the candidate
    is not shown to be the cause. Remedy: quieten the machine, and run again."""
    TOO_NOISY = "too-noisy"
    """UNDECIDED: the stored history is too short or too noisy to show a loss of the size that the marker names.
    Remedy: measure more commits with `perfsuite history`, or raise `slower`."""
    THROTTLED = "throttled"
    """UNDECIDED: the card slowed down for heat or power in too many rounds. Remedy: cool the card, run again."""
    SHARED_DEVICE = "shared-device"
    """UNDECIDED: another process uses the card. Remedy: wait for it, or allow it with `--perf-allow-shared`."""
    NO_ROUNDS = "no-rounds"
    """UNDECIDED: no round was timed. Remedy: raise `--perf-seconds`; one call may take longer than the budget."""
    NO_RIVAL = "no-rival"
    """UNDECIDED: the rival is not installed, or cannot run this problem. Remedy: install it or name another one."""
    RIVAL_FAILED = "rival-failed"
    """UNDECIDED: the rival raised an exception. Remedy: call the rival alone with these arguments."""
    RIVAL_WRONG = "rival-wrong"
    """UNDECIDED: the rival's own answer is wrong on these inputs, so it sets no tolerance.
    Remedy: check that both sides compute the same function, or give `reference=`."""
    REFERENCE_IMPRECISE = "reference-imprecise"
    """UNDECIDED: the right answer is not known well enough to judge the candidate.
    Remedy: give `reference=`, a function of torch that computes in float64."""
    OUT_OF_MEMORY = "out-of-memory"
    """UNDECIDED: inputs, answers or the rival do not fit in memory. Remedy: use a smaller size or a free card."""

    DEVICE_LOST = "device-lost"
    """UNDECIDED: a kernel of an earlier case broke the card's context, and nothing runs on it in this process any more.
    Remedy: mend the first case that failed, or run candidates apart with `--perf-isolate`."""

    NOT_STARTED = "not-started"
    """UNDECIDED: the isolated candidate's process did not start, before a line of its code ran.
    Remedy: the sentence has the error. A card that is full, or in exclusive mode, takes no further process."""
    WORKER_LOST = "worker-lost"
    """UNDECIDED: the process that judges died three times with this job.
    Remedy: judge it alone; the sentence has the end of its output."""
    UNSUPPORTED = "unsupported"
    """UNDECIDED: one of several judged jobs has a form that perfsuite does not support.
    Remedy: the sentence names the form. A call with this job alone raises an error."""
    SERVICE_FAILED = "service-failed"
    """UNDECIDED: the judge itself failed, not the candidate. Remedy: report the sentence as a defect of perfsuite."""

    NO_DEVICE = "no-device"
    """The run measures nothing: there is no GPU, or torch is missing. Remedy: `perfsuite doctor` says why."""
    PORTABLE_BUILD = "portable-build"
    """The run measures nothing: the code under test was built without CUDA. Remedy: build it again with CUDA."""
    NOTHING_COLLECTED = "nothing-collected"
    """The run measures nothing: no gated test was collected, or all were skipped. Remedy: `pytest -rs` says why."""


# Exit codes of a gated run. pytest's own codes (2 interrupted, 3 internal error, 4 usage error) keep their meaning.
EXIT_MET = 0
EXIT_MISSED = 1
EXIT_UNDECIDED = 20
EXIT_NOTHING_MEASURED = 21
