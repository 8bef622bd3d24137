"""Kafka's keys that have nothing to steer here: accepted, so that a Kafka file works, and named once in a warning.

A key is one of these by its full name or by the prefix it starts with.
"""

from __future__ import annotations

UNUSED_KEYS = frozenset(
    {
        "alter.config.policy.class.name",
        "auto.include.jmx.reporter",
        "background.threads",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "client.quota.callback.class",
        "cluster.id",
        "control.plane.listener.name",
        "create.topic.policy.class.name",
        "delete.records.purgatory.purge.interval.requests",
        "delete.topic.purgatory.purge.interval.requests",
        "early.start.listeners",
        "fetch.purgatory.purge.interval.requests",
        "group.coordinator.threads",
        "initial.broker.registration.timeout.ms",
        "inter.broker.protocol.version",
        "kafka.metrics.polling.interval.secs",
        "kafka.metrics.reporters",
        "log.dir.failure.timeout.ms",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "num.io.threads",
        "num.network.threads",
        "num.replica.alter.log.dirs.threads",
        "offsets.topic.required.acks",
        "principal.builder.class",
        "process.roles",
        "producer.purgatory.purge.interval.requests",
        "security.providers",
        "server.max.startup.time.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "telemetry.max.bytes",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    }
)

UNUSED_PREFIXES = (
    "confluent.",
    "controller.quorum.",
    "delegation.token.",
    "eligible.leader.replicas.",
    "group.coordinator.",
    "group.share.",
    "group.streams.",
    "metadata.log.",
    "metadata.max.",
    "metric.",
    "metrics.",
    "password.encoder.",
    "remote.log.",
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.oauthbearer.",
    "share.coordinator.",
    "zookeeper.clientcnxnsocket",
    "zookeeper.metadata.migration.",
    "zookeeper.ssl.",
)

REPLACED_KEYS = {
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "host.name": "listeners",
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "port": "listeners",
    "zookeeper.sync.time.ms": "nothing: it never had an effect",
}
"""Keys that older Kafka versions had, with what took their place."""
