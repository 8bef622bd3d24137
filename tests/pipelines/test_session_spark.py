"""A real session, started as a user's script starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tidelog.testing import eventually

SCRIPT = """
    import os, sys, tempfile
    from pathlib import Path
    from tidelog.pipelines.session import build_session

    home = os.environ.get("JAVA_HOME")
    spark = build_session(conf={"spark.sql.shuffle.partitions": 3}, short_run=True)
    assert os.environ.get("JAVA_HOME") == home
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.master") == "local[*,4]", conf.get("spark.master")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert "TieredStopAtLevel=1" in conf.get("spark.driver.defaultJavaOptions")
    assert build_session() is spark

    def workers(batches):
        for batch in batches:
            import pyarrow
            started_as = Path("/proc/self/cmdline").read_bytes().split(bytes(1))
            forked = b"tidelog.pipelines.session.nursery" in started_as
            yield pyarrow.RecordBatch.from_pylist([{"python": sys.executable, "forked": forked}])

    found = spark.range(4).mapInArrow(workers, "python string, forked boolean").collect()
    assert set(map(tuple, found)) == {(sys.executable, True)}, found

    attempts = tempfile.mkdtemp()

    def fails_once(rows):
        rows = list(rows)
        path = Path(attempts, str(rows))
        if not path.exists():
            path.touch()
            raise ValueError("the first attempt")
        return rows

    assert sorted(spark.sparkContext.parallelize(range(4), 2).mapPartitions(fails_once).collect()) == [0, 1, 2, 3]
    spark.stop()
    print("done")
"""


def test_a_session_is_tuned_retries_tasks_and_says_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", ""), ran.stderr


def test_nothing_is_left_of_a_start_that_is_interrupted() -> None:
    code = "from tidelog.pipelines.session import build_session; build_session(short_run=True)"
    starting = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True)
    with starting:
        eventually(lambda: any(b"java" in each for each in commands_of(starting.pid)), "Java", within_s=60)
        starting.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in starting.communicate(timeout=60)[1]
    eventually(lambda: not commands_of(starting.pid), "the end of Java", within_s=60)


def commands_of(group: int) -> list[bytes]:
    """What runs in a group of processes."""
    found: list[bytes] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                found.append((process / "cmdline").read_bytes())
    return [command for command in found if command]
