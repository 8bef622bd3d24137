"""Kafka's tree of znodes: where everything is, so that people and tools who know Kafka find their way."""

from __future__ import annotations

from urllib.parse import quote, unquote

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
"""Its version is the last number given to a broker that asked for one."""
TOPICS = "/brokers/topics"

CONTROLLER = "/controller"
"""Ephemeral: the broker that creates it first is the controller."""
CONTROLLER_EPOCH = "/controller_epoch"

ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"

CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_CLIENTS = "/config/clients"
CONFIG_USERS = "/config/users"
CONFIG_IPS = "/config/ips"
DEFAULT_ENTITY = "<default>"

ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"

CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
CLUSTER_SECRET = "/tidelog/cluster_secret"  # noqa: S105 - a path
"""Not Kafka's: by it brokers know each other."""
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"
FEATURE = "/feature"
ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"

PERSISTENT = (
    BROKER_IDS,
    TOPICS,
    DELETE_TOPICS,
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_CLIENTS,
    CONFIG_USERS,
    CONFIG_IPS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    BROKER_SEQUENCE,
    CONSUMERS,
)
"""What every broker makes sure of when it starts; their parents come along."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def partition_state(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def topic_config(name: str) -> str:
    return f"{CONFIG_TOPICS}/{name}"


def broker_config(broker_id: int | None) -> str:
    """None: the settings of all brokers."""
    return f"{CONFIG_BROKERS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def group(group_id: str) -> str:
    return f"{CONSUMERS}/{_one_name(group_id)}"


def group_named(name: str) -> str | None:
    """The group whose node has this name below /consumers; None if `group` would never give it that name."""
    group_id = unquote(name)
    return group_id if _one_name(group_id) == name else None


def group_members(group_id: str) -> str:
    return f"{group(group_id)}/ids"


def group_member(group_id: str, member_id: str) -> str:
    """Ephemeral: a member of the group and what it subscribes to."""
    return f"{group(group_id)}/ids/{_one_name(member_id)}"


def group_owners(group_id: str) -> str:
    return f"{group(group_id)}/owners"


def partition_owner(group_id: str, topic_name: str, number: int) -> str:
    """Ephemeral: the member that reads the partition."""
    return f"{group(group_id)}/owners/{topic_name}/{number}"


def group_offsets(group_id: str) -> str:
    return f"{group(group_id)}/offsets"


def group_offset(group_id: str, topic_name: str, number: int) -> str:
    return f"{group(group_id)}/offsets/{topic_name}/{number}"


def _one_name(text: str) -> str:
    """Groups and members are named by strangers: a slash in a name must not lead elsewhere in the tree."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted
