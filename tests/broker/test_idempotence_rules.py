"""Idempotent producers: ids, epochs, and the window of sequence numbers that keeps retries from storing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import batch_of, create_topic, new_producer_id, produce, try_produce, values_in

from tidelog.errors import ErrorCode
from tidelog.testing import RawClient
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.testing import StartBroker

MAX_SEQUENCE = 2**31 - 1


def sequenced(producer_id: int, sequence: int, values: list[bytes], epoch: int = 0) -> bytearray:
    return batch_of(values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def outcome(
    client: RawClient, topic: str, producer_id: int, sequence: int, values: list[bytes], *, epoch: int = 0
) -> tuple[int, int]:
    result = try_produce(client, topic, sequenced(producer_id, sequence, values, epoch))
    return result.error_code, result.base_offset


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own_and_epoch_0(raw: RawClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    replies = [raw.call(request, version, InitProducerIdResponse) for _ in range(5)]
    assert all(reply.error_code == ErrorCode.NONE and reply.producer_epoch == 0 for reply in replies)
    assert len({reply.producer_id for reply in replies}) == 5
    assert all(reply.producer_id >= 0 for reply in replies)


def test_producer_ids_are_not_given_out_again_after_a_crash(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    seen: set[int] = set()
    for _ in range(3):
        with RawClient(broker.port) as client:
            seen.update(new_producer_id(client)[0] for _ in range(20))
        broker.kill()
        broker.start()
    with RawClient(broker.port) as client:
        seen.add(new_producer_id(client)[0])
    assert len(seen) == 61


def test_a_repeated_batch_is_answered_with_its_first_offset_and_stored_once(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, 0, [b"a", b"b"]) == (ErrorCode.NONE, 0)
    produce(raw, topic, batch_of([b"someone else's"]))
    assert outcome(raw, topic, producer, 2, [b"c"]) == (ErrorCode.NONE, 3)
    assert outcome(raw, topic, producer, 0, [b"a", b"b"]) == (ErrorCode.NONE, 0)
    assert outcome(raw, topic, producer, 2, [b"c"]) == (ErrorCode.NONE, 3)
    assert values_in(raw, topic) == [b"a", b"b", b"someone else's", b"c"]


def test_five_batches_are_remembered_and_the_sixth_is_too_old(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    for sequence in range(6):
        assert outcome(raw, topic, producer, sequence, [b"%d" % sequence]) == (ErrorCode.NONE, sequence)
    for sequence in range(1, 6):
        assert outcome(raw, topic, producer, sequence, [b"%d" % sequence]) == (ErrorCode.NONE, sequence)
    code, _offset = outcome(raw, topic, producer, 0, [b"0"])
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_in(raw, topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_gap_in_the_sequence_is_refused_and_nothing_is_stored(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, 0, [b"a"])[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 2, [b"c"]) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert outcome(raw, topic, producer, 1, [b"b"])[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 2, [b"c"])[0] == ErrorCode.NONE
    assert values_in(raw, topic) == [b"a", b"b", b"c"]


def test_a_batch_that_overlaps_a_stored_one_is_refused(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, 0, [b"a", b"b", b"c"])[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 1, [b"b", b"c", b"d"])[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(raw, topic, producer, 0, [b"a", b"b"])[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_in(raw, topic) == [b"a", b"b", b"c"]


def test_sequences_wrap_around_to_zero(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, MAX_SEQUENCE - 1, [b"a"])[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, MAX_SEQUENCE, [b"b", b"c"])[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 1, [b"d"]) == (ErrorCode.NONE, 3)
    assert outcome(raw, topic, producer, MAX_SEQUENCE, [b"b", b"c"]) == (ErrorCode.NONE, 1)


def test_an_unknown_producer_may_start_at_any_sequence(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, 1234, [b"a"]) == (ErrorCode.NONE, 0)
    assert outcome(raw, topic, producer, 1235, [b"b"]) == (ErrorCode.NONE, 1)


def test_a_new_epoch_must_start_at_sequence_0(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, 0, [b"a"])[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 1, [b"b"], epoch=1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(raw, topic, producer, 0, [b"b"], epoch=1)[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 1, [b"c"], epoch=1)[0] == ErrorCode.NONE


def test_an_older_epoch_is_fenced(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    assert outcome(raw, topic, producer, 0, [b"a"], epoch=3)[0] == ErrorCode.NONE
    assert outcome(raw, topic, producer, 1, [b"b"], epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert values_in(raw, topic) == [b"a"]


def test_producers_and_partitions_have_sequences_of_their_own(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=2)
    first, _epoch = new_producer_id(raw)
    second, _epoch = new_producer_id(raw)
    for partition in (0, 1):
        for producer in (first, second):
            batch = sequenced(producer, 0, [b"x"])
            assert try_produce(raw, topic, batch, partition).error_code == ErrorCode.NONE
    assert len(values_in(raw, topic, 0)) == len(values_in(raw, topic, 1)) == 2


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_sequences_survive_a_restart(fresh_broker: StartBroker, ending: str) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        producer, _epoch = new_producer_id(client)
        for sequence in range(4):
            assert outcome(client, "t", producer, sequence, [b"%d" % sequence]) == (ErrorCode.NONE, sequence)
    if ending == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        assert outcome(client, "t", producer, 3, [b"3"]) == (ErrorCode.NONE, 3)
        assert outcome(client, "t", producer, 9, [b"9"])[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert outcome(client, "t", producer, 4, [b"4"]) == (ErrorCode.NONE, 4)
        assert values_in(client, "t") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_a_producer_id_without_epoch_or_sequence_is_refused(
    raw: RawClient, topic: str, epoch: int, sequence: int
) -> None:
    create_topic(raw, topic)
    producer, _epoch = new_producer_id(raw)
    code, _offset = outcome(raw, topic, producer, sequence, [b"x"], epoch=epoch)
    assert code == ErrorCode.INVALID_RECORD
