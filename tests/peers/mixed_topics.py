"""Topics with everything that readers must get right, made from a seed: headers, nulls, tombstones, all codecs, aborted
and open transactions, and gaps that compaction left."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import Producer
from peer_brokers import create_on
from spark_peers import PATIENCE_S, consumed_rows

from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from peer_brokers import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EAGER_CLEANING = {"log.cleaner.backoff.ms": "20", "log.cleaner.dedupe.buffer.size": str(1 << 20)}
_SEGMENT_BYTES = 8000
_COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": str(_SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
    "retention.ms": "-1",
}
_START_MS = 1_700_000_000_000
_KEPT = {"retention.ms": "-1"}
_CLOSING = b"closing-"

Headers = list[tuple[str, bytes | None]]


class Made(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class MixedTopics:
    """All topics of one seed, for as long as the block lasts: a transaction stays open until then."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.noise = random.Random(seed)
        self.prefix = f"mixed-{seed}-"
        self.partitions: dict[str, int] = {}
        self._serial = 0
        self._open: Producer | None = None

    def __enter__(self) -> Self:
        self._write_plain()
        self._write_stamped()
        self._write_transactions()
        self._write_compacted()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.abort_transaction(PATIENCE_S)

    @property
    def names(self) -> str:
        return ",".join(self.partitions)

    def _create(self, name: str, partitions: int, config: dict[str, str]) -> str:
        topic = create_on(self.broker, self.prefix + name, partitions, config)
        self.partitions[topic] = partitions
        return topic

    def _write_plain(self) -> None:
        topic = self._create("plain", 3, _KEPT)
        self._create("empty", 1, _KEPT)
        for codec in self.noise.sample(CODECS, len(CODECS)):
            producer = self._producer(codec)
            _send(producer, topic, self._records(3, self.noise.randrange(20, 60)))
            assert producer.flush(PATIENCE_S) == 0

    def _write_stamped(self) -> None:
        """By the broker's clock."""
        topic = self._create("stamped", 2, {**_KEPT, "message.timestamp.type": "LogAppendTime"})
        producer = self._producer("zstd")
        _send(producer, topic, self._records(2, 40))
        assert producer.flush(PATIENCE_S) == 0

    def _write_transactions(self) -> None:
        """Of several producers at once; the last one is not ended."""
        topic = self._create("transactions", 3, _KEPT)
        writers = [self._transactional(codec) for codec in ("lz4", "none", "gzip")]
        for _ in range(12):
            several = self.noise.sample(writers, self.noise.randrange(1, len(writers) + 1))
            for writer in several:
                writer.begin_transaction()
            for _ in range(self.noise.randrange(1, 4)):
                for writer in several:
                    _send(writer, topic, self._records(3, self.noise.randrange(0, 9)))
                    assert writer.flush(PATIENCE_S) == 0
            for writer in several:
                self._end(writer)
        self._open = writers[0]
        self._open.begin_transaction()
        _send(self._open, topic, self._records(3, 6))
        assert self._open.flush(PATIENCE_S) == 0
        plain = self._producer("none")
        _send(plain, topic, self._records(3, 6))  # behind it, and so not visible
        assert plain.flush(PATIENCE_S) == 0

    def _write_compacted(self) -> None:
        topic = self._create("compacted", 2, _COMPACTED)
        plain, transactional = self._producer("none", batch=5), self._transactional("snappy", batch=5)
        for _ in range(8):
            _send(plain, topic, self._records(2, 50, keys=12))
            assert plain.flush(PATIENCE_S) == 0
            transactional.begin_transaction()
            _send(transactional, topic, self._records(2, 30, keys=12))
            self._end(transactional)
        for number in range(2):  # what was written before them is in closed segments
            for partition in range(2):
                filling = Made(partition, b"%s%d" % (_CLOSING, number), bytes(_SEGMENT_BYTES - 300), [], _START_MS)
                _send(plain, topic, [filling])
            assert plain.flush(PATIENCE_S) == 0
        eventually(lambda: self._is_clean(topic), f"{topic} is compacted", within_s=PATIENCE_S)

    def _is_clean(self, topic: str) -> bool:
        rows = consumed_rows(self.broker.bootstrap, {topic: self.partitions[topic]})
        counts = Counter((row.partition, row.key) for row in rows if row.key and not row.key.startswith(_CLOSING))
        return bool(counts) and max(counts.values()) == 1

    def _records(self, partitions: int, count: int, keys: int | None = None) -> list[Made]:
        return [self._record(partitions, keys) for _ in range(count)]

    def _record(self, partitions: int, keys: int | None) -> Made:
        noise = self.noise
        self._serial += 1
        if keys is None:
            key = noise.choice([None, b"", b"k%d" % noise.randrange(20), noise.randbytes(noise.randrange(1, 40))])
        else:
            key = b"key-%d" % noise.randrange(keys)
        value = noise.choice([None, b"", b"%d" % self._serial, noise.randbytes(noise.randrange(1, 300)), b"tide " * 30])
        names = ("a", "a", "trace", "", "größe-名前")
        headers: Headers = [
            (noise.choice(names), noise.choice([None, b"", noise.randbytes(8)])) for _ in range(noise.randrange(4))
        ]
        timestamp_ms = _START_MS + self._serial * 10 + noise.randrange(-1000, 1000)
        return Made(noise.randrange(partitions), key, value, headers, timestamp_ms)

    def _end(self, writer: Producer) -> None:
        if self.noise.random() < 0.6:
            writer.commit_transaction(PATIENCE_S)
        else:
            assert writer.flush(PATIENCE_S) == 0
            writer.abort_transaction(PATIENCE_S)

    def _producer(self, codec: str, batch: int = 7, transactional_id: str | None = None) -> Producer:
        settings: dict[str, str | int | float | bool | None] = {
            "bootstrap.servers": self.broker.bootstrap,
            "compression.type": codec,
            "batch.num.messages": batch,
            "enable.idempotence": True,
        }
        if transactional_id is not None:
            # As long as brokers allow: what is left open stays so while others read.
            settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
        return Producer(settings)

    def _transactional(self, codec: str, batch: int = 4) -> Producer:
        self._serial += 1
        producer = self._producer(codec, batch, f"{self.prefix}{self._serial}")
        producer.init_transactions(PATIENCE_S)
        return producer


def _send(producer: Producer, topic: str, records: Iterable[Made]) -> None:
    for each in records:
        producer.produce(
            topic,
            each.value,
            each.key,
            partition=each.partition,
            headers=each.headers,  # type: ignore[arg-type]
            timestamp=each.timestamp_ms,
        )
