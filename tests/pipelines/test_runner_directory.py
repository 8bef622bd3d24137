"""What a pipeline keeps on disk, who may use it, and how long."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.pipelines import PipelineError
from tidelog.pipelines.runner.checkpoint_places import address, local_path
from tidelog.pipelines.runner.directory import PipelineDirectory, default_root, known_pipelines

HOLDING = """
import sys
from pathlib import Path
from tidelog.pipelines.runner.checkpoint_places import address, local_path
from tidelog.pipelines.runner.directory import PipelineDirectory
with PipelineDirectory(Path(sys.argv[1]), "sales").locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path, "sales")
    assert directory.runner_pid() is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert directory.runner_pid() == holder.pid
        with pytest.raises(PipelineError, match=f"runs already, in process {holder.pid}"), directory.locked():
            pass
        holder.kill()
    assert directory.runner_pid() is None
    with directory.locked():
        assert directory.runner_pid() == os.getpid()
    assert directory.runner_pid() is None


def test_two_directories_do_not_share_checkpoints(tmp_path: Path) -> None:
    one, other = (PipelineDirectory(tmp_path / root, "sales") for root in ("one", "other"))
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    shared = [tmp_path / "shared" / "sales" / query for query in ("a", "b")]
    with one.locked(), one.locked_elsewhere(shared):
        with (
            pytest.raises(PipelineError, match=f"sales runs already, in process {os.getpid()}"),
            other.locked(),
            other.locked_elsewhere([tmp_path / "link" / "sales" / "c"]),
        ):
            pass
        namesake = PipelineDirectory(tmp_path / "other", "returns")
        with namesake.locked(), namesake.locked_elsewhere([tmp_path / "shared" / "returns" / "a"]):
            pass
    with other.locked(), other.locked_elsewhere(shared):
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(PipelineError, match="set `checkpoint` to another place"),
        one.locked_elsewhere([tmp_path / "file" / "sales" / "a"]),
    ):
        pass


def test_two_files_do_not_share_a_name(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.touch()
    other.touch()
    directory = PipelineDirectory(tmp_path / "root", "sales")
    with directory.locked():
        directory.claim(one)
        directory.claim(one)
        with pytest.raises(PipelineError, match="give this one another name"):
            directory.claim(other)
        one.unlink()
        directory.claim(other)  # the file was moved
    assert directory.file() == str(other)
    assert [each.name for each in known_pipelines(tmp_path / "root")] == ["sales"]


def test_forgetting_leaves_nothing_but_the_lock(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path, "sales")
    with directory.locked():
        directory.claim(tmp_path / "sales.py")
        directory.save_status({"queries": []})
        directory.save_schemas({"a": 1})
        Path(directory.checkpoint("q", None)).mkdir(parents=True)
        assert directory.schemas() == {"a": 1}
        directory.forget()
        assert sorted(path.name for path in directory.path.iterdir()) == ["lock"]
    assert (directory.exists(), directory.status(), directory.schemas()) == (False, {}, {})


def test_checkpoints_may_be_elsewhere(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path, "sales")
    assert directory.checkpoint("q", None) == str(tmp_path / "sales" / "checkpoints" / "q")
    assert directory.checkpoint("q", "hdfs://host/x/") == "hdfs://host/x/sales/q"


@pytest.mark.parametrize(
    ("place", "conf", "environment", "known_as"),
    [
        ("/c/q", {}, {}, "file:///c/q"),
        ("c/q", {}, {}, "file:///here/c/q"),
        ("../c//q", {}, {}, "file:///c/q"),
        ("file:/c/q", {}, {}, "file:///c/q"),
        ("file:///c/a b%20/q", {}, {}, "file:///c/a b%20/q"),  # Hadoop takes it as it is
        ("file://host/c/q", {}, {}, None),
        ("hdfs://host/c/q", {}, {}, None),
        ("s3a://bucket/c/q", {}, {}, None),
        ("/c/q", {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, None),
        ("file:///c/q", {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, "file:///c/q"),
        ("/c/q", {"spark.hadoop.fs.defaultFS": "hdfs://host"}, {}, None),
        ("/c/q", {"spark.hadoop.fs.defaultFS": "file:///"}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, "file:///c/q"),
    ],
)
def test_which_places_are_on_this_machine(
    place: str, conf: dict[str, object], environment: dict[str, str], known_as: str | None
) -> None:
    found = address(place, conf, environment, Path("/here"))
    assert found == (known_as or place)
    assert local_path(found) == (None if known_as is None else Path(known_as.removeprefix("file://")))


def test_forgetting_reaches_checkpoints_elsewhere_and_nothing_beside_them(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path / "root", "sales")
    old, new, never, output = (tmp_path / each for each in ("old/sales/q", "new/sales/q", "new/sales/n", "new/sales/o"))
    for each in (old, new, output):
        each.mkdir(parents=True)
        (each / "metadata").touch()
    with directory.locked():
        directory.claim(tmp_path / "sales.py", [f"file://{old}"])
        directory.claim(tmp_path / "sales.py", [f"file://{new}", f"file://{never}"])
        assert directory.checkpoints_elsewhere() == [old, new, never]
        directory.forget()
        assert directory.checkpoints_elsewhere() == []
    assert [each.exists() for each in (old, new, output)] == [False, False, True]


def test_nothing_is_forgotten_while_some_of_it_is_out_of_reach(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path / "root", "sales")
    near = tmp_path / "sales" / "q"
    near.mkdir(parents=True)
    with directory.locked():
        directory.claim(tmp_path / "sales.py", [f"file://{near}", "hdfs://host/x/sales/q"])
        with pytest.raises(PipelineError, match=rf"delete hdfs://host/x/sales/q yourself, and then {directory.path}"):
            directory.forget()
    assert near.exists()
    assert directory.exists()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    directory = PipelineDirectory(tmp_path, "sales")
    directory.path.mkdir()
    (directory.path / "status.json").write_text("{", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"status\.json cannot be read"):
        directory.status()


def test_a_full_disk_is_told_and_leaves_what_there_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = PipelineDirectory(tmp_path, "sales")
    directory.path.mkdir()
    directory.save_status({"queries": []})

    def full(*_arguments: object, **_keywords: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(PipelineError, match=r"status\.json cannot be written \(No space left on device\)"):
        directory.save_status({"queries": [1]})
    assert directory.status() == {"queries": []}
    assert [path.name for path in directory.path.iterdir()] == ["status.json"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(PipelineError, match="name another with --dir"),
        PipelineDirectory(tmp_path / "file", "sales").locked(),
    ):
        pass


def test_the_root_is_where_the_user_has_state() -> None:
    assert default_root({"XDG_STATE_HOME": "/s"}) == Path("/s/tidelog/pipelines")
    assert default_root({}) == Path.home() / ".local/state/tidelog/pipelines"
    assert known_pipelines(Path("/no/such/place")) == []
