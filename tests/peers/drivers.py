"""Foreign Kafka clients behind one face: give a peer records to write, or a partition to read.

Java's kafka-clients, franz-go and kafkajs each sit behind a small command-line program with a common contract; the
records travel as lines of JSON in which bytes are base64 and null is null:

    driver produce --bootstrap B --topic T [--codec none|gzip|snappy|lz4|zstd] [--acks all|1|0]
                   [--idempotent=true|false] [--batch-bytes N]
        reads    {"partition": 0, "timestamp": ms, "key": "...", "value": "...", "headers": [["name", "..."], ...]}
                 with Java, "partition": null leaves it to the client
        prints   {"partition": 0, "offset": 12} in the same order; with "error": NAME when the broker refused
    driver consume --bootstrap B --topic T --partition P --from OFFSET --count N [--isolation read_committed]
                   [--timeout-ms N]
        prints   what `produce` reads, with "offset", and "timestamp_type" where the client tells it
        needs no group; ends with status 3 when fewer than N records came in time
    driver load --bootstrap B --topic T --partitions N --name NAME           (Java)
        sends NAME:SEQUENCE:filling to the partitions in turn, idempotent and acks=all, until its input ends
        prints   {"partition": 0, "sequence": 7, "offset": 12}, with "error" instead of "offset" when it gave up
    driver subscribe --bootstrap B --group G --topic T ...           (Java)
        is a member of a group until SIGTERM: options and lines are those of tests/groups/member.py
    driver transform --bootstrap B --transactional-id I --group G --input T --output T ...           (Java)
        consumes, transforms and produces in transactions: options and lines are those of
        tests/transactions/transformer.py; --halt-chance P [--seed N] has it end at any step without a word
    driver admin ACTION --bootstrap B ...           (Java and franz-go)
        prints   one JSON document, {"error": NAME} when the broker refused

Booleans are given as `--name=true`, since Go's flags take them no other way. librdkafka, through confluent-kafka, runs
in this process.
"""

from __future__ import annotations

import base64
import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import confluent_kafka
from apache_kafka import QUICK_START_FLAGS
from peer_setup import go_driver, java_driver, js_driver, tool

DRIVER_TIMEOUT_S = 90.0
BATCH_BYTES = 1_000_000

TIMESTAMP_TYPES = {
    confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
    confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    partition: int | None = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    partition: int
    offset: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Received:
    offset: int
    record: Record
    timestamp_type: str | None = None


class DriverFailedError(RuntimeError):
    """The client failed by itself; the message carries what it said."""


class Peer(ABC):
    """One foreign client library."""

    name: str

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        batch_bytes: int = BATCH_BYTES,
    ) -> list[Delivery]: ...

    @abstractmethod
    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Received]: ...

    def can_write(self, record: Record) -> Record:
        """The nearest record that this client is able to send."""
        return record

    def will_show(self, record: Record) -> Record:
        """What this client's interface lets through of a record."""
        return record


class CommandPeer(Peer):
    """A client behind a driver program."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._command = tuple(command)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        batch_bytes: int = BATCH_BYTES,
    ) -> list[Delivery]:
        arguments = ["produce", "--bootstrap", bootstrap, "--topic", topic, "--codec", codec, "--acks", acks]
        arguments += [f"--idempotent={str(idempotent).lower()}", "--batch-bytes", str(batch_bytes)]
        reports = self._run(arguments, "".join(_to_line(record) for record in records))
        return [Delivery(report["partition"], report.get("offset", -1), report.get("error")) for report in reports]

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        start: int = 0,
        isolation: str = "read_uncommitted",
    ) -> list[Received]:
        arguments = ["consume", "--bootstrap", bootstrap, "--topic", topic, "--partition", str(partition)]
        arguments += ["--isolation", isolation]
        lines = self._run([*arguments, "--from", str(start), "--count", str(count)])
        return [Received(line["offset"], _from_line(line), line.get("timestamp_type")) for line in lines]

    def admin(self, bootstrap: str, action: str, **options: Any) -> dict[str, Any]:
        """One admin call. A list repeats its option, a mapping repeats it as `key=value`."""
        arguments = ["admin", action, f"--bootstrap={bootstrap}"]
        for name, value in options.items():
            arguments += _option(name.rstrip("_").replace("_", "-"), value)
        (document,) = self._run(arguments)
        return document

    def _run(self, arguments: Sequence[str], stdin: str = "") -> list[dict[str, Any]]:
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=DRIVER_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            said = f"{' '.join(arguments)} ended with {done.returncode} after {done.stdout.count(chr(10))} lines"
            raise DriverFailedError(f"{self.name}: {said}:\n{done.stderr[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]


class KafkajsPeer(CommandPeer):
    """kafkajs keeps headers in an object, so equal names come together, and cannot send a null header value."""

    def can_write(self, record: Record) -> Record:
        return self.will_show(replace(record, headers=tuple((name, value or b"") for name, value in record.headers)))

    def will_show(self, record: Record) -> Record:
        order = {name: place for place, name in reversed(list(enumerate(name for name, _ in record.headers)))}
        return replace(record, headers=tuple(sorted(record.headers, key=lambda header: order[header[0]])))


class ConfluentPeer(Peer):
    """librdkafka, in this process."""

    name = "confluent"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        batch_bytes: int = BATCH_BYTES,
    ) -> list[Delivery]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "batch.size": batch_bytes,
                "message.max.bytes": batch_bytes + 65_536,
                "linger.ms": 20,
                "message.timeout.ms": 40_000,
            }
        )
        deliveries: dict[int, Delivery] = {}
        for place, record in enumerate(records):

            def on_delivery(error: Any, message: Any, place: int = place) -> None:
                deliveries[place] = Delivery(message.partition(), -1 if error else message.offset(), _name_of(error))

            headers: list[tuple[str, str | bytes | None]] = list(record.headers)
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=-1 if record.partition is None else record.partition,
                timestamp=record.timestamp,
                headers=headers,
                on_delivery=on_delivery,
            )
        left = producer.flush(60.0)
        if left:
            raise DriverFailedError(f"confluent: {left} of {len(records)} records were not delivered")
        return [deliveries[place] for place in range(len(records))]

    def consume(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Received]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused-by-assign",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
            messages: list[Any] = []
            while len(messages) < count:
                arrived = consumer.consume(count - len(messages), timeout=30.0)
                if not arrived:
                    raise DriverFailedError(f"confluent: got {len(messages)} of {count} records")
                messages += arrived
            return [_from_message(message) for message in messages]
        finally:
            consumer.close()


def java_peer() -> CommandPeer:
    return CommandPeer("java", java_command_of())


def java_command_of(*arguments: str) -> list[str]:
    """What starts Java's driver."""
    built = java_driver()
    classpath = f"{built}/driver.jar:{built}/lib/*"
    flags = (*QUICK_START_FLAGS, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return [tool("java"), *flags, "-cp", classpath, "tidelog.peers.Driver", *arguments]


def franz_go_peer() -> CommandPeer:
    return CommandPeer("franz-go", [f"{go_driver()}/driver"])


def kafkajs_peer() -> KafkajsPeer:
    return KafkajsPeer("kafkajs", [tool("node"), f"{js_driver()}/driver.js"])


def _to_line(record: Record) -> str:
    line = {
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": _encode(record.key),
        "value": _encode(record.value),
        "headers": [[name, _encode(value)] for name, value in record.headers],
    }
    return json.dumps(line) + "\n"


def _from_line(line: Mapping[str, Any]) -> Record:
    headers = tuple((name, _decode(value)) for name, value in line["headers"])
    return Record(_decode(line["key"]), _decode(line["value"]), headers, line["timestamp"], line["partition"])


def _from_message(message: Any) -> Received:
    if message.error() is not None:
        raise DriverFailedError(f"confluent: {message.error()}")
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    record = Record(message.key(), message.value(), headers, timestamp, message.partition())
    names = {
        confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
        confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
    }
    return Received(message.offset(), record, names.get(kind))


def _name_of(error: Any) -> str | None:
    return None if error is None else str(error.name())


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"--{name}={key}={item}" for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [f"--{name}={item}" for item in value]
    return [f"--{name}={str(value).lower() if isinstance(value, bool) else value}"]
