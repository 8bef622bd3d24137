"""A stream that begins with a checkpoint: its own after what happened meanwhile, or one that another query has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from source_driving import Query, create, numbers, produce, stop_readers, stream_reader, values, with_admin

from tidelog.client import TopicPartition
from tidelog.pipelines.source.errors import DataLost, ForeignCheckpoint
from tidelog.pipelines.source.marks import TOPIC_IDS, Mark
from tidelog.types import ZERO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = TopicId(bytes(range(16)))


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    stop_readers()


def test_marks_are_what_their_documents_say() -> None:
    positions = {TopicPartition("b", 1): 3, TopicPartition("a", 10): 2, TopicPartition("b", 0): 1}
    ids = {TopicPartition("b", 0): ORDERS, TopicPartition("b", 1): ORDERS, TopicPartition("a", 10): ZERO_TOPIC_ID}
    mark = Mark.of(positions, ids)
    document = mark.to_document()
    assert document == {"a": {"10": 2}, "b": {"0": 1, "1": 3}, TOPIC_IDS: {"b": "AAECAwQFBgcICQoLDA0ODw"}}
    assert list(document) == ["a", "b", TOPIC_IDS], "sorted: Spark compares them as text"
    assert Mark.from_document(document) == mark
    assert mark.partitions == {TopicPartition("b", 0): ORDERS, TopicPartition("b", 1): ORDERS}


def test_marks_of_sparks_own_source_have_positions_only() -> None:
    mark = Mark.from_document({"a": {"10": 2}})
    assert mark == Mark({TopicPartition("a", 10): 2})
    assert mark.to_document() == {"a": {"10": 2}}


@pytest.mark.parametrize(
    "document",
    [7, None, "latest", {"logOffset": 3}, {"orders": {"zero": 1}}, {"orders": {"0": None}}, {TOPIC_IDS: {"a": "b"}}],
)
def test_what_another_kind_of_source_left_is_refused(document: Any) -> None:
    with pytest.raises(ForeignCheckpoint, match=r"are no positions in topics: it is the checkpoint of another query"):
        Mark.from_document(document)


@pytest.mark.parametrize("planned", [False, True], ids=["between batches", "within a batch"])
def test_a_checkpoint_of_another_topic_is_refused(bootstrap: str, topic: str, planned: bool) -> None:
    create(bootstrap, topic)
    create(bootstrap, f"{topic}-other")
    produce(bootstrap, topic, numbers(0, 10))
    produce(bootstrap, f"{topic}-other", numbers(0, 20))
    other = Query(stream_reader(bootstrap, subscribe=f"{topic}-other", startingOffsets="earliest"))
    batch = other.plan()
    assert batch is not None
    query = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest"), start=batch[1])
    with pytest.raises(ForeignCheckpoint) as caught:
        query.read(*batch) if planned else query.step()
    assert str(caught.value).startswith(
        f"the checkpoint has positions in {topic}-other-0, but this query reads topics {topic}: it is the checkpoint "
        "of another query, or the query was changed. Nothing was read."
    )


@pytest.mark.parametrize(
    "reads",
    [{"subscribe": "{}"}, {"subscribePattern": "{}"}, {"assign": '{{"{}": [0]}}'}],
    ids=["subscribe", "pattern", "assign"],
)
def test_a_query_may_read_less_than_before_if_it_says_so(
    bootstrap: str, topic: str, reads: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    start = {topic: {"0": 4}, f"{topic}-other": {"0": 20, "1": 3}}
    less = {name: value.format(topic) for name, value in reads.items()}
    with pytest.raises(ForeignCheckpoint, match=f"positions in {topic}-other-0, {topic}-other-1, but"):
        Query(stream_reader(bootstrap, **less), start=start).step()
    query = Query(stream_reader(bootstrap, failOnDataLoss="false", **less), start=start)
    assert values(query.step()) == numbers(4, 10)
    assert Mark.from_document(query.start).positions == {TopicPartition(topic, 0): 10}
    assert caplog.text.count("DATA LOSS: the checkpoint has positions") == 1


def replace_topic(bootstrap: str, topic: str, count: int) -> None:
    with_admin(bootstrap, lambda admin: admin.delete_topic(topic))
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(100, 100 + count))


@pytest.mark.parametrize("count", [3, 10, 50], ids=["shorter", "as long", "longer"])
def test_a_topic_created_anew_while_the_query_was_down(
    bootstrap: str, topic: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    before = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest"))
    before.next_batch()
    replace_topic(bootstrap, topic, count)
    with pytest.raises(DataLost, match=f"{topic}-0: .* topic {topic} was deleted and created anew"):
        Query(stream_reader(bootstrap, subscribe=topic), start=before.start).step()
    query = Query(stream_reader(bootstrap, subscribe=topic, failOnDataLoss="false"), start=before.start)
    found: list[bytes] = []
    while len(found) < count:
        found += values(query.next_batch())
    assert found == numbers(100, 100 + count)
    assert "DATA LOSS" in caplog.text
    again = Query(stream_reader(bootstrap, subscribe=topic), start=query.start)
    assert again.step() is None, "the mark is of the new topic now"


def test_a_batch_of_a_topic_created_anew_is_not_read_from_its_successor(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, numbers(0, 10))
    before = Query(stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest"))
    batch = before.plan()
    assert batch is not None
    replace_topic(bootstrap, topic, 50)
    strict = Query(stream_reader(bootstrap, subscribe=topic), start=batch[1])
    with pytest.raises(DataLost, match=f"offsets 0 to 9 were to be read, but topic {topic} was deleted and created"):
        strict.read(*batch)
    lenient = Query(stream_reader(bootstrap, subscribe=topic, failOnDataLoss="false"), start=batch[1])
    assert lenient.read(*batch) == []
    assert "DATA LOSS" in caplog.text
    planned = lenient.plan()
    assert planned is not None
    assert values(lenient.read(*planned)) == numbers(100, 150)
    later = Query(stream_reader(bootstrap, subscribe=topic), start=planned[0])
    assert values(later.read(*planned)) == numbers(100, 150), "as it was planned, though the driver has died since"
