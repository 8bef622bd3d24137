"""From the explicit properties of a broker, in their layers, to one checked value per key. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.config.definition import ConfigError, ConfigSource, close_matches
from tidelog.config.keys import BROKER_KEYS
from tidelog.config.keys.unused import REPLACED_KEYS, UNUSED_KEYS, UNUSED_PREFIXES
from tidelog.config.listeners import ListenerSet, parse_listeners

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.config.definition import Definition, Value

_NOTHING: Mapping[str, str] = MappingProxyType({})
_LISTENER_PREFIX = "listener.name."


class Layers(NamedTuple):
    """The explicit properties of a broker, by where they were set."""

    static: Mapping[str, str] = _NOTHING
    dynamic_default: Mapping[str, str] = _NOTHING
    dynamic_broker: Mapping[str, str] = _NOTHING

    def merged(self) -> dict[str, str]:
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}

    def settings_of(self, name: str) -> Iterator[tuple[ConfigSource, str]]:
        """Where `name` is set and to what, the one that counts first."""
        for source, layer in (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.static),
        ):
            if name in layer:
                yield source, layer[name]


class Reading(NamedTuple):
    values: Mapping[str, Value]
    """The effective value of every broker key."""
    endpoints: ListenerSet
    warnings: tuple[str, ...]
    listener_overrides: Mapping[tuple[str, str], Value]


def read_layers(layers: Layers) -> Reading:
    """What the layers together mean. Raises ConfigError with every problem there is."""
    given = layers.merged()
    problems: list[str] = []
    parsed: dict[str, Value] = {}
    for name, definition in BROKER_KEYS.items():
        if name in given:
            try:
                parsed[name] = definition.parse(given[name])
            except ValueError as error:
                problems.append(str(error))
    overrides = _parse_listener_overrides(given, problems)
    alone = not parsed.get("zookeeper.connect")
    values = {name: _effective(definition, parsed, alone=alone) for name, definition in BROKER_KEYS.items()}
    if "node.id" in parsed:
        problems += _id_conflict(parsed)
        values["broker.id"] = values["node.id"]
    endpoints = _parse_endpoints(values, problems)
    problems += _disagreements(values, alone=alone)
    if problems:
        raise ConfigError(problems)
    return Reading(
        values=values,
        endpoints=endpoints,
        warnings=(*_unknown_keys(given), *endpoints.warnings),
        listener_overrides=overrides,
    )


def _effective(definition: Definition, parsed: Mapping[str, Value], *, alone: bool) -> Value:
    """The key's own value, else the first of its coarser keys that is set, else the default."""
    if definition.name in parsed:
        return parsed[definition.name]
    for fallback in definition.fallbacks:
        if fallback.name in parsed:
            return _scaled(parsed[fallback.name], fallback.factor)
    if definition.fallbacks:
        last = definition.fallbacks[-1]
        return _scaled(BROKER_KEYS[last.name].default, last.factor)
    return definition.alone if alone and definition.alone is not None else definition.default


def _scaled(value: Value, factor: int) -> Value:
    """-1 is "no limit" in every unit."""
    return value * factor if isinstance(value, int) and value > 0 else value


def _id_conflict(parsed: Mapping[str, Value]) -> list[str]:
    if parsed.get("broker.id", parsed["node.id"]) == parsed["node.id"]:
        return []
    return [f"node.id={parsed['node.id']} and broker.id={parsed['broker.id']} differ. They are one number: set one."]


def _parse_endpoints(values: Mapping[str, Any], problems: list[str]) -> ListenerSet:
    try:
        return parse_listeners(
            values["listeners"],
            advertised=values["advertised.listeners"],
            protocol_map=values["listener.security.protocol.map"],
            inter_broker_name=values["inter.broker.listener.name"],
            inter_broker_protocol=values["security.inter.broker.protocol"],
            controller_names=values["controller.listener.names"],
        )
    except ConfigError as error:
        problems += error.problems
        return ListenerSet((), (), "")


def _disagreements(values: Mapping[str, Any], *, alone: bool) -> list[str]:
    """What is wrong between keys that are each right."""
    problems = []
    for low, high in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
        ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
        ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
        ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
        ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        if values[low] > values[high]:
            problems.append(f"{low}={values[low]} must not be greater than {high}={values[high]}.")
    if len(set(values["log.dirs"])) < len(values["log.dirs"]) or "" in values["log.dirs"]:
        problems.append(f"log.dirs={','.join(values['log.dirs'])} must name each directory once.")
    if values["broker.id"] == -1 and (alone or not values["broker.id.generation.enable"]):
        problems.append("broker.id=-1 needs zookeeper.connect and broker.id.generation.enable=true. Set a number.")
    if alone:
        problems += [
            f"{key}={values[key]} needs other brokers, and a broker without zookeeper.connect has none. Set it to 1, "
            "or set zookeeper.connect."
            for key in _REPLICA_COUNTS
            if values[key] > 1
        ]
    return problems


_REPLICA_COUNTS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


def split_listener_key(name: str) -> tuple[str, str] | None:
    """`listener.name.internal.ssl.client.auth` is ssl.client.auth of the listener INTERNAL. A SASL mechanism may stand
    between the two, and stays part of the listener's side, as in `listener.name.internal.plain.sasl.jaas.config`."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    listener, _, key = name.removeprefix(_LISTENER_PREFIX).partition(".")
    mechanism, _, rest = key.partition(".")
    if rest == "sasl.jaas.config":
        return f"{listener.upper()}.{mechanism.upper()}", rest
    return listener.upper(), key


def _parse_listener_overrides(given: Mapping[str, str], problems: list[str]) -> Mapping[tuple[str, str], Value]:
    overrides: dict[tuple[str, str], Value] = {}
    for name, text in given.items():
        listener_key = split_listener_key(name)
        if listener_key and listener_key[1] in BROKER_KEYS:
            try:
                overrides[listener_key] = BROKER_KEYS[listener_key[1]].parse(text)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    return MappingProxyType(overrides)


def _unknown_keys(given: Mapping[str, str]) -> list[str]:
    warnings = []
    unused = []
    for name in given:
        listener_key = split_listener_key(name)
        if name in BROKER_KEYS or (listener_key and listener_key[1] in BROKER_KEYS):
            continue
        if name in REPLACED_KEYS:
            warnings.append(f"{name} is no longer a key. Use {REPLACED_KEYS[name]}.")
        elif name in UNUSED_KEYS or name.startswith(UNUSED_PREFIXES):
            unused.append(name)
        else:
            warnings.append(f"Unknown configuration {name} is ignored.{close_matches(name, list(BROKER_KEYS))}")
    if unused:
        warnings.append(f"These keys of Kafka have no effect in Tidelog: {', '.join(sorted(unused))}.")
    return warnings
