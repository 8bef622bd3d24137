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


def test_workers_forked_after_everything_is_loaded_can_compute() -> None:
    """Of those forked while the parent computes too: nothing that another thread of it held may stay held in them."""
    code = """
import os, sys, threading
from tidelog.pipelines.session.worker_daemon import PRELOADED, preload

def computed():
    import numpy, pyarrow, pyarrow.compute
    table = pyarrow.table({"key": list(range(50_000)) * 2, "value": [b"v" * 20] * 100_000})
    grouped = table.group_by("key", use_threads=True).aggregate([("value", "count")])
    numbers = numpy.ones((300, 300))
    return grouped.num_rows + (numbers @ numbers)[0, 0] + pyarrow.compute.sum(grouped["value_count"]).as_py()

preload()
print(threading.active_count(), *(name for name in PRELOADED if name not in sys.modules))
sys.stdout.flush()
expected = 50_000 + 300 + 100_000
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if computed() == expected else 1)
    assert computed() == expected
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert ran.stdout == "1\n" + "0\n" * 5
