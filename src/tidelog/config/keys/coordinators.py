"""Broker keys of consumer groups and transactions."""

from __future__ import annotations

from tidelog.config.definition import INT_MAX, ConfigType, Definition, Update, at_least, between, not_empty, one_of

_BOOL, _INT, _LONG, _SHORT = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_STRING, _LIST = ConfigType.STRING, ConfigType.LIST

DAY_MS = 24 * 60 * 60 * 1000

OFFSETS_KEYS = (
    Definition("offset.metadata.max.bytes", _INT, 4096, "The longest note a commit may carry.", at_least(0)),
    Definition("offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets.", at_least(1)),
    Definition(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets; a broker without zookeeper.connect can only have one.",
        at_least(1),
        alone=1,
    ),
    Definition("offsets.topic.segment.bytes", _INT, 100 << 20, "Segment size of __consumer_offsets.", at_least(1)),
    Definition("offsets.topic.compression.codec", _INT, 0, "Codec number of what is written there.", between(0, 4)),
    Definition(
        "offsets.load.buffer.size",
        _INT,
        5 << 20,
        "Bytes read at a time when a coordinator loads its groups.",
        at_least(1),
    ),
    Definition("offsets.retention.minutes", _INT, 10_080, "Age at which an unused commit is forgotten.", at_least(1)),
    Definition("offsets.retention.check.interval.ms", _LONG, 600_000, "How often that is looked at.", at_least(1)),
    Definition("offsets.commit.timeout.ms", _INT, 5000, "How long a commit may wait for its replicas.", at_least(1)),
)

GROUP_KEYS = (
    Definition(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic", "consumer"),
        "Group protocols offered.",
        one_of("classic", "consumer", "streams", "share"),
    ),
    Definition("group.min.session.timeout.ms", _INT, 6000, "The shortest session a member may ask for.", at_least(1)),
    Definition("group.max.session.timeout.ms", _INT, 1_800_000, "The longest one.", at_least(1)),
    Definition(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        "How long a new group waits for more members before it first divides the partitions.",
        at_least(0),
    ),
    Definition("group.max.size", _INT, INT_MAX, "Members a classic group may have.", at_least(1)),
    Definition(
        "group.consumer.session.timeout.ms",
        _INT,
        45_000,
        "Session of members of the newer protocol.",
        at_least(1),
    ),
    Definition("group.consumer.min.session.timeout.ms", _INT, 45_000, "The shortest a group may set.", at_least(1)),
    Definition("group.consumer.max.session.timeout.ms", _INT, 60_000, "The longest a group may set.", at_least(1)),
    Definition(
        "group.consumer.heartbeat.interval.ms", _INT, 5000, "How often such members are to report.", at_least(1)
    ),
    Definition("group.consumer.min.heartbeat.interval.ms", _INT, 5000, "The shortest a group may set.", at_least(1)),
    Definition("group.consumer.max.heartbeat.interval.ms", _INT, 15_000, "The longest a group may set.", at_least(1)),
    Definition(
        "group.consumer.max.size", _INT, INT_MAX, "Members a group of the newer protocol may have.", at_least(1)
    ),
    Definition(
        "group.consumer.assignors",
        _LIST,
        ("uniform", "range"),
        "Assignors a group of the newer protocol may use; the first is the default.",
        not_empty,
    ),
    Definition(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        "Which way groups may move between the protocols while they run.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    Definition(
        "group.consumer.regex.refresh.interval.ms",
        _INT,
        600_000,
        "How often pattern subscriptions are matched against the topics anew.",
        at_least(10_000),
    ),
    Definition(
        "tidelog.group.registry.enable",
        _BOOL,
        False,
        "Whether members, owners and offsets of groups are mirrored in ZooKeeper below /consumers.",
    ),
)

TRANSACTION_KEYS = (
    Definition(
        "transactional.id.expiration.ms",
        _INT,
        7 * DAY_MS,
        "An unused transactional id is forgotten after so long.",
        at_least(1),
    ),
    Definition("transaction.max.timeout.ms", _INT, 900_000, "The longest timeout a producer may ask for.", at_least(1)),
    Definition("transaction.state.log.num.partitions", _INT, 50, "Partitions of __transaction_state.", at_least(1)),
    Definition(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "Replicas of __transaction_state; a broker without zookeeper.connect can only have one.",
        at_least(1),
        alone=1,
    ),
    Definition(
        "transaction.state.log.min.isr",
        _INT,
        2,
        "min.insync.replicas of __transaction_state; 1 for a broker without zookeeper.connect.",
        at_least(1),
        alone=1,
    ),
    Definition("transaction.state.log.segment.bytes", _INT, 100 << 20, "Its segment size.", at_least(1)),
    Definition(
        "transaction.state.log.load.buffer.size",
        _INT,
        5 << 20,
        "Bytes read at a time when a coordinator loads its transactions.",
        at_least(1),
    ),
    Definition(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        "Without effect: a transaction is aborted when its time is up.",
        at_least(1),
    ),
    Definition(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        "How often expired transactional ids are forgotten.",
        at_least(1),
    ),
    Definition(
        "transaction.partition.verification.enable",
        _BOOL,
        True,
        "Whether a partition asks the coordinator if a transaction it is written to is open.",
        update=Update.CLUSTER_WIDE,
    ),
    Definition(
        "transaction.two.phase.commit.enable",
        _BOOL,
        True,
        "Whether producers may prepare transactions that no timeout aborts.",
    ),
    Definition(
        "add.partitions.to.txn.retry.backoff.ms",
        _INT,
        20,
        "Pause before a partition asks again for its place in a transaction whose predecessor is being ended.",
        at_least(1),
    ),
    Definition(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        100,
        "How long it does so before the producer is told to try again.",
        at_least(0),
    ),
)
