"""Why a record is malformed, in words. Only asked for those that are, so that it may take its time. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

_WHOLE: Final = {"byte", "short", "integer", "long"}
_REAL: Final = {"float", "double"}
_SHOWN_CHARS: Final = 60


def json_fault(data: bytes | None, schema: dict[str, Any]) -> str:
    """`schema` is Spark's, as JSON."""
    if data is None:
        return "there is no value"
    try:
        value = json.loads(data.decode())
    except UnicodeDecodeError as error:
        return f"it is not UTF-8: {error.reason} at byte {error.start}"
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        return f"it is not JSON: {what} at character {error.pos}" if data.strip() else "it is empty, not JSON"
    except RecursionError:
        return "it is nested too deeply"
    if not isinstance(value, dict):
        return f"it is {_named(value)}, not an object"
    # Which times Spark takes, only Spark knows: one that looks odd is to blame when nothing else is.
    for times in (False, True):
        fault = _fault(value, schema, "", times)
        if fault is not None:
            return fault
    return "it does not fit the schema"


def _fault(value: dict[str, Any], schema: dict[str, Any], inside: str, times: bool) -> str | None:
    for field in schema.get("fields", ()):
        given = value.get(field["name"])
        found = None if given is None else _misfit(given, field["type"], f"{inside}{field['name']}", times)
        if found is not None:
            return found
    return None


def _misfit(given: Any, kind: Any, where: str, times: bool) -> str | None:
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            return (
                _fault(given, kind, f"{where}.", times) if isinstance(given, dict) else _says(where, given, "an object")
            )
        if kind["type"] == "array":
            if not isinstance(given, list):
                return _says(where, given, "a list")
            return next(
                (
                    fault
                    for at, each in enumerate(given)
                    if each is not None and (fault := _misfit(each, kind["elementType"], f"{where}[{at}]", times))
                ),
                None,
            )
        return None if isinstance(given, dict) else _says(where, given, "an object")
    if kind in _WHOLE:
        return None if isinstance(given, int) and not isinstance(given, bool) else _says(where, given, f"a {kind}")
    if kind in _REAL or kind.startswith("decimal"):
        return (
            None if isinstance(given, int | float) and not isinstance(given, bool) else _says(where, given, f"a {kind}")
        )
    if kind == "boolean":
        return None if isinstance(given, bool) else _says(where, given, "a boolean")
    if kind in {"timestamp", "timestamp_ntz", "date"}:
        return _says(where, given, f"a {kind}") if times and not _looks_like_time(given) else None
    return None


def _looks_like_time(given: Any) -> bool:
    try:
        datetime.fromisoformat(given)
    except (TypeError, ValueError):
        return False
    return True


def _says(where: str, given: Any, wanted: str) -> str:
    shown = json.dumps(given, ensure_ascii=False)
    return f"field {where} is {shown if len(shown) <= _SHOWN_CHARS else f'{shown[:_SHOWN_CHARS]}...'}, not {wanted}"


def _named(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
