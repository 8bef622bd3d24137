"""Spark sessions with settings that suit pipelines: Java found or supplied, quick to start, quiet.

from tidelog.pipelines.session import build_session

spark = build_session()                          # on this machine
spark = build_session("spark://host:7077")       # on a cluster
"""

from __future__ import annotations

from tidelog.pipelines.session.errors import SessionError
from tidelog.pipelines.session.session import build_session

__all__ = ["SessionError", "build_session"]
