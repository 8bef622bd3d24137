"""The Python that Spark starts for its workers, quicker to start than Spark would have it.

Spark puts PySpark in front of the path once more, as an archive of sources: what a worker loads of it is compiled anew
in each process, which takes most of a second. So Python is started through a shim that leaves the archive out. The
installed PySpark, from which Spark itself was started, is the same, and compiled. Where a session has a nursery, the
shim asks for a child of it instead.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path
from typing import Final

from tidelog.pipelines.session.java import replace_file

NURSERY: Final = "TIDELOG_PYTHON_NURSERY"
"""Names the session's nursery to the shims that Spark starts."""

_ASKING: Final = Path(__file__).with_name("from_nursery.py")
_ARCHIVES: Final = "*/python/lib/pyspark.zip|*/python/lib/py4j-*-src.zip"


def python_shim(python: str, cache: Path, spark_home: Path) -> str:
    """`python` itself where Spark is not the installed PySpark, or the shim cannot be written."""
    import pyspark  # noqa: PLC0415 - it is known by now that it is there

    if Path(pyspark.__file__).resolve().parent != spark_home.resolve():
        return python
    program = cache / f"python-{hashlib.sha256(os.fsencode(python)).hexdigest()[:16]}"
    text = shim_script(python)
    try:
        if not program.exists() or program.read_text(encoding="utf-8") != text:
            cache.mkdir(parents=True, exist_ok=True)
            replace_file(program, text)
    except OSError:
        return python
    return str(program)


def shim_script(python: str) -> str:
    return (
        "#!/bin/sh\n"
        "set -f\n"
        "kept=\n"
        "IFS=:\n"
        "for path in $PYTHONPATH; do\n"
        f"  case $path in {_ARCHIVES}) ;; *) kept=${{kept:+$kept:}}$path ;; esac\n"
        "done\n"
        "unset IFS\n"
        "export PYTHONPATH=$kept\n"
        f'[ -n "${NURSERY}" ] && exec {shlex.quote(python)} -IS {shlex.quote(str(_ASKING))} "${NURSERY}" "$@"\n'
        f'exec {shlex.quote(python)} "$@"\n'
    )
