"""What the demo learns from the stream: did everything come back in order, and what did the shop earn?"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.cli.demo_events import CATEGORIES, EURO_PERCENT, ORDERS

if TYPE_CHECKING:
    from tidelog.client.fetching import ConsumerRecord
    from tidelog.types import TopicPartition


class OutOfOrder(Exception):  # noqa: N818 - named for the fact it reports
    """A record came back that is not the next one sent to its partition."""


@dataclass
class Report:
    sent: int = 0
    sent_bytes: int = 0
    delivered: int = 0
    received: int = 0
    orders: Counter[str] = field(default_factory=Counter)
    euro_cents: Counter[str] = field(default_factory=Counter)
    _expected: dict[TopicPartition, deque[int]] = field(default_factory=dict)

    def note_sent(self, partition: TopicPartition, value: bytes) -> None:
        self._expected.setdefault(partition, deque()).append(crc32(value))
        self.sent += 1
        self.sent_bytes += len(value)

    def note_received(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        """Each partition must give back exactly what was sent to it, in that order."""
        value = record.value or b""
        waiting = self._expected.get(partition)
        if not waiting or waiting.popleft() != crc32(value):
            raise OutOfOrder(f"{partition}: the record at offset {record.offset} is not the next one that was sent")
        self.received += 1
        if record.topic == ORDERS:
            order = json.loads(value)
            self.orders[order["category"]] += 1
            self.euro_cents[order["category"]] += order["amount_cents"] * EURO_PERCENT[order["currency"]] // 100

    @property
    def complete(self) -> bool:
        return self.received == self.sent and not any(self._expected.values())

    def revenue_rows(self) -> list[list[str]]:
        rows = [
            [category, f"{self.orders[category]:,}", f"{self.euro_cents[category] / 100:,.2f}"]
            for category in CATEGORIES
        ]
        total = [f"{sum(self.orders.values()):,}", f"{sum(self.euro_cents.values()) / 100:,.2f}"]
        return [*rows, ["all", *total]]
