"""The jobs, in the order in which they are done. Seconds are those of one H200 with 16 processors."""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.outcome import UserError
from records.outputs import COMMANDS

from . import findings
from .job import Job
from .kinds import Calibration, Exploits, Gates, Once, Outputs, Parts, Sections, Survey

HOPPER = "tests/perf/hopper"
MAIN_GATES = (
    "tests/perf/test_gemm.py",
    "tests/perf/test_attention.py",
    "tests/perf/test_resources.py",
    *(f"{HOPPER}/test_{name}.py" for name in ("gemm_shapes", "gemm_tuned", "decode_shapes")),
    *(f"{HOPPER}/test_attention_{name}.py" for name in ("shapes", "options", "flash")),
)
SHORT_GATES = ("tests/perf/test_gemm.py", "tests/perf/test_attention.py")
RANDOM = ("-m", "tests.ops.random_errors", "--configurations", "2000")
THOUSAND = ("-m", "tests.judge.thousand")
JOBS_OF_JUDGE = ("--jobs", "1000", "--beside", "4", "--seconds")
"""No job is sent later than the seconds that follow; the record says how many were. Most of a job's time is a host's,
so four processes share a card."""
CORPUS = ("-m", "tests.corpus", "--out", "{record}", "--what")
CUDA = ("--device", "cuda")
PORTABLE_GATES = ("--perf-portable", "--perf-seconds=0.2")
IN_TURNS = ("--beside", "3", "--processes", "6")
"""Most of an isolated gate's time is a host's, so three processes share a card, as those of the judge do."""
PORTABLE_CALIBRATION = (
    "--portable", "--aa", "4", "--planted", "2", "--sharp", "0", "--processes", "1", "--beside", "1",
)  # fmt: skip
"""The last of an option counts, so these take the place of those of a card."""

JOBS = (
    Job(
        name="sanitizers", record="sanitizers.json", seconds=240, times=False, processors=10, threads=1, closing=75,
        needs=("sanitizer",),
        kind=Once(
            words=("-m", "tests.ops.sanitizer_record", "--sanitizer", "{sanitizer}", "--seconds", "{seconds}",
                   "--output", "{record}"),
            read=findings.sanitizers,
        ),
    ),
    Job(
        name="gates-fp8", record="gates-fp8.jsonl", seconds=150, times=True, small=(),
        kind=Gates(tests=(f"{HOPPER}/test_fp8.py",)),
    ),
    Job(
        name="gates-backward", record="gates-backward.jsonl", seconds=410, times=True, needs=("flash-attn",), small=(),
        kind=Gates(tests=tuple(f"{HOPPER}/test_backward{name}.py" for name in ("", "_flash", "_gemm")), lanes=2),
    ),
    Job(
        name="random-backward", record="random-backward.json", seconds=35, times=False, beside=4, threads=1, closing=5,
        small=("--device", "cpu", "--configurations", "40", "--most", "64"),
        kind=Parts(words=(*RANDOM, "--family", "backward"), count=8, read=findings.random_calls),
    ),
    Job(
        name="repeated-backward", record="repeated-backward.json", seconds=40, times=False, beside=4, threads=1,
        closing=5, small=("--device", "cpu", "--launches", "2"),
        kind=Parts(words=("-m", "tests.ops.repeated"), count=4, read=findings.repeated),
    ),
    Job(
        name="counters-backward", record="counters-backward.json", seconds=200, times=True,
        needs=("ncu", "flash-attn"),
        kind=Once(
            words=("-m", "records.counters", "--seconds", "{seconds}", "--output", "{record}"), read=findings.counters
        ),
    ),
    Job(
        name="exploits", record="exploits.json", seconds=1000, times=True, threads=4, own_folder=True,
        needs=("bubblewrap",), small=("-k", "portable"),
        kind=Exploits(tests=("tests/exploits",), lanes=3),
    ),
    Job(
        name="calibration", record="calibration.json", seconds=950, times=True, threads=4, closing=70,
        small=PORTABLE_CALIBRATION,
        kind=Calibration(words=("--aa", "1500", "--planted", "300", "--sharp", "200", "--others", "0")),
    ),
    Job(
        name="calibration-isolated", record="calibration-isolated.json", seconds=1500, times=True, threads=4,
        closing=40, small=PORTABLE_CALIBRATION,
        kind=Calibration(
            words=("--isolated", "--aa", "3000", "--planted", "300", "--sharp", "0", "--others", "0", *IN_TURNS)
        ),
    ),
    Job(
        name="mission-in-process", record="mission-in-process.jsonl", seconds=25, times=True, small=PORTABLE_GATES,
        kind=Gates(tests=SHORT_GATES),
    ),
    Job(
        name="mission-isolated", record="mission-isolated.jsonl", seconds=80, times=True, small=PORTABLE_GATES,
        kind=Gates(tests=SHORT_GATES, options=("--perf-isolate",)),
    ),
    Job(
        name="judge-http", record="judge.json", sections=True, seconds=480, times=True, cards=2,
        needs=("fastapi", "uvicorn", "triton", "bubblewrap"), small=("--jobs", "12"),
        kind=Sections(commands={"http": (480, (*THOUSAND, "--http", "--workers", "2", *JOBS_OF_JUDGE, "450"))}),
    ),
    Job(
        name="judge-ray", record="judge.json", sections=True, seconds=560, times=True, cards=2,
        needs=("ray", "triton", "bubblewrap"), small=("--jobs", "12"),
        kind=Sections(commands={"ray": (560, (*THOUSAND, "--ray", *JOBS_OF_JUDGE, "530"))}),
    ),
    Job(
        name="judge-perf-ray", record="judge.json", sections=True, seconds=160, times=True, cards=2, needs=("ray",),
        small=("--seconds", "100", "-k", "512", "--perf-seconds=0.2"),
        kind=Sections(
            commands={"perf-ray": (160, (*THOUSAND, "--perfray", "--seconds", "150", *SHORT_GATES,
                                         f"{HOPPER}/test_decode_shapes.py", f"{HOPPER}/test_gemm_shapes.py"))},
        ),
    ),
    Job(
        name="survey", record="survey.jsonl", seconds=900, times=True, closing=15,
        kind=Survey(),
    ),
    Job(
        name="gates", record="gates.jsonl", seconds=240, times=True, needs=("flash-attn",), small=PORTABLE_GATES,
        kind=Gates(tests=MAIN_GATES, lanes=2),
    ),
    Job(
        name="gates-quantised", record="gates-quantised.jsonl", seconds=150, times=True, small=(),
        kind=Gates(tests=(f"{HOPPER}/test_decode_quantised.py", f"{HOPPER}/test_weight_only.py")),
    ),
    Job(
        name="gates-tokens", record="gates-tokens.jsonl", seconds=60, times=True, small=(),
        kind=Gates(tests=(f"{HOPPER}/test_decode_tokens.py",)),
    ),
    Job(
        name="random-errors", record="random-errors.json", seconds=160, times=False, beside=8, threads=1, closing=15,
        small=("--device", "cpu", "--configurations", "16", "--most", "64", "--family", "decode"),
        kind=Parts(
            words=(*RANDOM, "--family", "weight-only-gemm", "decode", "decode-16", "fp8-gemm", "grouped-gemm"),
            count=16, read=findings.random_calls,
        ),
    ),
    Job(
        name="faults-quantised", record="faults-quantised.json", seconds=200, times=False, beside=4, threads=1,
        closing=15, small=("--device", "cpu", "--small", "--family", "decode"),
        kind=Parts(words=("-m", "tests.corpus.quantised_faults"), count=8, read=findings.rows),
    ),
    Job(
        name="judge-speeds", record="judge.json", sections=True, seconds=360, times=True, cards=2,
        needs=("triton", "bubblewrap"), small=("--seconds", "3", "--most", "8"),
        kind=Sections(
            commands={
                "in-process": (75, (*THOUSAND, "--speeds", "--parts", "in-process")),
                "isolated,cards": (150, (*THOUSAND, "--speeds", "--parts", "isolated,cards")),
                "triton": (80, (*THOUSAND, "--speeds", "--parts", "triton")),
                "cuda": (80, (*THOUSAND, "--speeds", "--parts", "cuda")),
            },
        ),
    ),
    Job(
        name="cancellation", record="cancellation.jsonl", seconds=240, times=True, needs=("flash-attn",),
        small=PORTABLE_GATES,
        kind=Gates(tests=MAIN_GATES, options=("--perf-distribution=cancellation",), lanes=2),
    ),
    Job(
        name="downgrades", record="downgrades.json", seconds=200, times=True, threads=4, own_folder=True,
        small=("-k", "portable"),
        kind=Exploits(
            tests=("tests/exploits/test_downgrades.py",), lanes=1, environment={"PERFSUITE_DOWNGRADE_SEEDS": "200"}
        ),
    ),
    Job(
        name="outputs", record="mission", seconds=300, times=True,
        kind=Outputs(names=tuple(COMMANDS), words=("records/outputs.py",)),
    ),
    Job(
        name="corpus", record="corpus.json", seconds=330, times=True,
        small=("--device", "cpu", "--drawn", "4"),
        kind=Once(words=(*CORPUS, "modules", "calls"), of_card=CUDA, read=findings.rows, resumes=True),
    ),
    Job(
        name="compiled", record="compiled.json", seconds=580, times=True, needs=("triton",),
        kind=Once(words=(*CORPUS, "compiled"), of_card=CUDA, read=findings.rows, resumes=True),
    ),
    Job(
        name="liger", record="liger.json", seconds=220, times=True, needs=("liger_kernel", "triton"),
        kind=Once(words=(*CORPUS, "liger"), of_card=CUDA, read=findings.rows, resumes=True),
    ),
    Job(
        name="large", record="large.json", seconds=60, times=True,
        kind=Once(words=(*CORPUS, "large"), of_card=CUDA, read=findings.rows, resumes=True),
    ),
    Job(
        name="faults", record="faults.json", seconds=240, times=True,
        kind=Once(words=("-m", "tests.corpus.faults", "--out", "{record}"), of_card=CUDA, read=findings.rows),
    ),
    Job(
        name="levers", record="levers.json", seconds=60, times=True,
        small=("--tiny", "--batch", "1", "--context", "64", "--prefill", "16", "--rounds", "2"),
        kind=Once(
            words=("-m", "cuda_llm_ops.levers", "--batch", "1", "16", "64", "--context", "8192", "--prefill", "2048",
                   "--output", "{record}"),
            read=findings.rows,
        ),
    ),
    Job(
        name="training", record="training.json", seconds=120, times=True,
        small=("--tiny", "--steps", "4", "--seeds", "1"),
        kind=Once(words=("-m", "cuda_llm_ops.training", "--output", "{record}"), read=findings.rows),
    ),
)  # fmt: skip


def named(names: Sequence[str], jobs: Sequence[Job] = JOBS) -> list[Job]:
    """The jobs of these names, all if there is none, in the order of the table. UserError for an unknown name."""
    known = [job.name for job in jobs]
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"--only has {', '.join(unknown)}; allowed are {', '.join(known)}")
    return [job for job in jobs if not names or job.name in names]
