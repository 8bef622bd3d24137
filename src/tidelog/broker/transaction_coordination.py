"""Fits the transaction coordinator into the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.types import TopicPartition


class TransactionCoordination:
    """Fits `handlers.handler.Transactions`."""

    async def ensure_topic(self) -> None:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served by this broker yet")

    async def verify(
        self,
        transactional_id: str,  # noqa: ARG002
        producer_id: int,  # noqa: ARG002
        producer_epoch: int,  # noqa: ARG002
        partitions: Sequence[TopicPartition],
        *,
        add: bool,  # noqa: ARG002
    ) -> Mapping[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)
