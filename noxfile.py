# /// script
# requires-python = ">=3.11"
# dependencies = ["nox>=2025.2.9"]
# ///
"""The front door: every session sets up all it needs by itself.

A torch that the interpreter running nox already has (a GPU machine's own) is used as it is; otherwise the one pinned
in constraints.txt is installed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "typecheck", "tests"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
OWN_TORCH = importlib.util.find_spec("torch") is not None
TORCH_VENV = ["--system-site-packages"] if OWN_TORCH else []
OLDEST_TORCH = "2.10"
"""The oldest torch that pyproject.toml allows."""
DEVICE_CODE = "ext/csrc/cuda"
EVERY_ARCH = ("80", "86", "89", "90a", "100", "103", "120")
"""What the device code compiles for. The wheel has sm_80, sm_90a and PTX of compute_80; only Hopper is measured."""
ASV = "benchmarks_asv/asv.conf.json"
FEW_TESTS = "tests/perf/test_gemm.py tests/perf/test_attention.py::test_tiled_attention"
PORTABLE_SERIES = r"^gates\.(attention|gemm)\.track_(candidate_seconds|rival_seconds|time_ratio|error_ratio)"
SITE = ".perfsuite/site"
SCREENSHOT = ("--screenshot", ".perfsuite/asv/page.png")
MOST_UNSTEADY = 3
"""Failed tests that run once more by themselves, where times are their own: more is no chance."""
FUZZERS = 7
"""Tests of tests/fuzz, among which the time is divided."""
CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")


def group(name: str) -> list[str]:
    """The requirements of a dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PROJECT, name)


def pins() -> tuple[str, ...]:
    """Hold what is installed to the pinned versions, except beside a torch of the machine's own."""
    return () if OWN_TORCH else CONSTRAINTS


def install(session: nox.Session, *requirements: str, silent: bool | None = None) -> None:
    """Install requirements, unless `nox --no-venv` runs the session in an environment that has them."""
    if session.virtualenv.is_sandboxed:
        session.install(*requirements, silent=silent)


def install_torch(session: nox.Session) -> None:
    """Install the pinned torch, if the machine has none."""
    if not OWN_TORCH:
        install(session, *CONSTRAINTS, "torch")


def install_tools(session: nox.Session, *groups: str) -> None:
    """Install dependency groups."""
    install(session, *pins(), *(requirement for name in groups for requirement in group(name)))


def install_project(session: nox.Session) -> None:
    """Install torch (if the machine has none), the build tools, the plugin and the kernels, both in place."""
    install_torch(session)
    install_tools(session, "build", "test")
    install(session, *pins(), "--no-build-isolation", "-v", "-e", ".", "./plugin", "-e", "ext", silent=True)
    session.run("python", "-m", "cuda_llm_ops")


def cpp_sources() -> list[str]:
    """All C++ and CUDA files."""
    files = (path for folder in ("ext", "tests") for path in Path(folder).rglob("*"))
    return sorted(str(path) for path in files if path.suffix in (".cpp", ".cu", ".cuh", ".h"))


def sees_gpu() -> bool:
    """Whether the NVIDIA driver answers and names at least one GPU; asks NVML, so that no CUDA context is created."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    count = ctypes.c_uint()
    return nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value > 0


@nox.session(default=True)
def lint(session: nox.Session) -> None:
    """Check Python with ruff, C++ and CUDA with clang-format (`-- --fix` mends), and the workflows with actionlint."""
    install_tools(session, "lint")
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")
    session.run("clang-format", *(["-i"] if fix else ["--dry-run", "--Werror"]), *cpp_sources())
    session.run("actionlint")  # its shell scripts by way of shellcheck


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site from docs/ into .perfsuite/docs; a broken link is an error. `-- serve` serves it instead."""
    install_tools(session, "docs")
    session.run("zensical", *(session.posargs or ["build", "--clean", "--strict"]))


@nox.session(default=True, venv_params=TORCH_VENV)
def typecheck(session: nox.Session) -> None:
    """Check types with mypy, against torch's own annotations."""
    install_torch(session)
    install_tools(session, "typecheck", "test")
    install(session, *pins(), *PROJECT["project"]["dependencies"])
    session.run("mypy", *session.posargs)


@nox.session(default=True, venv_params=TORCH_VENV)
def tests(session: nox.Session) -> None:
    """Build the extension and run every test that this machine can run; arguments after `--` go to pytest.

    Without arguments, a few tests that failed beside others run once more by themselves, and are named.
    """
    install_project(session)
    install_tools(session, "cluster")
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    failures = ROOT / ".pytest_cache/v/cache/lastfailed"
    failures.unlink(missing_ok=True)
    try:
        session.run("pytest", "-n", "auto")
    except nox.command.CommandFailed as error:
        failed = list(json.loads(failures.read_text())) if failures.exists() else []
        # pytest ends with 1 for failed tests alone: not for errors while it collects, nor for its own.
        if error.reason != "Returned code 1" or not 0 < len(failed) <= MOST_UNSTEADY:
            raise
        session.warn(f"failed beside other tests, so once more by themselves: {', '.join(failed)}")
        session.run("pytest", *failed)
        session.warn(f"UNSTEADY, mend them: {', '.join(failed)} failed beside other tests and passed by themselves")


@nox.session(default=False)
def oldest(session: nox.Session) -> None:
    """Run the tests of the plugin beside the oldest torch that it supports; the kernels are not built."""
    install(session, f"torch=={OLDEST_TORCH}.*", *group("build"), *group("test"))
    install(session, "--no-build-isolation", "-e", ".", "./plugin")
    session.run("pytest", "-q", *(session.posargs or ["tests/plugin", "tests/cli", "tests/oracle", "tests/case"]))


@nox.session(default=False, venv_params=TORCH_VENV)
def bench(session: nox.Session) -> None:
    """Gate the kernels against the library: on the GPU, or, where there is none, the portable kernels on the CPU."""
    gpu = sees_gpu()
    if not gpu:
        print("No GPU here: gating the portable kernels against torch's CPU library with a host clock.", flush=True)
    install_project(session)
    kept = ROOT / ".perfsuite"
    kept.mkdir(exist_ok=True)
    keep = [f"--perf-record={kept / 'bench.jsonl'}", f"--perf-markdown={kept / 'bench.md'}"]
    if gpu:
        session.run("pytest", "--gpu", "tests/perf", *keep, *session.posargs)
    else:
        session.run("pytest", "--perf-portable", "tests/perf", "--ignore=tests/perf/hopper", *keep, *session.posargs)
    session.run("perfsuite", "verify", str(kept / "bench.jsonl"), "--allow-dirty")
    session.run("perfsuite", "export", "asv", str(kept / "bench.jsonl"), "--skip-dirty")


@nox.session(default=False, venv_params=TORCH_VENV)
def tune(session: nox.Session) -> None:
    """Measure the Hopper GEMM's plans on this card and rewrite their table; options after `--` as of the module."""
    install_project(session)
    session.run("python", "-m", "cuda_llm_ops.tune", *session.posargs)


@nox.session(default=False, venv_params=TORCH_VENV)
def history(session: nox.Session) -> None:
    """Build and gate commits that asv has not seen yet, ten at most; or, after `--`, those that you name."""
    for named in session.posargs:
        line = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{named}^{{commit}}"]
        if subprocess.run(line, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode:
            session.error(f"{named!r} names no commit of this repository; the history is as it was")
    install_project(session)
    # Without a GPU the series that only a card has are left alone: each case of them would be started to be skipped.
    portable = [] if sees_gpu() else ["--portable", "--seconds=0.2", f"--bench={PORTABLE_SERIES}"]
    session.run("perfsuite", "asv", "cases", "--output", "benchmarks_asv/cases.json")
    # CI tries that all of it works; how fast its processor is nobody wants to know.
    few = {"PERFSUITE_ASV_TESTS": FEW_TESTS} if portable and os.environ.get("CI") else {}
    session.run("perfsuite", "history", "--asv", *portable, *session.posargs, env=few)


@nox.session(default=False, venv_params=TORCH_VENV)
def nightly(session: nox.Session) -> None:
    """Run what takes minutes: real builds of real commits, examples, Triton, planted faults, all device code.

    `-- faults`, `-- old_tree` and `-- peer_suites` run one part of it. `-- load_time` and `-- busy_machine` want a
    quiet machine, and run only if they are named. All five write records/nightly.
    """
    install_project(session)
    part, *words = session.posargs or [""]
    for name in ("peer_suites", "faults", "old_tree", "load_time", "busy_machine"):
        if part == name or (not part and name in ("peer_suites", "faults", "old_tree")):
            session.run("python", "-m", f"nightly.{name}", *words, env={"PYTHONPATH": "tests"})
    if part:
        return
    install(session, *pins(), "triton")
    whole = ["tests/history/test_ab_whole.py", "tests/docs", "tests/cli/test_first_run.py", "tests/cli/test_layouts.py"]
    whole += ["tests/plugin/test_ray_run.py", "tests/ops/test_shared_memory.py", "tests/judge/test_candidates.py"]
    session.run("pytest", "-q", "-n", "2", *whole, "tests/corpus", env={"PERFSUITE_WHOLE": "1"})
    # By itself: an attack that slows the rival needs a processor.
    session.run("pytest", "-q", "tests/exploits/test_company.py", env={"PERFSUITE_WHOLE": "1"})
    session.run("python", "-m", "tests.corpus.faults")
    session.notify("neighbours")
    session.notify("kernels", ["--every-arch", "--recheck", "1000000"])


@nox.session(default=False, venv_params=TORCH_VENV)
def neighbours(session: nox.Session) -> None:
    """Try gates beside other plugins of pytest, in an environment of their own: they change every run in theirs."""
    install_torch(session)
    install_tools(session, "build", "test", "neighbours")
    install(session, *pins(), "--no-build-isolation", "-e", ".", "./plugin")
    session.run("pytest", "-q", "tests/plugin/test_neighbours.py", env={"PERFSUITE_WHOLE": "1"})


@nox.session(default=False, venv_params=TORCH_VENV)
def fuzz(session: nox.Session) -> None:
    """Try inputs of any kind for an hour, or for the seconds after `--`: records, targets, markers, words, receipts.

    The numbers of inputs are kept in .perfsuite/fuzz.json; PERFSUITE_FUZZ_OUTPUT names another file, to which it adds.
    """
    install_project(session)
    seconds = float(next(iter(session.posargs), 3600.0))
    kept = os.environ.get("PERFSUITE_FUZZ_OUTPUT") or str(ROOT / ".perfsuite" / "fuzz.json")
    first = {"PERFSUITE_FUZZ_SECONDS": str(seconds / FUZZERS), "PERFSUITE_FUZZ_SEED": str(int(time.time()))}
    session.run("pytest", "-q", "tests/fuzz", env=first | {"PERFSUITE_FUZZ_OUTPUT": kept})


@nox.session(default=False)
def audit(session: nox.Session) -> None:
    """Look for known weaknesses of the packages in constraints.txt and of the workflows. Needs the network."""
    install_tools(session, "audit")
    session.run("pip-audit", "--no-deps", "--disable-pip", "-r", "constraints.txt", *session.posargs)
    online = [] if os.environ.get("GH_TOKEN") else ["--offline"]
    session.run("zizmor", *online, ".github/workflows", "examples/.github/workflows")


@nox.session(default=False)
def dashboard(session: nox.Session) -> None:
    """Publish report and history as a site, try it in a browser, and serve it (`-- --no-serve` only makes it)."""
    install_tools(session, "test", "browser")
    install(session, *CONSTRAINTS, *PROJECT["project"]["dependencies"])
    page = ".perfsuite/asv/html"
    session.run("python", "-m", "perfsuite", "asv", "check")
    session.run("asv", "publish", "--config", ASV, "--no-pull")
    # asv's page loads its libraries from other hosts; where npm can fetch them they are put beside it.
    session.run("python", "-m", "perfsuite", "asv", "page", page, success_codes=[0, 2])
    session.run("python", "-m", "perfsuite", "report", "--fetch-libraries", success_codes=[0, 2])
    lacking = [] if Path(page, "libraries").is_dir() else ["npm, for the libraries of the page"]
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        lacking.append("Chromium")
    if lacking:
        print(f"THE PAGE IS NOT TRIED IN A BROWSER: this machine has no {', and no '.join(lacking)}.", flush=True)
    else:
        pages = [
            "tests/history/test_dashboard.py",
            "tests/report/test_page_browser.py",
            "tests/report/test_ten_questions.py",
        ]
        session.run("pytest", "-q", "-n", "auto", *pages, env={"PERFSUITE_BROWSER": "1"})
        session.run("python", "tests/history/browser.py", page, "gates.gemm.track_time_ratio", *SCREENSHOT)
    records = sorted(str(path) for path in Path("records").glob("*/gates.jsonl"))
    session.run("python", "-m", "perfsuite", "site", SITE, *records, "--asv", page)
    if "--no-serve" not in session.posargs:
        session.run("python", "-m", "http.server", "--directory", SITE, *session.posargs)


@nox.session(default=False)
def pictures(session: nox.Session) -> None:
    """Take the pictures of the documents and of the browser tests again. Needs npm and Chromium."""
    install_tools(session, "test", "browser")
    install(session, *CONSTRAINTS, *PROJECT["project"]["dependencies"])
    session.run("python", "-m", "perfsuite", "report", "--fetch-libraries")
    session.run("python", "tests/report/pictures.py")
    session.run("python", "tests/report/screenshots.py", "docs")


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """Build wheels and source distributions, with the page's libraries from npm, and try the wheels."""
    install_tools(session, "release")
    install(session, *CONSTRAINTS, *PROJECT["project"]["dependencies"])
    session.run("python", "-m", "perfsuite", "report", "--fetch-libraries")
    shutil.rmtree("dist", ignore_errors=True)
    for folder in (".", "plugin"):
        session.run("python", "-m", "build", "--outdir", "dist", folder)
    (plugin,) = Path("dist").glob("pytest_perfsuite-*.whl")
    (wheel,) = Path("dist").glob("perfsuite-*.whl")
    (source,) = Path("dist").glob("perfsuite-*.tar.gz")
    with zipfile.ZipFile(wheel) as of_wheel, tarfile.open(source) as of_source:
        packed = {wheel: of_wheel.namelist(), source: of_source.getnames()}
    here = sorted(path.name for path in Path("perfsuite/report/page/web/libraries").iterdir())
    for file, names in packed.items():
        if lacking := [name for name in here if not any(one.endswith(f"web/libraries/{name}") for one in names)]:
            session.error(f"{file} lacks the page's libraries: {', '.join(lacking)}")
    session.install("--no-deps", "--force-reinstall", str(wheel), str(plugin))
    with session.chdir(session.create_tmp()):  # so that the wheel is imported, not the checkout
        record, made = ROOT / "records/h200/gates.jsonl", Path("page.html").resolve()
        session.run("perfsuite", "report", str(record), "--html", str(made))
        if "--fetch-libraries" in made.read_text(encoding="utf-8"):
            session.error(f"a page made by {wheel} has no libraries")
        session.run("pytest", "--perf-seconds=1", "--fixtures", "-q", silent=True)  # it knows the option


@nox.session(default=False, venv_params=TORCH_VENV)
def exploits(session: nox.Session) -> None:
    """Try every attack of docs/threat-model.md and its honest twin, and print the table; also on a GPU, if any.

    The result is kept in .perfsuite/exploits.json. `-- --record` tries the portable kernels alone, and keeps the result
    in records/portable; `nox -s records` makes the record of a card.
    """
    install_project(session)
    more = [one for one in session.posargs if one != "--record"]
    recorded = len(more) < len(session.posargs)
    kept = ROOT / ("records/portable" if recorded else ".perfsuite")
    kept.mkdir(parents=True, exist_ok=True)
    gpu = ["--gpu"] if sees_gpu() and not recorded else []
    keep = {"PERFSUITE_EXPLOITS": str(kept / "exploits.json")}
    session.run("pytest", "-q", "tests/exploits", *gpu, *more, env=keep)


@nox.session(default=False, venv_params=TORCH_VENV)
def records(session: nox.Session) -> None:
    """Make the records of this machine's cards: `-- --output FOLDER --seconds N`; all options by `-- --help`."""
    install_project(session)
    install_tools(session, "cluster")
    session.run("python", "-m", "records.make", *(session.posargs or ["--list"]), env={"PYTHONPATH": str(ROOT)})


@nox.session(default=False, venv_backend="none")
def kernels(session: nox.Session) -> None:
    """Compile device code; fail on a spill, a stack frame or a C75xx advisory. Needs nvcc, but no GPU.

    Sources that are as they were when records/kernels.jsonl was written are read from there, and four of them, chosen
    at random, are compiled again. `-- --update` brings the record up to date; the nightly run compiles everything.
    `-- --every-arch` compiles for every architecture that the code supports, not only for those of the wheel.
    """
    if shutil.which("nvcc") is None and not Path(CUDA_HOME, "bin", "nvcc").exists():
        missing = f"no nvcc on PATH or under {CUDA_HOME}: the device code is not checked; install the CUDA toolkit"
        if os.environ.get("CI"):
            session.error(missing)
        session.skip(missing)
    allowed = f"{DEVICE_CODE}/allowed.toml"
    # A source of Hopper code is empty for other architectures.
    hopper = "--only=*/sm90*=90a"
    record = ("--record", "records/kernels.jsonl", "--recheck", "4")
    given = [word for word in session.posargs if word != "--every-arch"]
    archs = [f"--arch={arch}" for arch in EVERY_ARCH] if len(given) < len(session.posargs) else []
    arguments = ["kernels", DEVICE_CODE, "-I", "ext/csrc", "--allow", allowed, hopper, *archs, *record, *given]
    session.run(sys.executable, "-m", "perfsuite", *arguments, external=True)


@nox.session(name="cost-models", default=False, venv_params=TORCH_VENV)
def cost_models(session: nox.Session) -> None:
    """Fit a cost model to measured times: `-- gemm`, `-- attention` or `-- fp8`; more options as of the module."""
    install_project(session)
    session.run("python", "-m", "cost_models", *(session.posargs or ["gemm"]), env={"PYTHONPATH": "ext"})


@nox.session(default=False, venv_params=TORCH_VENV)
def growth(session: nox.Session) -> None:
    """Measure how perfsuite's own work grows with the cases (`-- growth --cases 1000000`); fails above a limit.

    `-- figures` measures times and memory against fixed limits, and `-- gate` what a gate takes beside its timed calls.
    All want a quiet machine, and take `--output FILE`.
    """
    install_project(session)
    path = os.pathsep.join(["benchmarks_asv", "benchmarks_asv/own", "tests"])
    session.run("python", "-m", "growth", *session.posargs, env={"PYTHONPATH": path})


@nox.session(name="machine-code", default=False)
def machine_code(session: nox.Session) -> None:
    """Compare the machine code of every kernel between two commits: `-- OLD NEW`. Needs nvcc, but no GPU."""
    session.install(*CONSTRAINTS, *group("machine-code"))
    session.run("python", "-m", "machine_code", *(session.posargs or ["--help"]), env={"PYTHONPATH": "ext"})


if __name__ == "__main__":
    nox.main()
