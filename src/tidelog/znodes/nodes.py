"""What Kafka's znodes hold, in Kafka's own JSON, so that its tools can read our tree and we theirs.

Each kind has `encode` and `decode`. `decode` takes the node's path for the message of a NodeFormatError, which is all
that it raises.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.config.listeners import Endpoint, SecurityProtocol, split_listener
from tidelog.types import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, format_topic_id, parse_topic_id
from tidelog.znodes.errors import NodeFormatError
from tidelog.znodes.payload import Payload, encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.types import TopicPartition

NO_LEADER = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """/brokers/ids/N: how to reach a live broker."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None

    def encode(self) -> bytes:
        plain = next((each for each in self.endpoints if each.protocol is SecurityProtocol.PLAINTEXT), None)
        fields = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(each) for each in self.endpoints],
            "listener_security_protocol_map": {each.name: str(each.protocol) for each in self.endpoints},
            "features": {},
        }
        if self.rack is not None:
            fields["rack"] = self.rack
        return encode_json(fields)

    @classmethod
    def decode(cls, node: str, data: bytes) -> BrokerRegistration:
        payload = Payload(node, data, range(1, 6))
        return cls(
            endpoints=_decode_endpoints(payload),
            timestamp_ms=payload.integer("timestamp", -1),
            rack=payload.text("rack") if payload.has("rack") else None,
        )


def _decode_endpoints(payload: Payload) -> tuple[Endpoint, ...]:
    if not payload.has("endpoints"):  # before version 2
        host, port = payload.text("host"), payload.integer("port")
        return (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, port),)
    protocols = (
        payload.text_map("listener_security_protocol_map") if payload.has("listener_security_protocol_map") else {}
    )
    endpoints = []
    for text in payload.texts("endpoints"):
        parts = split_listener(text)
        if parts is None:
            raise NodeFormatError(f"{payload.node}: endpoint {text!r} must be NAME://host:port")
        name, host, port = parts
        protocol = protocols.get(name, name)
        if protocol not in SecurityProtocol.__members__:
            raise NodeFormatError(f"{payload.node}: endpoint {text!r} has the unknown security protocol {protocol!r}")
        endpoints.append(Endpoint(name, SecurityProtocol[protocol], host, port))
    return tuple(endpoints)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """/brokers/topics/T: which brokers hold each partition, the preferred leader first."""

    topic_id: TopicId
    """Zero if the topic was made before topics had ids."""
    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of a partition that is being moved: the replicas that are to join."""
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        return encode_json(
            {
                "version": 3,
                "topic_id": format_topic_id(self.topic_id),
                "partitions": self.partitions,
                "adding_replicas": self.adding,
                "removing_replicas": self.removing,
            }
        )

    @classmethod
    def decode(cls, node: str, data: bytes) -> TopicAssignment:
        payload = Payload(node, data, range(1, 4))
        topic_id = ZERO_TOPIC_ID
        if payload.has("topic_id"):
            try:
                topic_id = parse_topic_id(payload.text("topic_id"))
            except ValueError as error:
                raise NodeFormatError(f"{node}: field 'topic_id' is no topic id: {error}") from None
        return cls(
            topic_id,
            partitions=payload.integer_lists("partitions"),
            adding=payload.integer_lists("adding_replicas", {}),
            removing=payload.integer_lists("removing_replicas", {}),
        )


@dataclass(frozen=True, slots=True)
class PartitionState:
    """/brokers/topics/T/partitions/P/state: who leads, and who is in sync. Its znode version is the partition epoch."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    """The leader was elected uncleanly and its log is not known to be whole (KIP-704)."""

    def encode(self) -> bytes:
        fields = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
        }
        if self.recovering:
            fields["leader_recovery_state"] = 1
        return encode_json(fields)

    @classmethod
    def decode(cls, node: str, data: bytes) -> PartitionState:
        payload = Payload(node, data, (1,))
        return cls(
            leader=BrokerId(payload.integer("leader")),
            leader_epoch=LeaderEpoch(payload.integer("leader_epoch")),
            isr=payload.integers("isr"),
            controller_epoch=payload.integer("controller_epoch"),
            recovering=payload.integer("leader_recovery_state", 0) == 1,
        )


@dataclass(frozen=True, slots=True)
class ControllerClaim:
    """/controller: which broker is the controller."""

    broker_id: BrokerId
    timestamp_ms: int

    def encode(self) -> bytes:
        return encode_json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": -1,
            }
        )

    @classmethod
    def decode(cls, node: str, data: bytes) -> ControllerClaim:
        payload = Payload(node, data, (1, 2))
        return cls(BrokerId(payload.integer("brokerid")), payload.integer("timestamp", -1))


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the producer ids that were last given to a broker to hand out."""

    broker_id: BrokerId
    first: int
    last: int

    def encode(self) -> bytes:
        return encode_json(
            {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @classmethod
    def decode(cls, node: str, data: bytes) -> ProducerIdBlock:
        payload = Payload(node, data, (1,))
        return cls(BrokerId(payload.integer("broker")), payload.integer("block_start"), payload.integer("block_end"))


def encode_config(overrides: Mapping[str, str]) -> bytes:
    """/config/topics/T and /config/brokers/N: the settings of a topic or broker that differ from the defaults."""
    return encode_json({"version": 1, "config": dict(overrides)})


def decode_config(node: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    return Payload(node, data, (1,)).text_map("config")


def encode_config_change(entity: str) -> bytes:
    """/config/changes/config_change_N: tells brokers that `entity`, such as `topics/T`, has new settings."""
    return encode_json({"version": 2, "entity_path": entity})


def decode_config_change(node: str, data: bytes) -> str:
    return Payload(node, data, (2,)).text("entity_path")


def encode_log_dir_event(broker_id: int) -> bytes:
    """/log_dir_event_notification/log_dir_event_N: tells the controller that logs of a broker have failed."""
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(node: str, data: bytes) -> int:
    return Payload(node, data, (1,)).integer("broker")


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(node: str, data: bytes) -> str:
    return Payload(node, data, (1,)).text("id")


def encode_integer(value: int) -> bytes:
    """/controller_epoch and /consumers/G/offsets/T/P hold a bare number."""
    return str(value).encode()


def decode_integer(node: str, data: bytes) -> int:
    text = data.decode("ascii", errors="replace").strip()
    if len(text) > 20 or not text.removeprefix("-").isdecimal():
        raise NodeFormatError(f"{node} must hold a whole number, not {text[:80]!r}")
    return int(text)


def encode_isr_changes(partitions: list[TopicPartition]) -> bytes:
    """/isr_change_notification/isr_change_N: tells the controller whose in-sync replicas changed."""
    changed = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return encode_json({"version": 1, "partitions": changed})


@dataclass(frozen=True, slots=True)
class GroupMember:
    """/consumers/G/ids/M: what a member subscribes to, as consumers told it before brokers kept groups."""

    topics: tuple[str, ...]
    timestamp_ms: int
    pattern: str = ""
    """A regular expression that topics must match, if the member named none; `topics` is empty then."""

    def encode(self) -> bytes:
        return encode_json(
            {
                "version": 1,
                "subscription": {self.pattern: 1} if self.pattern else dict.fromkeys(self.topics, 1),
                "pattern": _BY_PATTERN if self.pattern else _BY_NAME,
                "timestamp": str(self.timestamp_ms),
            }
        )

    @classmethod
    def decode(cls, node: str, data: bytes) -> GroupMember:
        payload = Payload(node, data, (1,))
        names = payload.keys("subscription")
        timestamp_ms = payload.integer("timestamp", -1)
        if payload.text("pattern", _BY_NAME) == _BY_NAME:
            return cls(names, timestamp_ms)
        if len(names) != 1:
            raise NodeFormatError(f"{node}: a subscription by pattern must have one pattern, not {len(names)}")
        return cls((), timestamp_ms, names[0])


_BY_NAME, _BY_PATTERN = "static", "white_list"


@dataclass(frozen=True, slots=True)
class MirroredGroup:
    """/consumers/G of a group that its coordinator mirrors there. Not Kafka's: its consumers leave the node empty."""

    broker_id: BrokerId

    def encode(self) -> bytes:
        return encode_json({"version": 1, "coordinator": self.broker_id})

    @classmethod
    def decode(cls, node: str, data: bytes) -> MirroredGroup:
        return cls(BrokerId(Payload(node, data, (1,)).integer("coordinator")))


def encode_owner(member_id: str) -> bytes:
    """/consumers/G/owners/T/P holds the id of the member that reads the partition."""
    return member_id.encode()
