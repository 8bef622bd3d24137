"""What a session is told, by whom, and who wins; and archives of classes, which never are in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog.pipelines.session.class_archive import archive_options
from tidelog.pipelines.session.java import Java
from tidelog.pipelines.session.places import cache_directory
from tidelog.pipelines.session.settings import SHORT_RUN, defaults, is_local, java_options, local_cores, merged


class FixedClock:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000


@pytest.mark.parametrize(
    ("master", "local", "cores"),
    [
        ("local", True, 1),
        ("local[3]", True, 3),
        ("local[*]", True, 16),
        ("local[2,4]", True, 2),
        ("local[*,4]", True, 16),
        ("local-cluster[2,1,1024]", False, 1),
        ("spark://host:7077", False, 1),
        ("yarn", False, 1),
        ("", False, 1),
    ],
)
def test_masters(master: str, local: bool, cores: int) -> None:
    assert is_local(master) == local
    assert local_cores(master, 16) == cores


def test_a_cluster_keeps_its_own_network_python_and_checkpoints() -> None:
    here, there = defaults("local[2]", 2, "/py"), defaults("spark://host:7077", 2, "/py")
    assert here["spark.sql.shuffle.partitions"] == "2"
    assert here["spark.driver.host"] == "127.0.0.1"
    assert here["spark.pyspark.python"] == "/py"
    assert there["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"
    assert not {"spark.driver.host", "spark.pyspark.python", "spark.sql.shuffle.partitions", "spark.ui.enabled"} & set(
        there
    )


def test_the_user_wins() -> None:
    chosen = merged(defaults("local[2]", 2, "/py"), {"spark.ui.enabled": True, "spark.sql.shuffle.partitions": 5})
    assert chosen["spark.ui.enabled"] == "true"
    assert chosen["spark.sql.shuffle.partitions"] == "5"


def test_short_runs_have_the_quick_compiler() -> None:
    assert "TieredStopAtLevel=1" in java_options(True, [], [])
    assert "TieredStopAtLevel=1" not in java_options(False, [], [])


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "java" / "lib" / "server" / "classes.jsa").touch()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"', encoding="utf-8")
    return Java(tmp_path / "java", 17)


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark.jar").write_bytes(b"classes")
    return tmp_path / "jars"


def written_by(options: list[str]) -> Path:
    (option,) = options
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    return Path(option.partition("=")[2])


def test_the_archive_is_written_once_and_used_from_then_on(tmp_path: Path, java: Java, jars: Path) -> None:
    cache = tmp_path / "cache"
    first = written_by(archive_options(cache, java, jars, ()))
    second = written_by(archive_options(cache, java, jars, ()))
    assert first != second, "two sessions at once do not write one file"

    first.write_bytes(bytes(100))
    written_by(archive_options(cache, java, jars, ()))  # its header is still missing: not used

    first.write_bytes(b"\xa8\xba\x0b\xf0 classes")
    second.write_bytes(b"\xa8\xba\x0b\xf0 classes")
    auto, used = archive_options(cache, java, jars, ())
    assert auto == "-Xshare:auto"
    assert Path(used.partition("=")[2]).read_bytes().endswith(b"classes")
    assert [path.suffix for path in cache.iterdir()] == [".jsa"], "what a slower session wrote is cleared away"


def test_each_spark_java_and_collector_has_its_own_archive(tmp_path: Path, java: Java, jars: Path) -> None:
    cache = tmp_path / "cache"
    part = written_by(archive_options(cache, java, jars, ()))
    part.write_bytes(b"\xa8\xba\x0b\xf0")
    assert archive_options(cache, java, jars, ())[0] == "-Xshare:auto"
    written_by(archive_options(cache, java, jars, SHORT_RUN))
    (jars / "spark.jar").write_bytes(b"newer classes")
    written_by(archive_options(cache, java, jars, ()))


def test_what_was_never_completed_is_cleared_away(tmp_path: Path, java: Java, jars: Path) -> None:
    cache = tmp_path / "cache"
    part = written_by(archive_options(cache, java, jars, ()))
    part.write_bytes(bytes(10))
    os.utime(part, (1000, 1000))
    archive_options(cache, java, jars, (), FixedClock((1000 + 8 * 24 * 3600) * 1000))
    assert not part.exists()


def test_no_cache_no_archive_no_trouble(tmp_path: Path, java: Java, jars: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    assert archive_options(tmp_path / "cache", java, jars, ()) == []
    assert archive_options(tmp_path / "with space", java, jars, ()) == []
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert archive_options(tmp_path / "other", java, jars, ()) == []


def test_the_cache_is_where_the_user_has_it() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/tidelog/spark")
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/tidelog/spark"
