"""Text and JSON. orjson writes and reads the latter where it is installed (the `fast` extra), else Python's own module.

What JSON has, both write to the same bytes; orjson also knows dates and dataclasses.
"""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_fast: Any = import_module("orjson") if find_spec("orjson") else None


def to_text(value: str) -> bytes:
    return value.encode()


def from_text(data: bytes) -> str:
    return data.decode()


def to_json(value: Any) -> bytes:
    """Compact UTF-8."""
    if _fast is not None:
        written: bytes = _fast.dumps(value)
        return written
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def from_json(data: bytes) -> Any:
    return json.loads(data) if _fast is None else _fast.loads(data)
