"""Admin calls as Java's Admin and franz-go's kadm make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from drivers import Record, franz_go_peer
from peer_brokers import create_on
from stored_batches import partition_dir

if TYPE_CHECKING:
    from drivers import CommandPeer, Peer
    from peer_brokers import Broker, CreateTopic

pytestmark = pytest.mark.peers
pytest_plugins = ["peer_fixtures"]

START_MS = 1_700_000_000_000


def timed_records() -> list[Record]:
    """Ten records of which the sixth is the youngest."""
    offsets_ms = (0, 100, 200, 300, 400, 9_000, 500, 600, 700, 800)
    return [Record(b"k", b"v", (), START_MS + offset_ms) for offset_ms in offsets_ms]


def test_topics_come_and_go(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    at, topic = peer_broker.bootstrap, f"life-{admin_peer.name}"

    assert admin_peer.admin(at, "create-topic", topic=topic, partitions=3, replicas=1) == {
        "partitions": 3,
        "replicas": 1,
    }
    assert topic in admin_peer.admin(at, "list-topics")["topics"]
    assert admin_peer.admin(at, "create-topic", topic=topic) == {"error": "TOPIC_ALREADY_EXISTS"}
    first = admin_peer.admin(at, "describe-topic", topic=topic)
    assert admin_peer.admin(at, "delete-topic", topic=topic) == {}
    assert admin_peer.admin(at, "describe-topic", topic=topic) == {"error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert admin_peer.admin(at, "delete-topic", topic=topic) == {"error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert topic not in admin_peer.admin(at, "list-topics")["topics"]
    admin_peer.admin(at, "create-topic", topic=topic)
    assert admin_peer.admin(at, "describe-topic", topic=topic)["topic_id"] != first["topic_id"]


def test_a_topic_is_described(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    at, topic = peer_broker.bootstrap, f"described-{admin_peer.name}"
    admin_peer.admin(at, "create-topic", topic=topic, partitions=2, replicas=1)
    (node,) = admin_peer.admin(at, "describe-cluster")["brokers"]

    description = admin_peer.admin(at, "describe-topic", topic=topic)

    assert len(description["topic_id"]) == 22
    assert description["internal"] is False
    assert description["partitions"] == [
        {"partition": partition, "leader": node["id"], "replicas": [node["id"]], "isr": [node["id"]]}
        for partition in (0, 1)
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "no/slashes"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "too-many-replicas", "partitions": 1, "replicas": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"topic": "no-partitions", "partitions": 0}, "INVALID_PARTITIONS"),
        ({"topic": "bad-value", "set": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ({"topic": "bad-key", "set": {"no.such.key": "1"}}, "INVALID_CONFIG"),
    ],
    ids=lambda value: value.get("topic") if isinstance(value, dict) else None,
)
def test_bad_topics_are_refused(
    peer_broker: Broker, admin_peer: CommandPeer, options: dict[str, object], error: str
) -> None:
    assert admin_peer.admin(peer_broker.bootstrap, "create-topic", **options) == {"error": error}


def test_validating_creates_nothing(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    at, topic = peer_broker.bootstrap, f"validated-{admin_peer.name}"

    valid = admin_peer.admin(at, "create-topic", topic=topic, partitions=4, validate_only=True)

    assert valid == {"partitions": 4, "replicas": 1}
    assert topic not in admin_peer.admin(at, "list-topics")["topics"]


def test_partitions_are_added(peer_broker: Broker, admin_peer: CommandPeer, peers: dict[str, Peer]) -> None:
    at = peer_broker.bootstrap
    topic = create_on(peer_broker, f"growing-{admin_peer.name}", partitions=1)

    assert admin_peer.admin(at, "create-partitions", topic=topic, partitions=3) == {}
    assert len(admin_peer.admin(at, "describe-topic", topic=topic)["partitions"]) == 3
    assert admin_peer.admin(at, "create-partitions", topic=topic, partitions=2) == {"error": "INVALID_PARTITIONS"}
    deliveries = peers["confluent"].produce(at, topic, [Record(b"k", b"v", (), START_MS, partition=2)])
    assert [(delivery.partition, delivery.offset) for delivery in deliveries] == [(2, 0)]


def test_topic_settings_change_at_once(peer_broker: Broker, admin_peer: CommandPeer, peers: dict[str, Peer]) -> None:
    at = peer_broker.bootstrap
    topic = create_on(peer_broker, f"configured-{admin_peer.name}", config={"retention.ms": "-1"})

    def settings() -> dict[str, tuple[str, str]]:
        configs = admin_peer.admin(at, "get-configs", name=topic)["configs"]
        return {key: (config["value"], config["source"]) for key, config in configs.items()}

    assert settings()["retention.ms"] == ("-1", "DYNAMIC_TOPIC_CONFIG")
    assert settings()["max.message.bytes"] == ("1048588", "DEFAULT_CONFIG")
    changed = admin_peer.admin(at, "set-configs", name=topic, set={"max.message.bytes": 500}, delete=["retention.ms"])
    assert changed == {}
    assert settings()["max.message.bytes"] == ("500", "DYNAMIC_TOPIC_CONFIG")
    assert settings()["retention.ms"] == ("604800000", "DEFAULT_CONFIG")
    large = [Record(None, b"v" * 1_000, (), START_MS)]
    assert peers["franz-go"].produce(at, topic, large)[0].error == "MESSAGE_TOO_LARGE"


def test_lists_in_settings_grow_and_shrink(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    at = peer_broker.bootstrap
    topic = create_on(peer_broker, f"policies-{admin_peer.name}")

    def policy() -> set[str]:
        value: str = admin_peer.admin(at, "get-configs", name=topic)["configs"]["cleanup.policy"]["value"]
        return set(value.split(","))

    assert admin_peer.admin(at, "set-configs", name=topic, append={"cleanup.policy": "compact"}) == {}
    assert policy() == {"delete", "compact"}
    assert admin_peer.admin(at, "set-configs", name=topic, subtract={"cleanup.policy": "delete"}) == {}
    assert policy() == {"compact"}


def test_bad_settings_are_refused(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    at = peer_broker.bootstrap
    topic = create_on(peer_broker, f"misconfigured-{admin_peer.name}")

    for wrong in ({"retention.ms": "soon"}, {"no.such.key": "1"}, {"cleanup.policy": "burn"}):
        assert admin_peer.admin(at, "set-configs", name=topic, set=wrong) == {"error": "INVALID_CONFIG"}
    unknown = admin_peer.admin(at, "set-configs", name="no-such-topic", set={"retention.ms": "1"})
    assert unknown == {"error": "UNKNOWN_TOPIC_OR_PARTITION"}


def test_the_older_request_replaces_all_settings(peer_broker: Broker) -> None:
    """Java's Admin no longer has it."""
    at, peer = peer_broker.bootstrap, franz_go_peer()
    topic = create_on(peer_broker, "replaced", config={"retention.ms": "1000000", "flush.ms": "5000"})

    assert peer.admin(at, "replace-configs", name=topic, set={"retention.ms": 2_000_000}) == {}

    configs = peer.admin(at, "get-configs", name=topic)["configs"]
    assert configs["retention.ms"]["value"] == "2000000"
    assert configs["flush.ms"]["source"] == "DEFAULT_CONFIG"


def test_broker_settings_are_shown(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    at = peer_broker.bootstrap
    (node,) = admin_peer.admin(at, "describe-cluster")["brokers"]

    configs = admin_peer.admin(at, "get-configs", resource="broker", name=node["id"])["configs"]

    assert configs["log.segment.bytes"]["value"] == str(1 << 30)
    assert configs["log.segment.bytes"]["source"] == "DEFAULT_CONFIG"
    assert configs["log.dirs"]["source"] == "STATIC_BROKER_CONFIG"


def test_offsets_are_found_by_time(
    peer_broker: Broker, admin_peer: CommandPeer, create_topic: CreateTopic, peers: dict[str, Peer]
) -> None:
    at = peer_broker.bootstrap
    topic = create_topic(f"offsets-{admin_peer.name}", config={"retention.ms": "-1"})
    for record in timed_records():
        peers["confluent"].produce(at, topic, [record])

    def find(where: object) -> tuple[int, int]:
        found = admin_peer.admin(at, "list-offsets", topic=topic, at=where)
        return found["offset"], found["timestamp"]

    assert find("earliest") == (0, -1)
    assert find("latest") == (10, -1)
    assert find("max-timestamp") == (5, START_MS + 9_000)
    assert find(START_MS) == (0, START_MS)
    assert find(START_MS + 101) == (2, START_MS + 200)
    assert find(START_MS + 401) == (5, START_MS + 9_000)
    assert find(START_MS + 9_001) == (-1, -1)


def test_records_are_deleted_up_to_an_offset(
    peer_broker: Broker, admin_peer: CommandPeer, create_topic: CreateTopic, peers: dict[str, Peer]
) -> None:
    at = peer_broker.bootstrap
    topic = create_topic(f"deleted-{admin_peer.name}", config={"retention.ms": "-1"})
    peers["confluent"].produce(at, topic, timed_records(), codec="gzip")

    assert admin_peer.admin(at, "delete-records", topic=topic, before=4) == {"low_watermark": 4}
    assert admin_peer.admin(at, "list-offsets", topic=topic, at="earliest")["offset"] == 4
    received = peers["franz-go"].consume(at, topic, 6, start=4)
    assert [item.offset for item in received] == [4, 5, 6, 7, 8, 9]
    assert admin_peer.admin(at, "delete-records", topic=topic, before=11) == {"error": "OFFSET_OUT_OF_RANGE"}
    assert admin_peer.admin(at, "delete-records", topic=topic, before=-1) == {"low_watermark": 10}


def test_the_cluster_is_described(peer_broker: Broker, admin_peer: CommandPeer) -> None:
    cluster = admin_peer.admin(peer_broker.bootstrap, "describe-cluster")

    (node,) = cluster["brokers"]
    assert f"{node['host']}:{node['port']}" == peer_broker.bootstrap
    assert cluster["controller"] == node["id"]
    assert len(cluster["cluster_id"]) == 22


def test_log_dirs_are_described(
    peer_broker: Broker, admin_peer: CommandPeer, create_topic: CreateTopic, peers: dict[str, Peer]
) -> None:
    at = peer_broker.bootstrap
    topic = create_topic(f"sized-{admin_peer.name}", config={"retention.ms": "-1"})
    peers["confluent"].produce(at, topic, timed_records())

    (log_dir,) = admin_peer.admin(at, "describe-log-dirs")["dirs"]

    stored = partition_dir(peer_broker.data_dir, topic)
    assert log_dir["dir"] == str(stored.parent)
    assert 0 < log_dir["usable_bytes"] <= log_dir["total_bytes"]
    (replica,) = [partition for partition in log_dir["partitions"] if partition["topic"] == topic]
    size = sum(segment.stat().st_size for segment in stored.glob("*.log"))
    assert replica == {"topic": topic, "partition": 0, "size": size, "offset_lag": 0}


def test_the_end_of_a_leader_epoch_is_known(
    peer_broker: Broker, create_topic: CreateTopic, peers: dict[str, Peer]
) -> None:
    """Java's consumer asks this by itself; only franz-go lets us ask."""
    at, topic = peer_broker.bootstrap, create_topic("epochs", config={"retention.ms": "-1"})
    peers["confluent"].produce(at, topic, timed_records())

    assert franz_go_peer().admin(at, "offset-for-epoch", topic=topic, epoch=0) == {"epoch": 0, "end_offset": 10}
