"""Data pipelines on Spark, through PySpark: a source and a sink for topics, and a runner for pipelines made of them.

    from tidelog.pipelines import json, read, view, write

    orders = read.topic("orders", value=json("id long, product string, amount double"))

    @write.topic("large-orders", key="product")
    def large(orders):
        return orders.where("amount > 100")

`tidelog pipeline run FILE` runs it. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.pipelines.definition.errors import PipelineError
    from tidelog.pipelines.definition.formats import avro, binary, json, protobuf, text
    from tidelog.pipelines.definition.settings import Settings
    from tidelog.pipelines.definition.sinks import write
    from tidelog.pipelines.definition.sources import read
    from tidelog.pipelines.definition.views import view
    from tidelog.pipelines.session import SessionError, build_session

_HOMES = {
    "PipelineError": "tidelog.pipelines.definition.errors",
    "SessionError": "tidelog.pipelines.session",
    "Settings": "tidelog.pipelines.definition.settings",
    "avro": "tidelog.pipelines.definition.formats",
    "binary": "tidelog.pipelines.definition.formats",
    "build_session": "tidelog.pipelines.session",
    "json": "tidelog.pipelines.definition.formats",
    "protobuf": "tidelog.pipelines.definition.formats",
    "read": "tidelog.pipelines.definition.sources",
    "text": "tidelog.pipelines.definition.formats",
    "view": "tidelog.pipelines.definition.views",
    "write": "tidelog.pipelines.definition.sinks",
}

__all__ = [
    "PipelineError",
    "SessionError",
    "Settings",
    "avro",
    "binary",
    "build_session",
    "json",
    "protobuf",
    "read",
    "text",
    "view",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
