"""Builds the wheels of a commit or a folder and unpacks them, to be imported in place of the installed packages.

All builds run in one folder and keep their objects, so ninja or make compiles only changed files. A project that pip
cannot build, such as a folder of modules, is copied.
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from perfsuite.history import children
from perfsuite.history.commits import HistoryError, full_commit, git
from perfsuite.history.projects import has_build, import_folders, projects, requirements
from perfsuite.record.fingerprint import COMMIT_VARIABLE
from perfsuite.record.places import make_folder

HARNESS_PACKAGE = "perfsuite"
"""Removed from every build: the same suite measures all commits."""
LEFT_BEHIND = (".git", ".nox", ".perfsuite", ".venv", "build", "dist", "__pycache__", "*.egg-info", "*.so")
"""Not copied from a folder: results of builds, and files that no build needs."""
TESTS = ("conftest.py", "test_*.py", "*_test.py", "tests", "test")
"""Not part of a build that is a copy: the tests are those of the checkout."""
FLAVOUR_VARIABLE = "CUDA_LLM_OPS_BUILD"
"""A build for one value of it does not stand for another."""


class BuildError(HistoryError):
    """A commit does not build; one sentence with the error of the compiler or pip."""


@dataclass(frozen=True)
class Source:
    """The source of a build: a commit of the repository at `root`, or a folder."""

    root: Path
    commit: str
    """The full hash, or the folder's name if it is no checkout."""
    folder: Path | None = None

    @property
    def short(self) -> str:
        """The name in messages."""
        return self.commit[:12]

    def target(self, store: Path) -> Path:
        """The place of its build, by commit or by the content of the folder."""
        label = self.short if self.folder is None else f"{self.short}-{_digest(self.folder)}"
        flavour = os.environ.get(FLAVOUR_VARIABLE, "")
        return store / "-".join(filter(None, (label, sys.implementation.cache_tag, re.sub(r"\W", "", flavour))))

    def tree(self, place: Path) -> AbstractContextManager[None]:
        """A context with its files at `place`."""
        return _checkout(self.root, self.commit, place) if self.folder is None else _copy(self.folder, place)


def source_of(root: Path, name: str) -> Source:
    """The source that a user names: a commit in any form that git knows, else a project's folder; else HistoryError."""
    try:
        return Source(root, full_commit(root, name))
    except HistoryError:
        folder = Path(name)
        if not folder.is_dir():
            raise
    if not (folder / "pyproject.toml").is_file() and not any(folder.glob("*.py")):
        raise HistoryError(f"{name!r} names a folder without pyproject.toml and modules: there is nothing to build")
    return Source(root, folder.resolve().name, folder.resolve())


def build(source: Source, store: Path) -> Path:
    """The folder with the packages of `source`, made once, from a temporary tree. BuildError if it fails."""
    target = source.target(store)
    if target.is_dir():
        return target
    make_folder(store)
    with _alone(store), tempfile.TemporaryDirectory(prefix=".build-", dir=store) as folder:
        if target.is_dir():  # another process has made it
            return target
        for left in store.glob(".build-*"):  # of processes that were killed
            if left.name != Path(folder).name:
                shutil.rmtree(left, ignore_errors=True)
        # Always the same path, since it is part of every compiler command.
        tree, made = store / ".tree", Path(folder, "made")
        shutil.rmtree(tree, ignore_errors=True)  # of a process that was killed
        with source.tree(tree), ExitStack() as objects:
            made.mkdir()
            try:
                named = [(project, has_build(project)) for project in projects(tree)]
            except ValueError as error:
                raise BuildError(f"{source.short} does not build: {error}") from None
            for project, by_pip in named:
                if by_pip:
                    slug = "-".join(project.relative_to(tree).parts)
                    objects.enter_context(kept_objects(project, store / f".objects{slug}"))
                    _build_wheel(source, project, Path(folder, f"wheel{slug}"), made)
                else:
                    _copy_modules(project, made)
        for path in [made / HARNESS_PACKAGE, *made.glob(f"{HARNESS_PACKAGE}-*.dist-info")]:
            shutil.rmtree(path, ignore_errors=True)
        os.replace(made, target)
    return target


def _build_wheel(source: Source, project: Path, wheels: Path, made: Path) -> None:
    """Let pip build a project and unpack its wheel into `made`.

    It is built with what is installed here, such as torch. But if its tools are not installed and it has no setup.py,
    which compiled extensions have, pip fetches the tools into an isolated environment.
    """
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
    lacking = _not_installed(requirements(project))
    isolation = () if lacking and not (project / "setup.py").is_file() else ("--no-build-isolation",)
    why = f" ({', '.join(lacking)} is required to build it and not installed here)" if lacking else ""
    _pip(source, "wheel", *quiet, *isolation, "--wheel-dir", str(wheels), str(project), why=why)
    built = [str(wheel) for wheel in wheels.glob("*.whl")]
    _pip(source, "install", *quiet, "--no-compile", "--upgrade", "--target", str(made), *built)


def _not_installed(wanted: Iterable[str]) -> list[str]:
    """Those of a build's requirements that this interpreter lacks."""
    from packaging.requirements import Requirement

    lacking = []
    for one in map(Requirement, wanted):
        if one.marker is not None and not one.marker.evaluate():
            continue
        try:
            if not one.specifier.contains(metadata.version(one.name), prereleases=True):
                lacking.append(str(one))
        except metadata.PackageNotFoundError:
            lacking.append(str(one))
    return lacking


def _copy_modules(project: Path, made: Path) -> None:
    """Copy the modules and packages of a project that pip cannot build, without its tests."""
    ignored = shutil.ignore_patterns(*LEFT_BEHIND, *TESTS)
    for folder in import_folders(project):
        shutil.copytree(folder, made, symlinks=True, ignore=ignored, dirs_exist_ok=True)


def same_contents(one: Path, other: Path) -> bool:
    """True if two builds hold the same files, apart from those that only describe an installation.

    All builds are made at the same path, so that a compiler gives the same bytes for the same sources.
    """

    def files(folder: Path) -> dict[str, Path]:
        named = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        return {name: path for name, path in named.items() if not _describes(name)}

    first, second = files(one), files(other)
    return first.keys() == second.keys() and all(
        filecmp.cmp(first[name], second[name], shallow=False) for name in first
    )


def _describes(name: str) -> bool:
    parts = name.split("/")
    return "__pycache__" in parts or parts[0].endswith(".dist-info")


@contextmanager
def kept_objects(tree: Path, kept: Path) -> Iterator[None]:
    """Move the build folder of the last build into `tree`, and take it back afterwards.

    A checkout gives all files new times, so unchanged files get their old times back. The folders lib and bdist of
    setuptools are not kept, since they may hold files of other commits.
    """
    times = kept / "times.json"
    before = json.loads(times.read_text()) if times.is_file() else {}
    now: dict[str, tuple[str, int]] = {}
    for path in sorted(path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts):
        name, digest = str(path.relative_to(tree)), hashlib.sha256(path.read_bytes()).hexdigest()
        old_digest, old_time = before.get(name, ("", 0))
        if old_digest == digest:
            os.utime(path, ns=(old_time, old_time))
        now[name] = (digest, path.stat().st_mtime_ns)
    if (kept / "build").is_dir() and not (tree / "build").exists():
        os.replace(kept / "build", tree / "build")
    try:
        yield
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        if (tree / "build").is_dir():
            kept.mkdir(parents=True)
            for path in [*(tree / "build").glob("lib*"), *(tree / "build").glob("bdist*")]:
                shutil.rmtree(path, ignore_errors=True)
            os.replace(tree / "build", kept / "build")
            times.write_text(json.dumps(now))


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Keep other processes from building in `store`."""
    with (store / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _checkout(root: Path, commit: str, place: Path) -> Iterator[None]:
    """The files of a commit at `place`, in a separate repository that borrows the objects of `root`.

    A worktree of `root` would be known to it, and would stay so when this process is killed.
    """
    try:
        git(place.parent, "init", "--quiet", str(place))
        found = {name: _git_path(root, name) for name in ("objects", "shallow")}
        (place / ".git" / "objects" / "info" / "alternates").write_text(f"{found['objects']}\n")
        if found["shallow"].is_file():
            shutil.copyfile(found["shallow"], place / ".git" / "shallow")
        git(place, "checkout", "--quiet", "--detach", commit)
        with suppress(HistoryError):  # some builds take their version from tags
            git(place, "fetch", "--quiet", str(root), "refs/tags/*:refs/tags/*")
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _git_path(root: Path, name: str) -> Path:
    return Path(git(root, "rev-parse", "--path-format=absolute", "--git-path", name))


@contextmanager
def _copy(folder: Path, place: Path) -> Iterator[None]:
    try:
        shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _digest(folder: Path) -> str:
    ignored = shutil.ignore_patterns(*LEFT_BEHIND)
    seen = hashlib.sha256()
    for parent, folders, files in os.walk(folder):
        left = ignored(parent, [*folders, *files])
        folders[:] = sorted(name for name in folders if name not in left)
        for name in sorted(name for name in files if name not in left):
            path = Path(parent, name)
            seen.update(f"{path.relative_to(folder)}\0".encode() + (path.read_bytes() if path.is_file() else b""))
    return seen.hexdigest()[:12]


def _pip(source: Source, *arguments: str, why: str = "") -> None:
    # A tree without git's folder does not know its commit.
    environment = os.environ | {COMMIT_VARIABLE: source.commit}
    done = children.run([sys.executable, "-m", "pip", *arguments], environment=environment)
    if done.returncode != 0:
        raise BuildError(f"{source.short} does not build: {_essence(done.stdout + done.stderr)}{why}")


def _essence(text: str) -> str:
    """The most useful line: the compiler's first error, else the last line."""
    lines, errors = lines_and_errors(text)
    compiler = [line for line in errors if re.search(r":\d+(?::\d+)?: .*error:|\(\d+\): error", line)]
    return next(iter(compiler or errors), lines[-1] if lines else "pip printed nothing")[:300]


def lines_and_errors(printed: str) -> tuple[list[str], list[str]]:
    """The lines of a build's output that are not empty, and those that name an error."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror:|Error:|failed to compile|cannot be built", line)]
    return lines, [line for line in errors if not line.startswith("error: subprocess-exited-with-error")] or errors
