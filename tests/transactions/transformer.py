"""One instance of a consume-transform-produce loop as a process of its own, to be paused or killed at any step.

    python transformer.py --bootstrap B --transactional-id I --group G --input T --output T ...

It copies every record, value and key, from the input to the same partition of the output, and commits how far it has
read in the same transaction. Every line it prints is one JSON object:

    {"step": "begun"|"produced"|"offset"|"committing"|"committed"|"aborted", "values": [...]}
    {"step": "ready"}                      its transactional id is its own, and it reads
    {"step": "restarting"}                 its client hangs, so it becomes another process
    {"step": "failed", "error": "..."}     the client gave up; the process ends with 3
    {"step": "closed"}                     it ended cleanly, since its standard input ended

At the step that --pause-at names, the first time it comes there, it waits for a line on its standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

CALL_S = 60.0
STUCK_S = 15.0
POLL_S = 0.1


class FatalError(Exception):
    """The client cannot go on."""


class Steps:
    """Tells where the loop is, and holds it there if asked to."""

    def __init__(self, pause_at: str | None) -> None:
        self._pause_at = pause_at
        self._may_go_on = threading.Event()
        self.ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for _line in sys.stdin:
            self._may_go_on.set()
        self.ended.set()
        self._may_go_on.set()

    def at(self, step: str, **more: Any) -> None:
        sys.stdout.write(json.dumps({"step": step, **more}) + "\n")
        sys.stdout.flush()
        if step == self._pause_at:
            self._pause_at = None
            self._may_go_on.wait()


class Transformer:
    def __init__(self, options: argparse.Namespace, steps: Steps) -> None:
        self._options = options
        self._steps = steps
        self._turns = 0
        common = {
            "bootstrap.servers": options.bootstrap,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.interval.ms": 2000,
            # A broker that is paused answers nothing, and nobody closes its connections.
            "socket.timeout.ms": min(10_000, options.transaction_ms),
            # A broker that is forgotten and found again is one that librdkafka waits for in vain (its issue 5511).
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._producer = Producer(
            {
                **common,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_ms,
                "linger.ms": 0,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": options.group,
                "group.protocol": options.protocol,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                **({"session.timeout.ms": options.session_ms} if options.protocol == "classic" else {}),
            }
        )

    def run(self) -> None:
        self._call(lambda: self._producer.init_transactions(CALL_S))
        # Without callbacks partitions may come and go at any time; with them, between two turns only: what a turn has
        # read belongs to the membership that it commits with.
        self._consumer.subscribe([self._options.input], on_assign=_in_turn, on_revoke=_in_turn, on_lost=_in_turn)
        self._steps.at("ready")
        while not self._steps.ended.is_set():
            self._turn()
        self._consumer.close()

    def _turn(self) -> None:
        messages = [m for m in self._consumer.consume(self._options.batch, POLL_S) if m.error() is None]
        if not messages:
            return
        self._turns += 1
        values = [_text(message) for message in messages]
        aborts = self._options.abort_every and self._turns % self._options.abort_every == 0
        try:
            self._call(self._producer.begin_transaction)
            self._steps.at("begun", values=values)
            self._produce(messages)
            self._steps.at("produced", values=values)
            self._call(lambda: self._commit_positions(messages))
            self._steps.at("offset", values=values)
            if aborts:
                self._call(lambda: self._producer.abort_transaction(CALL_S))
            else:
                self._steps.at("committing", values=values)
                self._call(lambda: self._producer.commit_transaction(CALL_S))
                self._steps.at("committed", values=values)
                return
        except _MustAbortError:
            self._call(lambda: self._producer.abort_transaction(CALL_S))
        self._steps.at("aborted", values=values)
        self._rewind()

    def _produce(self, messages: list[Message]) -> None:
        for message in messages:
            partition = message.partition()
            assert partition is not None
            self._producer.produce(self._options.output, message.value(), message.key(), partition)
        self._call(lambda: self._producer.flush(CALL_S))

    def _commit_positions(self, messages: list[Message]) -> None:
        after = {(str(message.topic()), message.partition() or 0): (message.offset() or 0) + 1 for message in messages}
        positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in after.items()]
        # The client may wait for ever for a group coordinator that is gone (librdkafka's issue 5511).
        watchdog = threading.Timer(STUCK_S, self._restart)
        watchdog.start()
        try:
            self._producer.send_offsets_to_transaction(positions, self._consumer.consumer_group_metadata(), CALL_S)
        finally:
            watchdog.cancel()

    def _restart(self) -> None:
        self._steps.at("restarting")
        kept = [argument for argument in sys.argv if not argument.startswith("--pause-at")]
        os.execv(sys.executable, [sys.executable, *kept])

    def _rewind(self) -> None:
        """Goes back to where the last committed transaction of anybody ended."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        for place in self._patiently(lambda: self._consumer.committed(assigned, CALL_S)):
            offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
            self._patiently(lambda place=place, offset=offset: self._seek(place, offset))  # type: ignore[misc]

    def _seek(self, place: TopicPartition, offset: int) -> None:
        try:
            self._consumer.seek(TopicPartition(place.topic, place.partition, offset))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # taken away meanwhile
                raise

    @staticmethod
    def _patiently(call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except KafkaException as error:
                if error.args[0].fatal():
                    raise FatalError(error.args[0].name()) from error

    @staticmethod
    def _call(call: Callable[[], Any]) -> None:
        """As librdkafka wants it: what may be tried again is tried again, what wants an abort gets one."""
        while True:
            try:
                call()
            except KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    raise _MustAbortError(error.name()) from raised
                if not error.retriable():
                    raise FatalError(error.name()) from raised
            else:
                return


class _MustAbortError(Exception):
    pass


def _in_turn(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
    """What is done by itself is all that there is to do."""


def _text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "transactional-id", "group", "input", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--pause-at")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--abort-every", type=int, default=0)
    parser.add_argument("--transaction-ms", type=int, default=60_000)
    parser.add_argument("--session-ms", type=int, default=6000)
    return parser.parse_args()


def main() -> int:
    options = parse()
    steps = Steps(options.pause_at)
    try:
        Transformer(options, steps).run()
    except (FatalError, _MustAbortError) as error:
        steps.at("failed", error=str(error))
        return 3
    steps.at("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
