"""The small text files beside the logs, in Kafka's formats: parse and format, no I/O.

Offset checkpoints and the leader epoch checkpoint share a shape: a version line, a count line, one line per entry.
A file that does not fit raises `CheckpointDamaged`; what to do without it is the caller's choice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.storage.epochs import EpochStart
from tidelog.types import TopicId, TopicPartition, format_topic_id, parse_topic_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'

_VERSION = "0"
_NUMBER = re.compile(r"-?[0-9]{1,19}\Z", re.ASCII)


class CheckpointDamaged(ValueError):  # noqa: N818 - named for what was found
    """The file is not what was once written."""


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _format(f"{each.topic} {each.partition} {offset}" for each, offset in sorted(offsets.items()))


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for line in _parse(data):
        fields = line.split()
        if len(fields) != 3:
            raise CheckpointDamaged(f"{line!r} is not a topic, a partition and an offset")
        found[TopicPartition(fields[0], _number(fields[1]))] = _number(fields[2])
    return found


def format_epochs(starts: Iterable[EpochStart]) -> bytes:
    return _format(f"{each.epoch} {each.start_offset}" for each in starts)


def parse_epochs(data: bytes) -> list[EpochStart]:
    starts: list[EpochStart] = []
    for line in _parse(data):
        fields = line.split()
        if len(fields) != 2:
            raise CheckpointDamaged(f"{line!r} is not an epoch and an offset")
        start = EpochStart(_number(fields[0]), _number(fields[1]))
        if start.epoch < 0 or start.start_offset < 0:
            raise CheckpointDamaged(f"{line!r} is negative")
        if starts and not (start.epoch > starts[-1].epoch and start.start_offset >= starts[-1].start_offset):
            raise CheckpointDamaged(f"{line!r} goes back behind the line before it")
        starts.append(start)
    return starts


def format_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {format_topic_id(topic_id)}\n".encode()


def parse_partition_metadata(data: bytes) -> TopicId:
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    if fields.get("version") != _VERSION or "topic_id" not in fields:
        raise CheckpointDamaged("version 0 and a topic id are missing")
    try:
        return parse_topic_id(fields["topic_id"].strip())
    except ValueError as error:
        raise CheckpointDamaged(str(error)) from error


def format_properties(values: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw in _text(data).splitlines():
        line = raw.strip()
        if not line or line.startswith(("#", "!")):
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise CheckpointDamaged(f"{line!r} is not key=value")
        found[key.strip()] = value.strip()
    return found


def _format(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def _parse(data: bytes) -> list[str]:
    lines = _text(data).splitlines()
    if len(lines) < 2:
        raise CheckpointDamaged("the version and the count are missing")
    if lines[0].strip() != _VERSION:
        raise CheckpointDamaged(f"version {lines[0]!r}, expected {_VERSION}")
    entries = [line for line in lines[2:] if line.strip()]
    if len(entries) != _number(lines[1].strip()):
        raise CheckpointDamaged(f"{len(entries)} entries where {lines[1].strip()} were written")
    return entries


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointDamaged(str(error)) from error


def _number(text: str) -> int:
    if not _NUMBER.match(text):
        raise CheckpointDamaged(f"{text!r} is not a number")
    return int(text)
