"""The rules of the layout, kept by a test: which room may import which, and which source may include what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "perfsuite"
DEVICE_CODE = ROOT / "ext" / "csrc" / "cuda"

# Folders from the ground up: each may import those before it and never those after it.
ORDER = (
    "problems",
    "device",
    "guards",
    "oracle",
    "clock",
    "verdict",
    "case",
    "isolate",
    "record",
    "report",
    "machine",
    "analyze",
    "memory",
    "history",
    "calibrate",
    "workers",
    "judge",
    "exporters",
    "pytest_plugin",
    "cli",
)
# Files of the root: the first two are below every folder, the others above all of them.
BELOW, ABOVE = ("settings", "outcome"), ("plugin", "__main__", "__init__")
RANK = {name: rank for rank, name in enumerate((*BELOW, *ORDER))} | {name: len(ORDER) + 2 for name in ABOVE}
MOST_LINES = 350
HEAVY = {"torch", "numpy", "rich", "jinja2", "pynvml", "triton", "ray"}


def modules() -> Iterator[tuple[str, Path, ast.Module]]:
    for path in sorted(SUITE.rglob("*.py")):
        relative = path.relative_to(SUITE)
        room = relative.parts[0].removesuffix(".py")
        yield room, relative, ast.parse(path.read_text())


def imported(node: ast.AST, package: str = "") -> list[str]:
    """Full names that an import statement names; `package` is that of the file, for relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level <= 1, f"line {node.lineno}: an import that climbs out of its folder hides which one is meant"
        base = ".".join(filter(None, (package if node.level else "", node.module)))
        return [f"{base}.{alias.name}" for alias in node.names]
    return []


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            guarded.update(child for statement in node.body for child in ast.walk(statement))
    return guarded


def test_every_folder_has_its_place_and_every_place_its_folder() -> None:
    folders = {path.name for path in SUITE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in SUITE.glob("*.py")}
    assert folders == set(ORDER)
    assert files == {*BELOW, *ABOVE}


def test_no_function_inside_of_a_function_calls_itself() -> None:
    # It would refer to itself, and keep what it uses, tensors of gigabytes too, until the garbage collector runs.
    wrong = [
        f"{path}:{inner.lineno} {inner.name}"
        for _, path, tree in modules()
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.FunctionDef) and inner is not outer
        if any(isinstance(one, ast.Name) and one.id == inner.name for one in ast.walk(inner))
    ]
    assert wrong == []


def test_data_flows_one_way_type_only_imports_included() -> None:
    wrong = []
    for room, path, tree in modules():
        for node in ast.walk(tree):
            for name in imported(node):
                parts = name.split(".")
                if parts[0] == "perfsuite" and len(parts) > 1 and parts[1] in RANK and RANK[parts[1]] > RANK[room]:
                    wrong.append(f"perfsuite/{path}:{node.lineno} ({room}) imports {name}")
    assert not wrong, "\n".join(wrong)


def test_files_import_each_other_in_no_circle() -> None:
    """At run time, imports inside functions included; imports for types alone are left out."""
    files = {name_of(path): tree for _, path, tree in modules()}
    graph: dict[str, set[str]] = {}
    for name, tree in files.items():
        types_only = for_types_only(tree)
        package = name if (SUITE.parent / name.replace(".", "/")).is_dir() else name.rpartition(".")[0]
        names = [one for node in ast.walk(tree) if node not in types_only for one in imported(node, package)]
        # `from perfsuite.clock import base` names a file; `from perfsuite.clock.base import Clock` one of its names.
        found = {one if one in files else one.rpartition(".")[0] for one in names} & set(files)
        graph[name] = found - {name}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def name_of(path: Path) -> str:
    """The dotted name of a file of perfsuite."""
    return ".".join(("perfsuite", *path.with_suffix("").parts)).removesuffix(".__init__")


def test_no_file_is_long() -> None:
    counts = {path: len((SUITE / path).read_text().splitlines()) for _, path, _ in modules()}
    assert {str(path): count for path, count in counts.items() if count > MOST_LINES} == {}


def test_the_suite_never_imports_the_kernels_it_judges() -> None:
    wrong = [
        f"perfsuite/{path}:{node.lineno}"
        for _, path, tree in modules()
        for node in ast.walk(tree)
        for name in imported(node)
        if name.split(".")[0] == "cuda_llm_ops"
    ]
    assert not wrong


def test_heavy_libraries_are_imported_only_inside_functions() -> None:
    wrong = []
    for _, path, tree in modules():
        types_only = for_types_only(tree)
        inside = {
            child
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if node not in inside and node not in types_only and {n.split(".")[0] for n in imported(node)} & HEAVY:
                wrong.append(f"perfsuite/{path}:{node.lineno}")
    assert not wrong, wrong


def sources(*patterns: str) -> list[Path]:
    found = sorted(path for pattern in patterns for path in DEVICE_CODE.rglob(pattern))
    assert found
    return found


@pytest.mark.parametrize("path", sources("*.cu", "*.cuh", "*.h"), ids=lambda path: path.name)
def test_device_code_is_free_of_torch_and_keeps_its_ptx_in_one_place(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r'#\s*include\s*[<"](torch|ATen|c10|pybind11)/', text)
    if path.parent.name != "ptx":
        assert not re.search(r"\basm\b\s*(volatile)?\s*\(", text), f"inline PTX outside ptx/: {path}"


def test_operators_include_only_the_stable_headers_of_torch() -> None:
    sources = [path.read_text() for path in (ROOT / "ext/csrc").glob("*.*") if path.name != "module.cpp"]
    includes = re.findall(r'#\s*include\s*[<"]((?:torch|ATen|c10)/[^">]+)', "".join(sources))
    allowed = ("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/shim.h")
    assert includes
    assert not [name for name in includes if not name.startswith(allowed)]


def test_the_module_includes_no_torch_header() -> None:
    assert not re.search(r'#\s*include\s*[<"](torch|ATen|c10)/', (ROOT / "ext/csrc/module.cpp").read_text())
