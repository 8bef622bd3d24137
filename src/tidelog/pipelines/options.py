"""Options as Spark hands them over, for source and sink alike: names in any case, values as text.

What is wrong is said at once and in one line (OptionError): an unknown name with the nearest one that exists, a value
that makes no sense with what is expected, `kafka.*` settings that the client does not have. No I/O.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.config import ClientConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

C = TypeVar("C", bound=ClientConfig)

KAFKA_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"

_TRUTH: Final = {"true": True, "false": False}
_WITH_UNIT: Final = re.compile(r"(?P<number>\d+)\s*(?P<unit>[a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_UNITS_BYTES: Final = {"": 1, "b": 1, "k": _KIB, "kb": _KIB, "m": _MIB, "mb": _MIB, "g": _GIB, "gb": _GIB}
_SECURITY_NAMES: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.mechanisms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""Other names for settings that the client has."""


class OptionError(ValueError):
    """An option that cannot be meant. The message is one line, and says what to do."""


class Options:
    """The options of one source or sink.

    `known` are the names it has, as its documentation spells them; `senseless` those that others have and this one
    cannot, with the reason; `ignored` those that Spark adds by itself.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        known: Collection[str],
        senseless: Mapping[str, str] | None = None,
        ignored: Collection[str] = (),
    ) -> None:
        self._spelled = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        self.kafka: dict[str, str] = {}
        """The `kafka.*` options, without the prefix."""
        reasons = {name.lower(): (name, why) for name, why in (senseless or {}).items()}
        skipped = {name.lower() for name in ignored}
        for name, value in given.items():
            key = name.lower()
            if key in reasons:
                raise OptionError(f"option {reasons[key][0]} makes no sense here: {reasons[key][1]}")
            if key.startswith(KAFKA_PREFIX):
                self.kafka[key.removeprefix(KAFKA_PREFIX)] = value
            elif key in self._spelled:
                self._given[key] = value
            elif key not in skipped:
                raise OptionError(self._unknown(name))
        if not self.kafka.get("bootstrap.servers", "").strip():
            raise OptionError(f"option {BOOTSTRAP} is missing: name brokers to begin with, such as localhost:9092")

    def _unknown(self, name: str) -> str:
        if f"{KAFKA_PREFIX}{name.lower()}" in {BOOTSTRAP, "kafka.group.id"}:
            return f"there is no option {name}: write {KAFKA_PREFIX}{name.lower()}"
        near = difflib.get_close_matches(name.lower(), [*self._spelled, BOOTSTRAP], n=1, cutoff=0.6)
        hint = f"did you mean {self._spelled.get(near[0], near[0])}?" if near else f"there are {', '.join(self.names)}"
        return f"there is no option {name}: {hint}"

    @property
    def names(self) -> list[str]:
        return sorted([*self._spelled.values(), "kafka.*"])

    def __contains__(self, name: str) -> bool:
        return self._key(name) in self._given

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(self._key(name), default)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of `choices`, in whatever case it was written."""
        text = self.text(name)
        if text is None:
            return default
        for choice in choices:
            if choice.lower() == text.strip().lower():
                return choice
        raise OptionError(f"option {name} is {' or '.join(choices)}, not {text!r}")

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _TRUTH:
            raise OptionError(f"option {name} is true or false, not {text!r}")
        return _TRUTH[text.strip().lower()]

    def number(self, name: str, *, at_least: int = 1) -> int | None:
        """None when it is not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise OptionError(f"option {name} is a whole number of at least {at_least}, not {text!r}")
        return number

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Milliseconds, or a number with its unit, such as 15m."""
        text = self.text(name)
        return default_ms if text is None else _with_unit(name, text, _UNITS_MS, "a time such as 15m")

    def size_bytes(self, name: str) -> int | None:
        """Bytes, or a number with its unit, such as 64m; None when it is not given."""
        text = self.text(name)
        if text is None:
            return None
        size = _with_unit(name, text, _UNITS_BYTES, "a size such as 64m")
        if size < 1:
            raise OptionError(f"option {name} is a size such as 64m, not {text!r}")
        return size

    def client(
        self, kind: type[C], *, defaults: Mapping[str, str] | None = None, refused: Mapping[str, str] | None = None
    ) -> C:
        """The client's settings out of `kafka.*`; `refused` are those that are not the user's to choose, and why."""
        for name, why in (refused or {}).items():
            if name in self.kafka:
                raise OptionError(f"option {KAFKA_PREFIX}{name} cannot be set: {why}")
        known = known_settings(kind)
        for name in self.kafka:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f"did you mean {KAFKA_PREFIX}{near[0]}?" if near else "the client has no such setting"
                raise OptionError(f"there is no option {KAFKA_PREFIX}{name}: {hint}")
        try:
            return kind.from_kafka({**(defaults or {}), **self.kafka})
        except ValueError as error:
            raise OptionError(f"option {KAFKA_PREFIX}*: {error}") from error

    def _key(self, name: str) -> str:
        key = name.lower()
        assert key in self._spelled, f"{name} is not among the known options"
        return key


def known_settings(kind: type[ClientConfig]) -> frozenset[str]:
    """The settings that a kind of client has, by Kafka's names."""
    return _SECURITY_NAMES | {field.name.replace("_", ".") for field in fields(kind)}


def _with_unit(name: str, text: str, units: Mapping[str, int], example: str) -> int:
    match = _WITH_UNIT.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in units:
        raise OptionError(f"option {name} is {example}, not {text!r}")
    return int(match["number"]) * units[match["unit"]]
