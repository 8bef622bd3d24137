"""Places of checkpoints that a pipeline does not keep in its own directory: which are on this machine. Pure."""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCAL: Final = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)
_SCHEME: Final = re.compile(r"[^/:]+:")
_DEFAULT_SYSTEM: Final = "spark.hadoop.fs.defaultFS"
_HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def address(place: str, conf: Mapping[str, object], environment: Mapping[str, str], beside: Path) -> str:
    """One that still says the same to whoever reads it later, from another directory: file:///... for a place on this
    machine. `beside` is where relative paths begin."""
    if _SCHEME.match(place):
        found = _LOCAL.fullmatch(place)
        return place if found is None else f"file://{os.path.normpath(found[1])}"
    # Where Hadoop is set up, a path without a scheme may be one of HDFS: only Hadoop knows.
    system = conf.get(_DEFAULT_SYSTEM)
    if any(environment.get(each) for each in _HADOOP) if system is None else not str(system).startswith("file:"):
        return place
    return f"file://{os.path.normpath(beside / place)}"


def local_path(address: str) -> Path | None:
    """None: it is not on this machine, or nobody knows."""
    found = _LOCAL.fullmatch(address)
    return None if found is None else Path(found[1])
