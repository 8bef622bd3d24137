"""Broker keys of identity, coordination, replication, the controller and quotas."""

from __future__ import annotations

from tidelog.config.definition import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    Definition,
    Fallback,
    Update,
    at_least,
    between,
    exactly_or,
)

_BOOL, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _CLASS, _PASSWORD = ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD

_CLUSTER = Update.CLUSTER_WIDE

IDENTITY_KEYS = (
    Definition(
        "node.id",
        _INT,
        None,
        "This broker's number in the cluster. The same as broker.id: set one of them.",
        at_least(0),
        fallbacks=(Fallback("broker.id"),),
    ),
    Definition(
        "broker.id",
        _INT,
        0,
        "This broker's number in the cluster; -1 asks ZooKeeper for one above reserved.broker.max.id.",
        at_least(-1),
    ),
    Definition("broker.id.generation.enable", _BOOL, True, "Whether broker.id=-1 is allowed."),
    Definition("reserved.broker.max.id", _INT, 1000, "The largest number given to a broker by hand.", at_least(0)),
    Definition("broker.rack", _STRING, None, "The rack or zone this broker stands in; replicas are spread over racks."),
    Definition(
        "zookeeper.connect",
        _STRING,
        "",
        "The ZooKeeper ensemble, as host:port,host:port/path. Empty: this broker is alone and coordinates itself.",
    ),
    Definition(
        "zookeeper.session.timeout.ms",
        _INT,
        18_000,
        "A broker that ZooKeeper has not heard of for so long is taken for dead.",
        at_least(1),
    ),
    Definition(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        "How long the broker tries to reach ZooKeeper at start. Without it, zookeeper.session.timeout.ms.",
        at_least(1),
        fallbacks=(Fallback("zookeeper.session.timeout.ms"),),
    ),
    Definition(
        "zookeeper.max.in.flight.requests",
        _INT,
        10,
        "Requests sent to ZooKeeper before its first answer.",
        at_least(1),
    ),
    Definition("zookeeper.set.acl", _BOOL, False, "Whether znodes are created so that only brokers can change them."),
    Definition(
        "tidelog.zookeeper.digest",
        _PASSWORD,
        None,
        "user:password by which this broker authenticates to ZooKeeper.",
    ),
)

REPLICATION_KEYS = (
    Definition(
        "default.replication.factor",
        _INT,
        1,
        "Replicas of a topic created without a number.",
        at_least(1),
    ),
    Definition(
        "min.insync.replicas",
        _INT,
        1,
        "Replicas that must have a record before a producer with acks=all is answered.",
        at_least(1),
        _CLUSTER,
    ),
    Definition(
        "unclean.leader.election.enable",
        _BOOL,
        False,
        "Whether a replica that missed records may lead when no other is left: available again, but with loss.",
        update=_CLUSTER,
    ),
    Definition(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        "A follower that has not caught up for so long leaves the in-sync replicas.",
        at_least(1),
    ),
    Definition(
        "replica.lag.max.messages",
        _LONG,
        -1,
        "A follower so many records behind leaves the in-sync replicas; -1 is no bound.",
        exactly_or(-1, at_least(1)),
    ),
    Definition("replica.socket.timeout.ms", _INT, 30_000, "How long a follower waits for its leader.", at_least(1)),
    Definition(
        "replica.socket.receive.buffer.bytes",
        _INT,
        65_536,
        "SO_RCVBUF of a follower's connection; -1 leaves it to the system.",
        exactly_or(-1, at_least(1)),
    ),
    Definition(
        "replica.fetch.max.bytes",
        _INT,
        1 << 20,
        "Bytes a follower asks for per partition; a larger first batch still comes whole.",
        at_least(0),
    ),
    Definition(
        "replica.fetch.response.max.bytes",
        _INT,
        10 << 20,
        "Bytes a follower asks for in all.",
        at_least(0),
    ),
    Definition("replica.fetch.min.bytes", _INT, 1, "Bytes a follower waits for.", at_least(0)),
    Definition("replica.fetch.wait.max.ms", _INT, 500, "How long the leader may wait for them.", at_least(0)),
    Definition("replica.fetch.backoff.ms", _INT, 1000, "Pause of a follower after an error.", at_least(0)),
    Definition("num.replica.fetchers", _INT, 1, "Connections to each leader.", between(1, 64), _CLUSTER),
    Definition(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "How often high watermarks are written down.",
        at_least(1),
    ),
    Definition(
        "replica.selector.class",
        _CLASS,
        "",
        "Empty: consumers read from the leader. Kafka's RackAwareReplicaSelector: from a replica in their rack.",
    ),
    Definition(
        "leader.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        "Bytes per second this leader sends to throttled replicas.",
        at_least(0),
        _CLUSTER,
    ),
    Definition(
        "follower.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        "Bytes per second this follower fetches for throttled replicas.",
        at_least(0),
        _CLUSTER,
    ),
    Definition(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        "Bytes per second for moving replicas between this broker's directories.",
        at_least(0),
        _CLUSTER,
    ),
)

CONTROLLER_KEYS = (
    Definition("controlled.shutdown.enable", _BOOL, True, "Whether leaders move away before a broker stops."),
    Definition("controlled.shutdown.max.retries", _INT, 3, "How often that is tried.", at_least(0)),
    Definition("controlled.shutdown.retry.backoff.ms", _LONG, 5000, "Pause between the tries.", at_least(0)),
    Definition(
        "controller.socket.timeout.ms", _INT, 30_000, "How long the controller waits for a broker.", at_least(1)
    ),
    Definition("auto.leader.rebalance.enable", _BOOL, True, "Whether leaders return to their preferred replicas."),
    Definition(
        "leader.imbalance.per.broker.percentage",
        _INT,
        10,
        "Share of a broker's partitions that may be led elsewhere before they are brought back.",
        between(0, 100),
    ),
    Definition(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        300,
        "How often that share is looked at.",
        at_least(1),
    ),
)

QUOTA_KEYS = (
    Definition("quota.window.num", _INT, 11, "Windows over which a client's rate is measured.", between(1, 10_000)),
    Definition("quota.window.size.seconds", _INT, 1, "Length of one such window.", at_least(1)),
    Definition(
        "replication.quota.window.num",
        _INT,
        11,
        "Windows over which replication's rate is measured.",
        between(1, 10_000),
    ),
    Definition("replication.quota.window.size.seconds", _INT, 1, "Length of one such window.", at_least(1)),
    Definition(
        "controller.quota.window.num",
        _INT,
        11,
        "Windows over which the rate of topic changes is measured.",
        between(1, 10_000),
    ),
    Definition("controller.quota.window.size.seconds", _INT, 1, "Length of one such window.", between(1, INT_MAX)),
)
