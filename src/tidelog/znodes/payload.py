"""Reading JSON that others may have written: every field is checked, and a wrong one is named with its node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidelog.znodes.errors import NodeFormatError

if TYPE_CHECKING:
    from collections.abc import Collection


def encode_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Payload:
    """The JSON object of one node. Fields that it does not ask for are ignored, so newer writers do no harm."""

    def __init__(self, node: str, data: bytes, versions: Collection[int] | None = None) -> None:
        """`node` is its path, or what else names it. `versions` are those this reader understands."""
        self.node = node
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NodeFormatError(f"{node} does not hold JSON: {error}") from None
        if not isinstance(fields, dict):
            raise NodeFormatError(f"{node} holds a JSON {type(fields).__name__} instead of an object")
        self._fields: dict[str, Any] = fields
        if versions is not None and self.integer("version") not in versions:
            raise NodeFormatError(
                f"{node} has version {self.integer('version')} of its format; this broker reads "
                f"{', '.join(map(str, sorted(versions)))}"
            )

    def has(self, field: str) -> bool:
        return self._fields.get(field) is not None

    def integer(self, field: str, default: int | None = None) -> int:
        """A whole number. Kafka writes some of them as text, so both are taken."""
        value = self._field(field, default)
        if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(field, "a whole number", value)
        return value

    def text(self, field: str, default: str | None = None) -> str:
        value = self._field(field, default)
        if not isinstance(value, str):
            raise self._wrong(field, "text", value)
        return value

    def integers(self, field: str) -> tuple[int, ...]:
        return self._integers(field, self._field(field, None))

    def texts(self, field: str) -> tuple[str, ...]:
        value = self._field(field, None)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self._wrong(field, "a list of texts", value)
        return tuple(value)

    def text_map(self, field: str) -> dict[str, str]:
        value = self._field(field, None)
        if not isinstance(value, dict) or not all(isinstance(part, str) for part in value.values()):
            raise self._wrong(field, "an object of texts", value)
        return value

    def keys(self, field: str) -> tuple[str, ...]:
        """The names in an object, whatever they stand for."""
        value = self._field(field, None)
        if not isinstance(value, dict):
            raise self._wrong(field, "an object", value)
        return tuple(value)

    def integer_lists(self, field: str, default: dict[str, list[int]] | None = None) -> dict[int, tuple[int, ...]]:
        """An object whose keys are numbers and whose values are lists of numbers."""
        value = self._field(field, default)
        if not isinstance(value, dict) or not all(key.isdecimal() and len(key) <= 10 for key in value):
            raise self._wrong(field, "an object with numbers as keys", value)
        return {int(key): self._integers(field, part) for key, part in value.items()}

    def _integers(self, field: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(isinstance(part, int) for part in value):
            raise self._wrong(field, "a list of whole numbers", value)
        return tuple(value)

    def _field(self, field: str, default: Any) -> Any:
        value = self._fields.get(field)
        if value is None:
            if default is None:
                raise NodeFormatError(f"{self.node} has no field {field!r}")
            return default
        return value

    def _wrong(self, field: str, expected: str, value: Any) -> NodeFormatError:
        return NodeFormatError(f"{self.node}: field {field!r} must be {expected}, not {str(value)[:80]!r}")
