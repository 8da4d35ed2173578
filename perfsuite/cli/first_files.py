"""The files that `perfsuite init` writes: a test, targets, a CI workflow, and asv's configuration with its shim."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from perfsuite.cli.first_kernel import First, Side
from perfsuite.history.projects import has_build

TESTS = Path("tests/perf")
TEST = '''"""A gate of {name}: is it right, and is it fast enough beside {rival_name}? `pytest --gpu` measures it."""

import pytest
{imports}

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
{definition}

@pytest.mark.gpu
@pytest.mark.perf_target(at_least={at_least})
def test_{function}(perf):
{arguments}    perf({candidate}, args=({names}), against={rival})
'''
TARGETS = """# Targets that replace those of the tests, by model of card; `pytest --gpu` prints the model's name.
#
# ["NVIDIA H200"]
# "{test}::*" = {{ perf_target = {{ at_least = 1.1 }} }}

# On a machine without a GPU, `pytest --perf-portable` runs the same gates on its processor.
[portable]
"{test}::*" = {{ perf_target = {{ at_least = {portable} }} }}
"""
WORKFLOW = """# Gates of the kernels: on the processor for every change, and on a GPU if there is a runner with one.
name: perf

on:
  push:
  pull_request:

permissions:
  contents: read

jobs:
  portable:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with:
          persist-credentials: false
      - uses: actions/setup-python@a309ff8b426b58ec0e2a45f0f869d46889d02405 # v6.2.0
        with:
          python-version: "3.12"
      - run: python -m pip install torch pytest-perfsuite{install}
      - run: pytest tests/perf --perf-portable --perf-markdown=perf.md
      - run: perfsuite verify --allow-dirty # the run closed its record, and it is green; a build may leave files
      - name: Summary
        if: always()
        run: if [ -f perf.md ]; then cat perf.md >> "$GITHUB_STEP_SUMMARY"; fi

  # Set the repository's variable GPU_RUNNER to "true" when a runner with the labels self-hosted and gpu is there. A
  # self-hosted runner must not run the code of strangers, so pull requests of forks are left out.
  gpu:
    if: >-
      vars.GPU_RUNNER == 'true' && (github.event_name == 'push'
      || github.event.pull_request.head.repo.full_name == github.repository)
    runs-on: [self-hosted, gpu]
    timeout-minutes: 60
    concurrency: gpu # one run at a time on the card
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
        with:
          persist-credentials: false
      - run: python3 -m venv --system-site-packages .venv
      - run: .venv/bin/python -m pip install pytest-perfsuite{install}
      - run: .venv/bin/pytest tests/perf --gpu --perf-markdown=perf.md --perf-record=perf.jsonl
      - run: .venv/bin/perfsuite verify perf.jsonl --allow-dirty
      - name: Summary
        if: always()
        run: if [ -f perf.md ]; then cat perf.md >> "$GITHUB_STEP_SUMMARY"; fi
      - uses: actions/upload-artifact@b7c566a772e6b6bfb58ed0dc250532a479d7789f # v6.0.0
        if: always()
        with:
          name: perf
          path: perf.jsonl
"""
SHIM = '''"""asv's benchmarks: the gated cases that ../cases.json lists, measured by perfsuite."""

from perfsuite.cli.asv_benchmarks import benchmarks

globals().update(benchmarks(__file__))
'''
CONFTEST = '"""With this file, pytest puts the folder on the path, so that the tests can import the modules in it."""\n'
ASV = Path("asv.conf.json")
FOLDER = Path("benchmarks_asv")


def test_path(first: First) -> Path:
    """The place of the first test."""
    return TESTS / f"test_perf_{first.name}.py"


def files(first: First, *, at_least: float, conftest: bool) -> Mapping[Path, str]:
    """Every file with its text. conftest: the tests import modules of the current folder."""
    test = test_path(first)
    install = " ." if has_build(Path()) else ""
    made = {
        test: test_text(first, at_least),
        Path("perf_targets.toml"): TARGETS.format(test=test.as_posix(), portable=min(at_least, 0.5)),
        Path(".github/workflows/perf.yml"): WORKFLOW.format(install=install),
        ASV: asv_text(),
        FOLDER / "benchmarks" / "__init__.py": "",
        FOLDER / "benchmarks" / "gates.py": SHIM,
    }
    return made | ({Path("conftest.py"): CONFTEST} if conftest else {})


def test_text(first: First, at_least: float) -> str:
    """The first test."""
    imports = {"torch", first.candidate.imports, first.rival.imports} - {""}
    third = sorted(one for one in imports if one.partition(".")[0] == "torch")
    own = sorted(imports - set(third))
    groups = ["\n".join(f"import {one}" for one in group) for group in (third, own)]
    lines = "\n\n".join(filter(None, groups))
    kind = "" if first.dtype == "float32" else f", dtype=torch.{first.dtype}"
    arguments = "".join(
        f"    {name} = torch.randn({', '.join(map(str, shape))}, device=DEVICE{kind})\n"
        for name, shape in zip(first.parameters, first.shapes, strict=True)
    )
    candidate, rival = first.candidate.text, first.rival.text
    for side, name in ((first.candidate, "candidate"), (first.rival, "rival")):
        if side.module:
            arguments += f"    {name} = {side.text}{'()' if side.is_class else ''}.to(DEVICE)\n"
    candidate = "candidate" if first.candidate.module else candidate
    rival = "rival" if first.rival.module else rival
    if first.same_state:
        arguments += "    rival.load_state_dict(candidate.state_dict())\n"
    return TEST.format(
        name=first.candidate.text,
        rival_name=_rival_name(first.rival),
        imports=lines,
        definition=f"\n\n{first.rival.source}" if first.rival.source else "",
        at_least=at_least,
        function=first.name,
        arguments=arguments,
        candidate=candidate,
        names=", ".join(first.parameters) + ("," if len(first.parameters) == 1 else ""),
        rival=rival,
    )


def _rival_name(rival: Side) -> str:
    return "its rival" if rival.source else rival.text


def asv_text() -> str:
    """asv's configuration: it measures each commit's build, or without a build the files of the commit."""
    by_pip = has_build(Path())
    wheel = ["python -m pip wheel -q --no-deps -w {build_cache_dir} {build_dir}"]
    needs = ["python -m pip install -q perfsuite torch"]
    install = ["in-dir={env_dir} python -m pip install -q --no-deps --force-reinstall {wheel_file}"]
    conf = {
        "version": 1,
        "project": Path.cwd().name,
        "repo": ".",
        "branches": [_branch()],
        "environment_type": "virtualenv",
        "launch_method": "spawn",
        "install_timeout": 3600,
        "build_command": wheel if by_pip else [],
        "install_command": [*needs, *(install if by_pip else [])],
        "uninstall_command": [],
        "benchmark_dir": f"{FOLDER}/benchmarks",
        "results_dir": f"{FOLDER}/results",
        "env_dir": ".perfsuite/asv/env",
        "html_dir": ".perfsuite/asv/html",
        "regressions_thresholds": {".*": 0.02},
    }
    return json.dumps(conf, indent=4) + "\n"


def _branch() -> str:
    line = ["git", "symbolic-ref", "--short", "HEAD"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    except OSError:
        return "main"
    return done.stdout.strip() or "main"
