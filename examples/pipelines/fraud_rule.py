"""Alerts for cards that were used in three countries within ten minutes: a rule that remembers.

What it remembers of a card is forgotten ten minutes after the card's last payment.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tidelog.pipelines import json, read, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

WITHIN = timedelta(minutes=10)
COUNTRIES = 3

payments = read.topic(
    "payments",
    value=json("id long, card string, country string, cents long, at timestamp"),
    watermark=("at", "5 minutes"),
)


class Travels(StatefulProcessor):
    """The payments of each card that are recent enough to matter."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._recent = handle.getListState("recent", "id long, country string, at timestamp")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        recent = [Row(id=id_, country=country, at=at) for id_, country, at in self._recent.get()]
        for payment in sorted(rows, key=lambda row: row.at):
            recent = [each for each in recent if payment.at - each.at <= WITHIN]
            recent.append(Row(id=payment.id, country=payment.country, at=payment.at))
            countries = {each.country for each in recent}
            if len(countries) >= COUNTRIES:
                yield Row(
                    card=key[0],
                    at=payment.at,
                    countries=sorted(countries),
                    payments=[each.id for each in recent],
                )
                recent = []
        self._remember(recent)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        self._recent.clear()
        return iter(())

    def close(self) -> None:
        """Nothing is open."""

    def _remember(self, recent: list[Row]) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if not recent:
            self._recent.clear()
            return
        self._recent.put([tuple(each) for each in recent])
        self._handle.registerTimer(int((recent[-1].at + WITHIN).timestamp() * 1000))


@write.topic("alerts", key="card", partitions=3)
def alerts(payments: DataFrame) -> DataFrame:
    return payments.groupBy("card").transformWithState(
        statefulProcessor=Travels(),
        outputStructType="card string, at timestamp, countries array<string>, payments array<long>",
        outputMode="append",
        timeMode="EventTime",
    )
