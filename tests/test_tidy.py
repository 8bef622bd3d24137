"""The house rules that a linter does not know: each one a test with the reason in its name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("tidy")  # they share what they have parsed

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "tidelog"

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80

SHAPELESS_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?|misc|common)(_|$)|(Utils?|Helper|Manager)s?$")
"""Names that say nothing of what is inside, so that everything ends up inside."""

MAY_READ_TIME = {
    "src/tidelog/clock.py": "it is the clock",
}

MAY_OPEN_FILES = {
    "src/tidelog/storage/fs.py": "the one module of the broker that opens files of the log",
    "src/tidelog/znodes": "the embedded store keeps its own files",
    "src/tidelog/config": "reads the properties file it is given",
    "src/tidelog/local_cluster": "keeps what is known of its processes, and reads their logs",
    "src/tidelog/cli": "reads and writes the files a user names",
    "src/tidelog/pipelines": "reads definitions of pipelines, and keeps what Spark finds again at its next start",
    "src/tidelog/testing": "stands in for the outside world",
}

MAY_SPEAK_OF_HOSTS = {
    "tests/test_tidy.py": "holds the patterns",
}

UNWANTED_TEXT = {
    "a machine's path": re.compile(r"(?<![\w.])/(?:work|root)/(?!\s)\w|/home/\w"),
    "a private registry's host": re.compile(
        r"https?://[\w.-]*(?:artifactory|nexus|devpi|pypi\.(?!org)|npm\.(?!im))[\w.-]*"
    ),
    "an address inside a network": re.compile(r"\b(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+\b"),
    "an unfinished thought": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b"),
}


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the repository, by git."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True)
    return tuple(REPOSITORY / name for name in listing.stdout.decode().split("\0") if name)


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def python_files(*below: str) -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.exists() and (not below or relative(path).startswith(below))
    ]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def excepted(path: Path, exceptions: dict[str, str]) -> bool:
    name = relative(path)
    return any(name == place or name.startswith(f"{place}/") for place in exceptions)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that are called, and where."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def test_a_module_is_small_enough_to_be_read_at_once() -> None:
    long = {
        relative(path): lines
        for path in python_files("src/", "bench/")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    }
    assert not long, f"split these by noun: {long}"


def test_a_function_is_small_enough_to_be_read_at_once() -> None:
    long = [
        f"{relative(path)}:{node.lineno} {node.name} ({length} lines)"
        for path in python_files()
        for node in functions(path)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, long


def test_every_module_says_what_it_promises() -> None:
    silent = [
        relative(path)
        for path in python_files("src/", "bench/", "examples/", "fuzz/")
        if tree_of(path).body and not ast.get_docstring(tree_of(path))
    ]
    assert not silent, f"these modules have no docstring: {silent}"


def test_no_name_is_so_vague_that_anything_fits_in() -> None:
    vague = [relative(path) for path in python_files() if SHAPELESS_NAMES.search(path.stem)]
    vague += [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in python_files("src/")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and SHAPELESS_NAMES.search(node.name)
    ]
    assert not vague, f"name these for what they hold: {vague}"


def test_time_is_read_in_one_place() -> None:
    forbidden = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"}
    forbidden |= {"time.perf_counter_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now"}
    found = [
        f"{relative(path)}:{line} {name}"
        for path in python_files("src/")
        if not excepted(path, MAY_READ_TIME)
        for name, line in calls(path)
        if name in forbidden
    ]
    assert not found, f"take a Clock instead: {found}"


def test_files_are_opened_where_the_map_says() -> None:
    opening = re.compile(r"^(open|io\.open|os\.open|os\.fdopen)$|\.(read_text|read_bytes|write_text|write_bytes)$")
    found = [
        f"{relative(path)}:{line} {name}"
        for path in python_files("src/")
        if not excepted(path, MAY_OPEN_FILES)
        for name, line in calls(path)
        if opening.search(name)
    ]
    assert not found, f"only storage/fs.py opens files: {found}"


def test_tests_wait_for_conditions_and_never_for_time() -> None:
    found = [
        f"{relative(path)}:{line} {name}"
        for path in python_files("tests/", "src/tidelog/testing/")
        for name, line in calls(path)
        if name in {"time.sleep", "sleep"}
    ]
    assert not found, f"use tidelog.testing.eventually: {found}"


def test_tests_of_a_group_go_to_one_worker(request: pytest.FixtureRequest) -> None:
    """Else each worker starts what the group shares: a cluster, a Spark. xdist tells groups by the ends of names."""
    assert request.node.nodeid.endswith("@tidy") == ("PYTEST_XDIST_WORKER" in os.environ)


def test_no_test_is_left_out() -> None:
    """A test that cannot run here fails and says what is missing. Tests of other languages' clients have a marker."""
    leaving_out = re.compile(r"^pytest\.(skip|importorskip|xfail)$|^pytest\.mark\.(skip|skipif|xfail)$")
    found = [
        f"{relative(path)}:{node.lineno} {ast.unparse(node)}"
        for path in python_files("tests/")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and leaving_out.search(ast.unparse(node))
    ]
    assert not found, found


@pytest.mark.parametrize("what", UNWANTED_TEXT)
def test_the_repository_does_not_hold(what: str) -> None:
    found = []
    for path in tracked():
        if excepted(path, MAY_SPEAK_OF_HOSTS) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in UNWANTED_TEXT[what].finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{relative(path)}:{line} {match.group()}")
    assert not found, found


def test_every_handler_module_is_listed() -> None:
    """A handler that nobody lists is not offered; ApiVersions would not even mention it."""
    listing = (SOURCE / "handlers" / "__init__.py").read_text(encoding="utf-8")
    unlisted = [
        relative(path)
        for path in python_files("src/tidelog/handlers/")
        if defines_handler(path) and not re.search(rf"\b{path.stem}\b", listing)
    ]
    assert not unlisted, f"handlers/__init__.py does not list {unlisted}"


def defines_handler(path: Path) -> bool:
    names = (ast.unparse(node.targets[0]) for node in tree_of(path).body if isinstance(node, ast.Assign))
    return path.name != "__init__.py" and "HANDLER" in names


def test_importing_the_client_is_light() -> None:
    """It pulls in neither Spark nor a web framework, nor the broker."""
    code = "import sys, tidelog, tidelog.client; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not {"pyspark", "fastapi", "starlette", "flask", "kazoo", "tidelog.broker", "tidelog.handlers"} & loaded
