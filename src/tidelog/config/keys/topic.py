"""Topic keys, each with the broker key that is its default."""

from __future__ import annotations

from tidelog.config.definition import ConfigType, Definition, at_least
from tidelog.config.keys.cluster import REPLICATION_KEYS
from tidelog.config.keys.log import LOG_KEYS

_BROKER_KEY_OF = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "tidelog.fsync.before.ack": "tidelog.fsync.before.ack",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_TOPIC_DOC = {
    "flush.ms": "Age of an unflushed record at which its partition is flushed.",
    "retention.ms": "Age at which records may be deleted; -1 keeps them.",
    "segment.jitter.ms": "Up to so much is taken off segment.ms, by chance, so that partitions do not roll together.",
    "segment.ms": "Age at which a segment is closed even if not full.",
}

_BROKER = {definition.name: definition for definition in (*LOG_KEYS, *REPLICATION_KEYS)}


def _as_topic_key(name: str, broker_key: str) -> Definition:
    """The same type and limits as the broker key: a topic's value and its default must not be judged differently."""
    broker = _BROKER[broker_key]
    doc = _TOPIC_DOC.get(name, broker.doc)
    return broker._replace(name=name, doc=doc, broker_key=broker_key, fallbacks=())


TOPIC_KEYS = (
    *(_as_topic_key(name, broker_key) for name, broker_key in _BROKER_KEY_OF.items()),
    Definition(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas throttled as followers, as partition:broker; * is all.",
    ),
    Definition(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Replicas throttled on the leader's side, as partition:broker; * is all.",
    ),
    Definition(
        "tidelog.observer.racks",
        ConfigType.LIST,
        (),
        "Racks whose replicas follow without being waited for; automatic placement puts one replica into each.",
    ),
    Definition(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "Segment size below the least that segment.bytes allows, for tests.",
        at_least(1),
        hidden=True,
    ),
)
