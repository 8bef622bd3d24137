"""The asyncio clients: Producer, Consumer and Admin.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.administration.access import (
        Acl,
        AclFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourceType,
    )
    from tidelog.client.administration.credentials import NewScramCredential
    from tidelog.client.administration.group_reading import GroupDescription, GroupMember
    from tidelog.client.administration.groups import MemberToRemove
    from tidelog.client.administration.quotas import Quota, QuotaEntity
    from tidelog.client.arrow_sending import BatchDelivery, StoredRows
    from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
    from tidelog.client.consumer import Consumer
    from tidelog.client.descriptions import ConfigResource, NewTopic
    from tidelog.client.errors import (
        AuthenticationFailed,
        BrokersUnreachable,
        ClientError,
        Closed,
        CommitFailed,
        ConnectionLost,
        InvalidState,
        LogTruncated,
        NeedsPackage,
        NoOffset,
        NotReadable,
        NotSupported,
        NotWritable,
        OffsetOutOfRange,
        PositionUnknown,
        ProducerFenced,
        ProducerStopped,
        RecordTooLarge,
        TimedOut,
        TransactionFailed,
    )
    from tidelog.client.fetching import ConsumerRecord
    from tidelog.client.groups.listener import RebalanceListener
    from tidelog.client.groups.member import GroupMetadata
    from tidelog.client.metrics import ClientMetrics
    from tidelog.client.offsets import OffsetAndMetadata, OffsetSpec
    from tidelog.client.outcomes import Outcomes
    from tidelog.client.producer import Producer
    from tidelog.client.sender import RecordMetadata
    from tidelog.client.transactions.deciding import adopt_prepared, end_prepared
    from tidelog.client.transactions.handles import PreparedTransaction, TransactionHandle, TransactionPart
    from tidelog.errors import BrokerError, ErrorCode
    from tidelog.security.scram import ScramMechanism
    from tidelog.types import TopicPartition

_HOMES = {
    "Acl": "tidelog.client.administration.access",
    "AclFilter": "tidelog.client.administration.access",
    "AclOperation": "tidelog.client.administration.access",
    "AclPermission": "tidelog.client.administration.access",
    "Admin": "tidelog.client.admin",
    "AuthenticationFailed": "tidelog.client.errors",
    "BatchDelivery": "tidelog.client.arrow_sending",
    "BrokerError": "tidelog.errors",
    "BrokersUnreachable": "tidelog.client.errors",
    "ClientConfig": "tidelog.client.config",
    "ClientError": "tidelog.client.errors",
    "ClientMetrics": "tidelog.client.metrics",
    "Closed": "tidelog.client.errors",
    "CommitFailed": "tidelog.client.errors",
    "ConfigResource": "tidelog.client.descriptions",
    "ConnectionLost": "tidelog.client.errors",
    "Consumer": "tidelog.client.consumer",
    "ConsumerConfig": "tidelog.client.config",
    "ConsumerRecord": "tidelog.client.fetching",
    "ErrorCode": "tidelog.errors",
    "GroupDescription": "tidelog.client.administration.group_reading",
    "GroupMember": "tidelog.client.administration.group_reading",
    "GroupMetadata": "tidelog.client.groups.member",
    "InvalidState": "tidelog.client.errors",
    "MemberToRemove": "tidelog.client.administration.groups",
    "NeedsPackage": "tidelog.client.errors",
    "NewScramCredential": "tidelog.client.administration.credentials",
    "NewTopic": "tidelog.client.descriptions",
    "NoOffset": "tidelog.client.errors",
    "NotReadable": "tidelog.client.errors",
    "NotSupported": "tidelog.client.errors",
    "NotWritable": "tidelog.client.errors",
    "OffsetAndMetadata": "tidelog.client.offsets",
    "LogTruncated": "tidelog.client.errors",
    "OffsetOutOfRange": "tidelog.client.errors",
    "OffsetSpec": "tidelog.client.offsets",
    "Outcomes": "tidelog.client.outcomes",
    "PatternType": "tidelog.client.administration.access",
    "PositionUnknown": "tidelog.client.errors",
    "PreparedTransaction": "tidelog.client.transactions.handles",
    "Producer": "tidelog.client.producer",
    "ProducerConfig": "tidelog.client.config",
    "ProducerFenced": "tidelog.client.errors",
    "ProducerStopped": "tidelog.client.errors",
    "Quota": "tidelog.client.administration.quotas",
    "QuotaEntity": "tidelog.client.administration.quotas",
    "RebalanceListener": "tidelog.client.groups.listener",
    "RecordMetadata": "tidelog.client.sender",
    "RecordTooLarge": "tidelog.client.errors",
    "ResourceType": "tidelog.client.administration.access",
    "ScramMechanism": "tidelog.security.scram",
    "StoredRows": "tidelog.client.arrow_sending",
    "TimedOut": "tidelog.client.errors",
    "TopicPartition": "tidelog.types",
    "TransactionFailed": "tidelog.client.errors",
    "TransactionHandle": "tidelog.client.transactions.handles",
    "TransactionPart": "tidelog.client.transactions.handles",
    "adopt_prepared": "tidelog.client.transactions.deciding",
    "end_prepared": "tidelog.client.transactions.deciding",
}

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "AuthenticationFailed",
    "BatchDelivery",
    "BrokerError",
    "BrokersUnreachable",
    "ClientConfig",
    "ClientError",
    "ClientMetrics",
    "Closed",
    "CommitFailed",
    "ConfigResource",
    "ConnectionLost",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ErrorCode",
    "GroupDescription",
    "GroupMember",
    "GroupMetadata",
    "InvalidState",
    "LogTruncated",
    "MemberToRemove",
    "NeedsPackage",
    "NewScramCredential",
    "NewTopic",
    "NoOffset",
    "NotReadable",
    "NotSupported",
    "NotWritable",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OffsetSpec",
    "Outcomes",
    "PatternType",
    "PositionUnknown",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerStopped",
    "Quota",
    "QuotaEntity",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLarge",
    "ResourceType",
    "ScramMechanism",
    "StoredRows",
    "TimedOut",
    "TopicPartition",
    "TransactionFailed",
    "TransactionHandle",
    "TransactionPart",
    "adopt_prepared",
    "end_prepared",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
