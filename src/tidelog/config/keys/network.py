"""Broker keys of listeners, connections and requests."""

from __future__ import annotations

from tidelog.config.definition import (
    INT_MAX,
    ConfigType,
    Definition,
    Update,
    at_least,
    between,
    exactly_or,
    not_empty,
    one_of,
)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_BOOL, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST = ConfigType.STRING, ConfigType.LIST

NETWORK_KEYS = (
    Definition(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        "Addresses to accept connections on, as NAME://host:port. An empty host means every interface; port 0 lets "
        "the system choose.",
        not_empty,
        Update.PER_BROKER,
    ),
    Definition(
        "advertised.listeners",
        _LIST,
        None,
        "Addresses that clients are told to connect to, as NAME://host:port. Without it, the listeners themselves; a "
        "listener on every interface is advertised as this machine's loopback name.",
        update=Update.PER_BROKER,
    ),
    Definition(
        "listener.security.protocol.map",
        _LIST,
        tuple(f"{name}:{name}" for name in SECURITY_PROTOCOLS),
        "The security protocol of each listener name, as NAME:PROTOCOL.",
        not_empty,
        Update.PER_BROKER,
    ),
    Definition(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener over which brokers talk to each other. Without it, the one whose name is "
        "security.inter.broker.protocol, or else the first.",
    ),
    Definition(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "The protocol brokers speak to each other when inter.broker.listener.name is not set.",
        one_of(*SECURITY_PROTOCOLS),
    ),
    Definition(
        "controller.listener.names",
        _LIST,
        (),
        "Listener names that a Kafka file reserves for KRaft controllers. Tidelog has none: it does not open them.",
    ),
    Definition(
        "socket.listen.backlog.size",
        _INT,
        50,
        "Connections the system may hold ready before they are accepted.",
        at_least(1),
    ),
    Definition(
        "socket.send.buffer.bytes",
        _INT,
        -1,  # Kafka's 102400 turns the system's own adjustment off, and costs a third of the throughput at 1 MB
        "SO_SNDBUF of each connection; -1 leaves it to the system, which adapts it to what moves.",
        exactly_or(-1, at_least(1)),
    ),
    Definition(
        "socket.receive.buffer.bytes",
        _INT,
        -1,  # Kafka's 102400 turns the system's own adjustment off, and costs a third of the throughput at 1 MB
        "SO_RCVBUF of each connection; -1 leaves it to the system, which adapts it to what moves.",
        exactly_or(-1, at_least(1)),
    ),
    Definition(
        "socket.request.max.bytes",
        _INT,
        100 << 20,
        "The largest request accepted; a longer one closes its connection before memory is given to it.",
        at_least(1),
    ),
    Definition(
        "max.connections",
        _INT,
        INT_MAX,
        "Connections open at once on this broker.",
        at_least(0),
        Update.CLUSTER_WIDE,
    ),
    Definition(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        "Connections open at once from one address.",
        at_least(0),
        Update.CLUSTER_WIDE,
    ),
    Definition(
        "max.connections.per.ip.overrides",
        _LIST,
        (),
        "Exceptions to max.connections.per.ip, as host:number.",
        update=Update.CLUSTER_WIDE,
    ),
    Definition(
        "max.connection.creation.rate",
        _INT,
        INT_MAX,
        "Connections accepted per second on this broker.",
        at_least(0),
        Update.CLUSTER_WIDE,
    ),
    Definition(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "A connection without progress for so long is closed; -1 never closes one.",
        at_least(-1),
    ),
    Definition(
        "connection.failed.authentication.delay.ms",
        _INT,
        100,
        "How long the answer to a failed authentication is held back, so that guessing is slow.",
        between(0, 10_000),
    ),
    Definition(
        "connections.max.reauth.ms",
        _LONG,
        0,
        "How long a SASL session lasts before the client must authenticate anew; 0 is forever.",
        at_least(0),
    ),
    Definition(
        "queued.max.requests",
        _INT,
        500,
        "Requests that may wait for slow work at once before the broker stops reading from sockets.",
        at_least(1),
    ),
    Definition(
        "request.timeout.ms",
        _INT,
        30_000,
        "How long this broker waits for an answer when it is the client of another broker.",
        at_least(1),
    ),
    Definition(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "Partitions one DescribeTopicPartitions reply holds; the client asks for the rest with a cursor.",
        at_least(1),
    ),
    Definition(
        "fetch.max.bytes",
        _INT,
        55 << 20,
        "Bytes of records one fetch reply holds, unless its first batch alone is larger.",
        at_least(1024),
    ),
    Definition(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "Fetch sessions kept at once.",
        at_least(0),
    ),
    Definition(
        "tidelog.request.max.bytes",
        _INT,
        16 << 20,
        "The largest request other than Produce: what is not records grows several times when it is decoded.",
        at_least(1 << 16),
    ),
    Definition(
        "tidelog.connection.output.max.bytes",
        _INT,
        8 << 20,
        "Unsent reply bytes in memory at which the broker stops reading from a connection.",
        at_least(1024),
    ),
    Definition(
        "tidelog.connection.parked.max",
        _INT,
        1000,
        "Requests of one connection whose replies may be outstanding at once.",
        at_least(1),
    ),
    Definition(
        "tidelog.blocking.threads",
        _INT,
        4,
        "Threads for work that would block the event loop, such as decompression and index repair.",
        between(1, 256),
    ),
)
