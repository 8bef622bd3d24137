"""The asyncio clients: Producer, Consumer and Admin.

Names are loaded when they are first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.arrow_sending import BatchDelivery, StoredRows
    from tidelog.client.config import ClientConfig, ConsumerConfig, ProducerConfig
    from tidelog.client.consumer import Consumer
    from tidelog.client.descriptions import ConfigResource, NewTopic
    from tidelog.client.errors import (
        BrokersUnreachable,
        ClientError,
        Closed,
        CommitFailed,
        ConnectionLost,
        InvalidState,
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
    from tidelog.client.offsets import OffsetAndMetadata, OffsetSpec
    from tidelog.client.producer import Producer
    from tidelog.client.sender import RecordMetadata
    from tidelog.client.transactions.deciding import end_prepared
    from tidelog.client.transactions.handles import PreparedTransaction, TransactionHandle, TransactionPart
    from tidelog.errors import BrokerError, ErrorCode
    from tidelog.types import TopicPartition

_HOMES = {
    "Admin": "tidelog.client.admin",
    "BatchDelivery": "tidelog.client.arrow_sending",
    "BrokerError": "tidelog.errors",
    "BrokersUnreachable": "tidelog.client.errors",
    "ClientConfig": "tidelog.client.config",
    "ClientError": "tidelog.client.errors",
    "Closed": "tidelog.client.errors",
    "CommitFailed": "tidelog.client.errors",
    "ConfigResource": "tidelog.client.descriptions",
    "ConnectionLost": "tidelog.client.errors",
    "Consumer": "tidelog.client.consumer",
    "ConsumerConfig": "tidelog.client.config",
    "ConsumerRecord": "tidelog.client.fetching",
    "ErrorCode": "tidelog.errors",
    "GroupMetadata": "tidelog.client.groups.member",
    "InvalidState": "tidelog.client.errors",
    "NeedsPackage": "tidelog.client.errors",
    "NewTopic": "tidelog.client.descriptions",
    "NoOffset": "tidelog.client.errors",
    "NotReadable": "tidelog.client.errors",
    "NotSupported": "tidelog.client.errors",
    "NotWritable": "tidelog.client.errors",
    "OffsetAndMetadata": "tidelog.client.offsets",
    "OffsetOutOfRange": "tidelog.client.errors",
    "OffsetSpec": "tidelog.client.offsets",
    "PositionUnknown": "tidelog.client.errors",
    "PreparedTransaction": "tidelog.client.transactions.handles",
    "Producer": "tidelog.client.producer",
    "ProducerConfig": "tidelog.client.config",
    "ProducerFenced": "tidelog.client.errors",
    "ProducerStopped": "tidelog.client.errors",
    "RebalanceListener": "tidelog.client.groups.listener",
    "RecordMetadata": "tidelog.client.sender",
    "RecordTooLarge": "tidelog.client.errors",
    "StoredRows": "tidelog.client.arrow_sending",
    "TimedOut": "tidelog.client.errors",
    "TopicPartition": "tidelog.types",
    "TransactionFailed": "tidelog.client.errors",
    "TransactionHandle": "tidelog.client.transactions.handles",
    "TransactionPart": "tidelog.client.transactions.handles",
    "end_prepared": "tidelog.client.transactions.deciding",
}

__all__ = [
    "Admin",
    "BatchDelivery",
    "BrokerError",
    "BrokersUnreachable",
    "ClientConfig",
    "ClientError",
    "Closed",
    "CommitFailed",
    "ConfigResource",
    "ConnectionLost",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ErrorCode",
    "GroupMetadata",
    "InvalidState",
    "NeedsPackage",
    "NewTopic",
    "NoOffset",
    "NotReadable",
    "NotSupported",
    "NotWritable",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OffsetSpec",
    "PositionUnknown",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerStopped",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLarge",
    "StoredRows",
    "TimedOut",
    "TopicPartition",
    "TransactionFailed",
    "TransactionHandle",
    "TransactionPart",
    "end_prepared",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
