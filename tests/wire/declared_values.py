"""Every declared message, and Hypothesis strategies for the values it can hold in one version."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import tidelog.wire.messages
import tidelog.wire.stored
from tidelog.wire.declare import Array, Field, Message, Scalar, Struct, WireType

if TYPE_CHECKING:
    from types import ModuleType

    from hypothesis.strategies import SearchStrategy

FEW_EXAMPLES = settings(
    # Some 570 versions share a minute, and a run must say the same everywhere; the search for the unexpected is fuzz/.
    max_examples=6,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def _declared_in(package: ModuleType) -> list[type[Message]]:
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
    ]


MESSAGES = [*_declared_in(tidelog.wire.messages), *_declared_in(tidelog.wire.stored)]
VERSIONED = [(cls, version) for cls in MESSAGES for version in cls.VERSIONS]


def versioned_id(case: object) -> str:
    """Names a parametrised case: the message's name, then the version."""
    return case.__name__ if isinstance(case, type) else f"v{case}"


class Narrowing(Protocol):
    """What another implementation cannot represent, field by field."""

    def scalar(self, field: Field) -> SearchStrategy[Any] | None:
        """The values it can, where they are fewer than ours."""

    def nested(self, field: Field) -> Narrowing:
        """The same for the fields of a struct, or of a list's structs."""


class Anything:
    """Narrows nothing."""

    def scalar(self, _field: Field) -> None:
        return None

    def nested(self, _field: Field) -> Anything:
        return self


_INTEGERS = {Scalar.INT8: 8, Scalar.INT16: 16, Scalar.INT32: 32, Scalar.INT64: 64}

# From 127 bytes on a compact length takes two bytes.
_TEXT = st.text(max_size=5) | st.integers(60, 140).map("ø".__mul__)
_BINARY = st.binary(max_size=6) | st.integers(120, 300).map(b"\xff".__mul__)


@cache
def _scalars(scalar: Scalar) -> SearchStrategy[Any]:
    if scalar in _INTEGERS:
        bits = _INTEGERS[scalar]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    strategies: dict[Scalar, SearchStrategy[Any]] = {
        Scalar.UINT16: st.integers(0, 2**16 - 1),
        Scalar.FLOAT64: st.floats(allow_nan=False),
        Scalar.BOOL: st.booleans(),
        Scalar.UUID: st.binary(min_size=16, max_size=16),
        Scalar.STRING: _TEXT,
        Scalar.BYTES: _BINARY,
        Scalar.RECORDS: _BINARY,
    }
    return strategies[scalar]


def instances(cls: type[Struct], version: int, narrowing: Narrowing | None = None) -> SearchStrategy[Any]:
    """Values that `version` can carry: fields it does not have keep their defaults."""
    limits = narrowing or Anything()
    present = [field for field in cls.FIELDS if version in field.placement.versions]
    names = [field.name for field in present]

    def build(values: tuple[Any, ...]) -> Struct:
        return cls(**dict(zip(names, values, strict=True)))

    return st.tuples(*(_field_values(field, version, limits) for field in present)).map(build)


def _field_values(field: Field, version: int, narrowing: Narrowing) -> SearchStrategy[Any]:
    values = _typed_values(field.type, field, version, narrowing)
    if version in field.placement.nullable:
        values = st.none() | values
    if version in field.placement.tagged:  # left out on the wire
        values = st.builds(field.fresh_default) | values
    return values


def _typed_values(wire_type: WireType, field: Field, version: int, narrowing: Narrowing) -> SearchStrategy[Any]:
    match wire_type:
        case Array(item):
            return st.lists(_typed_values(item, field, version, narrowing), max_size=2)
        case Scalar():
            narrowed = narrowing.scalar(field)
            return _scalars(wire_type) if narrowed is None else narrowed
        case struct:
            return instances(struct, version, narrowing.nested(field))


def filled(cls: type[Struct], version: int) -> Any:
    """An instance with something in every list and every tag, so that its encoding has every part."""
    present = [field for field in cls.FIELDS if version in field.placement.versions]
    return cls(**{field.name: unlike_default(field, version) for field in present})


def unlike_default(field: Field, version: int) -> Any:
    """A value that a tag section or an older version would have to notice."""
    value = not field.default if field.type is Scalar.BOOL else _some(field.type, version)
    assert value != field.fresh_default()
    return value


_SOME: dict[Scalar, Any] = {
    Scalar.FLOAT64: 1.5,
    Scalar.BOOL: True,
    Scalar.UUID: b"\x0d" * 16,
    Scalar.STRING: "tide",
    Scalar.BYTES: b"log",
    Scalar.RECORDS: b"log",
}


def _some(wire_type: WireType, version: int) -> Any:
    match wire_type:
        case Array(item):
            return [_some(item, version)]
        case Scalar():
            return _SOME.get(wire_type, 13)
        case struct:
            return filled(struct, version)
