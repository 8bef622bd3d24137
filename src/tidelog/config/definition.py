"""What one configuration key is: its type, default, limits, and whether it can change while the broker runs.

The numbers of `ConfigType` and `ConfigSource` are those that DescribeConfigs puts on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = bool | int | float | str | tuple[str, ...] | None
"""A parsed value. Lists are tuples; None means that the key is not set and has no default."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigError(Exception):
    """The configuration cannot be used. `problems` holds every one of them, so that all are mended in one go."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Update(Enum):
    """How far a broker key can be changed without a restart."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    """For all brokers at once, or for one of them."""
    PER_BROKER = "per-broker"
    """For one broker only: an address or a key store means nothing to the others."""


Check = Callable[[Value], str | None]
"""Says what is wrong with a value of the right type, as `must be ...`, or None."""


def at_least(low: float) -> Check:
    return lambda value: None if _number(value) >= low else f"must be at least {low}"


def between(low: float, high: float) -> Check:
    return lambda value: None if low <= _number(value) <= high else f"must be between {low} and {high}"


def exactly_or(special: int, otherwise: Check) -> Check:
    """One special number, or else what `otherwise` allows: `-1, or at least 1`."""

    def check(value: Value) -> str | None:
        problem = None if value == special else otherwise(value)
        return problem and f"must be {special}, or {problem.removeprefix('must be ')}"

    return check


def one_of(*allowed: str) -> Check:
    """One of the named values; for a list, each element is, at least one is given, and none twice."""

    def check(value: Value) -> str | None:
        given = value if isinstance(value, tuple) else (value,)
        if not given or any(part not in allowed for part in given):
            return f"must be {'one or more' if isinstance(value, tuple) else 'one'} of {', '.join(allowed)}"
        return "names the same value twice" if len(set(given)) < len(given) else None

    return check


def not_empty(value: Value) -> str | None:
    return None if value else "must not be empty"


def _number(value: Value) -> float:
    assert isinstance(value, (int, float))
    return value


class Fallback(NamedTuple):
    """A coarser key that speaks when the finer one is not set: its value times `factor`."""

    name: str
    factor: int = 1


class Definition(NamedTuple):
    name: str
    type: ConfigType
    default: Value
    doc: str
    check: Check | None = None
    update: Update = Update.READ_ONLY
    fallbacks: tuple[Fallback, ...] = ()
    alone: Value = None
    """The default of a broker without `zookeeper.connect`, which has no other brokers, where it must differ."""
    broker_key: str | None = None
    """For a topic key: the broker key that gives the topics without their own value their value."""
    hidden: bool = False
    """Accepted, but not shown by DescribeConfigs."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that `text` stands for. Raises ValueError with a sentence that names the key."""
        try:
            value = _parse(self.type, text)
        except ValueError as error:
            raise ValueError(self._refusal(text, str(error))) from None
        problem = self.check(value) if self.check else None
        if problem:
            raise ValueError(self._refusal(text, problem))
        return value

    def _refusal(self, text: str, problem: str) -> str:
        shown = "[hidden]" if self.sensitive else repr(text)
        return f"Invalid value {shown} for configuration {self.name}: {problem}."


_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}\Z")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\Z")
_WHOLE_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def _parse(kind: ConfigType, text: str) -> Value:
    text = text.strip()
    if kind in _WHOLE_BITS:
        return _parse_whole(text, _WHOLE_BITS[kind])
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError("must be true or false")
        return lowered == "true"
    if kind is ConfigType.DOUBLE:
        if not _FLOAT.match(text):
            raise ValueError("must be a number such as 0.5")
        return float(text)
    if kind is ConfigType.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text


def _parse_whole(text: str, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not _DECIMAL.match(text):
        raise ValueError("must be a whole number")
    value = int(text)
    if not -limit <= value < limit:
        raise ValueError(f"must be a whole number of {bits} bits, from {-limit} to {limit - 1}")
    return value


def format_value(value: Value) -> str | None:
    """How DescribeConfigs writes a value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def close_matches(name: str, known: Sequence[str]) -> str:
    """A ` Did you mean ...?` to put behind a refusal, or nothing when no known name is near."""
    import difflib  # noqa: PLC0415 - only a mistake needs it, and every start would pay for it

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" Did you mean {near[0]}?" if near else ""
