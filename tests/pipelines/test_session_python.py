"""The Python of Spark's workers: without the archive that each would compile, and with modules loaded in advance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tidelog.pipelines.session.python import python_shim

SPARK_HOME = Path(pyspark.__file__).parent


def test_the_shim_leaves_out_the_archives_and_keeps_the_rest(tmp_path: Path) -> None:
    lib = SPARK_HOME / "python" / "lib"
    archives = [str(lib / "pyspark.zip"), str(next(lib.glob("py4j-*-src.zip")))]
    shim = python_shim(sys.executable, tmp_path / "cache", SPARK_HOME)
    assert shim != sys.executable
    ran = subprocess.run(
        [
            shim,
            "-c",
            "import os, pyspark, sys; print(os.environ['PYTHONPATH'], pyspark.__file__, *sys.argv[1:])",
            "a b",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*archives, "/one*", "/two three"])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"/one*:/two three {pyspark.__file__} a b\n"


def test_another_spark_keeps_its_own_archives(tmp_path: Path) -> None:
    assert python_shim(sys.executable, tmp_path, tmp_path / "spark") == sys.executable


def test_where_it_cannot_be_written_python_is_started_itself(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert python_shim(sys.executable, tmp_path / "cache", SPARK_HOME) == sys.executable


def test_what_is_loaded_before_workers_are_forked_starts_no_threads() -> None:
    code = """
import os, sys
from tidelog.pipelines.session.worker_daemon import PRELOADED, preload
preload()
print(len(os.listdir("/proc/self/task")), *(name for name in PRELOADED if name not in sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n", "threads do not survive a fork, and everything is to be loaded"
