"""Incremental fetch sessions (KIP-227): only what changed travels, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from asking import batch_of, bytes_of, create_topic, delete_topic, produce

from tidelog.errors import ErrorCode
from tidelog.testing import RawClient
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.testing import BrokerProcess, StartBroker

NEW = 0
NONE = -1


class Session:
    """A client's half of a fetch session on one topic."""

    def __init__(self, client: RawClient, topic: str, version: int = 12, topic_id: bytes = bytes(16)) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = topic_id
        self.version = version
        self.id = 0
        self.epoch = NEW

    def fetch(
        self,
        offsets: Mapping[int, int] = {},
        forget: Iterable[int] = (),
        *,
        max_bytes: int = 50 << 20,
        max_wait_ms: int = 0,
    ) -> FetchResponse:
        partitions = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            for partition, offset in offsets.items()
        ]
        topics = [FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=partitions)] if partitions else []
        gone = list(forget)
        forgotten = [ForgottenTopic(topic=self.topic, topic_id=self.topic_id, partitions=gone)] if gone else []
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        response = self.client.call(request, self.version, FetchResponse)
        if response.error_code == ErrorCode.NONE and self.epoch != NONE:
            self.id = response.session_id
            self.epoch += 1
        return response


def partitions_in(response: FetchResponse) -> list[int]:
    assert response.error_code == ErrorCode.NONE, response
    return [data.partition_index for entry in response.responses for data in entry.partitions]


def with_data(topics: list[FetchableTopicResponse]) -> list[int]:
    return [data.partition_index for entry in topics for data in entry.partitions if bytes_of(data)]


def test_a_new_session_gets_an_id_and_lists_every_partition(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    session = Session(raw, topic)
    assert partitions_in(session.fetch({0: 0, 1: 0, 2: 0})) == [0, 1, 2]
    assert session.id > 0


def test_an_incremental_reply_without_changes_is_empty(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    session = Session(raw, topic)
    session.fetch({0: 0, 1: 0, 2: 0})
    reply = session.fetch()
    assert partitions_in(reply) == []
    assert reply.session_id == session.id


def test_an_incremental_reply_lists_only_partitions_with_news(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    session = Session(raw, topic)
    session.fetch({0: 0, 1: 0, 2: 0})
    produce(raw, topic, batch_of([b"news"]), 1)
    assert partitions_in(session.fetch()) == [1]
    assert partitions_in(session.fetch({1: 1})) == []


def test_a_partition_can_join_a_session_and_be_forgotten(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    for partition in range(3):
        produce(raw, topic, batch_of([b"x"]), partition)
    session = Session(raw, topic)
    assert partitions_in(session.fetch({0: 0})) == [0]
    assert sorted(partitions_in(session.fetch({2: 0}))) == [0, 2]
    assert partitions_in(session.fetch(forget=[0])) == [2]


def test_a_sessionless_fetch_gets_no_session(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    session = Session(raw, topic)
    session.epoch = NONE
    assert session.fetch({0: 0}).session_id == 0


def test_an_unknown_session_is_refused(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    session = Session(raw, topic)
    session.id, session.epoch = 123_456_789, 1
    assert session.fetch({0: 0}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("step", [-1, 1, 5])
def test_a_wrong_session_epoch_is_refused_and_the_session_lives_on(raw: RawClient, topic: str, step: int) -> None:
    create_topic(raw, topic)
    session = Session(raw, topic)
    session.fetch({0: 0})
    session.fetch()
    session.epoch += step
    assert session.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch -= step
    assert session.fetch().error_code == ErrorCode.NONE


def test_a_final_fetch_closes_its_session(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    session = Session(raw, topic)
    session.fetch({0: 0})
    epoch, session.epoch = session.epoch, NONE
    assert session.fetch().error_code == ErrorCode.NONE
    session.epoch = epoch
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_waits_for_news_of_all_its_partitions(raw: RawClient, topic: str, broker: BrokerProcess) -> None:
    create_topic(raw, topic, partitions=2)
    session = Session(raw, topic)
    session.fetch({0: 0, 1: 0})
    request = FetchRequest(
        max_wait_ms=600_000, min_bytes=1, session_id=session.id, session_epoch=session.epoch, topics=[]
    )
    waiting = raw.send(request, 12)
    with RawClient(broker.port) as other:
        produce(other, topic, batch_of([b"news"]), 1)
    assert partitions_in(raw.receive(FetchResponse, 12, waiting)) == [1]


def test_no_partition_starves_when_the_reply_holds_only_one(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic, partitions=3)
    for partition in range(3):
        produce(raw, topic, batch_of([bytes(1000)]), partition)
    session = Session(raw, topic)
    served = set(with_data(session.fetch({0: 0, 1: 0, 2: 0}, max_bytes=1).responses))
    for _ in range(5):
        served.update(with_data(session.fetch(max_bytes=1).responses))
    assert served == {0, 1, 2}


def test_errors_are_repeated_while_they_last(raw: RawClient, topic: str) -> None:
    create_topic(raw, topic)
    session = Session(raw, topic)
    for _ in range(3):
        reply = session.fetch({0: 99} if session.id == 0 else {})
        assert [data.error_code for entry in reply.responses for data in entry.partitions] == [
            ErrorCode.OFFSET_OUT_OF_RANGE
        ]


def test_a_session_notices_that_its_topic_was_created_anew(raw: RawClient, topic: str) -> None:
    old = create_topic(raw, topic)
    session = Session(raw, topic, version=13, topic_id=old)
    assert session.fetch({0: 0}).error_code == ErrorCode.NONE
    delete_topic(raw, topic)
    new = create_topic(raw, topic)
    produce(raw, topic, batch_of([b"of another life"]))
    reply = session.fetch()
    errors = [data.error_code for entry in reply.responses for data in entry.partitions]
    assert reply.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR or errors in (
        [ErrorCode.UNKNOWN_TOPIC_ID],
        [ErrorCode.INCONSISTENT_TOPIC_ID],
    )
    assert with_data(reply.responses) == []
    fresh = Session(raw, topic, version=13, topic_id=new)
    assert with_data(fresh.fetch({0: 0}).responses) == [0]


def test_a_session_does_not_change_from_names_to_ids(raw: RawClient, topic: str) -> None:
    topic_id = create_topic(raw, topic)
    session = Session(raw, topic, version=12)
    session.fetch({0: 0})
    session.version, session.topic_id = 13, topic_id
    assert session.fetch({0: 0}).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_number_of_sessions_is_bounded(fresh_broker: StartBroker) -> None:
    broker = fresh_broker({"max.incremental.fetch.session.cache.slots": "2"})
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        sessions = [Session(client, "t") for _ in range(5)]
        replies = [session.fetch({0: 0}) for session in sessions]
        assert all(reply.error_code == ErrorCode.NONE for reply in replies)
        kept = [session for session in sessions if session.id]
        assert len(kept) == 2, "the others are answered in full, without a session"
