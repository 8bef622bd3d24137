"""Queries of a pipeline begin together in topics that are read from their end, whenever each of them starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from source_driving import Query, create, produce, source, stop_readers, stream_reader, values, with_admin

from tidelog.client import TopicPartition
from tidelog.pipelines.options import OptionError
from tidelog.pipelines.runner.beginnings import Beginnings
from tidelog.pipelines.runner.directory import PipelineDirectory
from tidelog.pipelines.source.errors import DataLost, TopicMissing
from tidelog.pipelines.source.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    stop_readers()


@pytest.fixture
def directory(tmp_path: Path) -> PipelineDirectory:
    directory = PipelineDirectory(tmp_path, "sales")
    directory.path.mkdir()
    return directory


class Run:
    """One run of a pipeline with a source, of which queries start one by one."""

    def __init__(self, directory: PipelineDirectory, bootstrap: str, *groups: str, **options: str) -> None:
        self._options = {group: {"kafka.group.id": group, **source(bootstrap, **options).options} for group in groups}
        self.beginnings = Beginnings(directory)
        self.beginnings.settle("orders", self._options)

    def start(self, group: str) -> Query:
        return Query(stream_reader("", **self.beginnings.within(self._options[group], "orders", group)))


@pytest.mark.parametrize(
    "starting",
    [
        {"startingOffsets": "latest"},
        {},
        {"startingOffsets": '{"TOPIC": {"0": -1}}'},
        {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"},
    ],
    ids=["latest", "default", "by partition", "by time"],
)
def test_queries_begin_together(
    bootstrap: str, topic: str, directory: PipelineDirectory, starting: dict[str, str]
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"before"])
    options = {name: text.replace("TOPIC", topic) for name, text in starting.items()}
    run = Run(directory, bootstrap, "sink", "letters", subscribe=topic, **options)
    sink = run.start("sink")
    produce(bootstrap, topic, [b"between"])
    letters = run.start("letters")
    assert values(sink.next_batch()) == values(letters.next_batch()) == [b"between"]


def test_a_query_that_did_not_start_begins_with_the_others_in_the_next_run(
    bootstrap: str, topic: str, directory: PipelineDirectory
) -> None:
    create(bootstrap, topic)
    Run(directory, bootstrap, "sink", "letters", subscribe=topic, startingOffsets="latest")
    produce(bootstrap, topic, [b"between"])
    later = Run(directory, bootstrap, "sink", "letters", "new", subscribe=topic, startingOffsets="latest")
    produce(bootstrap, topic, [b"after"])
    assert values(later.start("letters").next_batch()) == [b"between", b"after"]
    assert values(later.start("new").next_batch()) == [b"after"], "a sink that is new begins at the end as it is now"


def test_nothing_is_settled_that_does_not_depend_on_when_it_is_asked(
    bootstrap: str, topic: str, directory: PipelineDirectory
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"first"])
    Run(directory, bootstrap, "sink", subscribe=topic, startingOffsets="latest")
    for options in ({"startingOffsets": "earliest"}, {"startingTimestamp": "0"}):
        run = Run(directory, bootstrap, "sink", subscribe=topic, **options)
        assert values(run.start("sink").next_batch()) == [b"first"], "what the pipeline says now is what counts"


def test_queries_that_share_a_group_begin_together_where_it_was(
    bootstrap: str, topic: str, directory: PipelineDirectory
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"done", b"to do"])
    at = TopicPartition(topic, 0)
    group = f"group of {topic}"
    with_admin(bootstrap, lambda admin: admin.alter_group_offsets(group, {at: 1}))
    own = {"subscribe": topic, "startingOffsets": "group", "kafka__group__id": group}
    run = Run(directory, bootstrap, "letters", "sink", **own)
    assert values(run.start("sink").next_batch()) == [b"to do"]
    with_admin(bootstrap, lambda admin: admin.alter_group_offsets(group, {at: 2}))
    assert values(run.start("letters").next_batch()) == [b"to do"], "though the group has moved on"


def test_groups_of_their_own_begin_where_each_of_them_was(
    bootstrap: str, topic: str, directory: PipelineDirectory
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"done", b"to do"])
    sink = f"sink of {topic}"
    with_admin(bootstrap, lambda admin: admin.alter_group_offsets(sink, {TopicPartition(topic, 0): 1}))
    run = Run(directory, bootstrap, "letters", sink, subscribe=topic, startingOffsets="group")
    assert values(run.start(sink).next_batch()) == [b"to do"]
    assert values(run.start("letters").next_batch()) == [b"done", b"to do"]


def test_a_query_that_has_begun_is_settled_no_more(bootstrap: str, topic: str, directory: PipelineDirectory) -> None:
    create(bootstrap, topic)
    options = {"subscribe": topic, "startingOffsets": "latest"}
    run = Run(directory, bootstrap, "sink", "letters", **options)
    run.beginnings.begun("sink")
    produce(bootstrap, topic, [b"between"])
    again = Run(directory, bootstrap, "sink", "letters", **options)
    produce(bootstrap, topic, [b"after"])
    assert values(again.start("letters").next_batch()) == [b"between", b"after"]
    assert again.start("sink").step() is None, "without its checkpoint, it begins at the end as it is now"


def test_another_place_to_begin_is_settled_anew(bootstrap: str, topic: str, directory: PipelineDirectory) -> None:
    create(bootstrap, topic)
    Run(directory, bootstrap, "sink", subscribe=topic, startingOffsets="latest")
    produce(bootstrap, topic, [b"between"])
    run = Run(directory, bootstrap, "sink", subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": -1}}}}')
    produce(bootstrap, topic, [b"after"])
    assert values(run.start("sink").next_batch()) == [b"after"]


@pytest.mark.parametrize("partition", [0, 1])
def test_what_cannot_be_settled_is_left_to_the_query(
    bootstrap: str, topic: str, directory: PipelineDirectory, partition: int
) -> None:
    """It may have a checkpoint, and not ask at all; or wait for the topic to be created."""
    if partition == 1:
        create(bootstrap, topic)
    offsets = f'{{"{topic}": {{"{partition}": -1}}}}'
    run = Run(directory, bootstrap, "sink", subscribe=topic, startingOffsets=offsets)
    with pytest.raises(TopicMissing if partition == 0 else OptionError):
        run.start("sink")


def test_a_beginning_is_that_of_what_was_read(bootstrap: str, topic: str, directory: PipelineDirectory) -> None:
    create(bootstrap, topic)
    create(bootstrap, f"{topic}-other")
    Run(directory, bootstrap, "sink", subscribe=topic, startingOffsets="latest")
    produce(bootstrap, f"{topic}-other", [b"before"])
    run = Run(directory, bootstrap, "sink", subscribe=f"{topic}-other", startingOffsets="latest")
    produce(bootstrap, f"{topic}-other", [b"after"])
    assert values(run.start("sink").next_batch()) == [b"after"]


def test_what_comes_into_being_later_is_read_from_its_beginning(
    bootstrap: str, topic: str, directory: PipelineDirectory
) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"before"])
    both = {"subscribe": f"{topic},{topic}-late", "startingOffsets": "latest"}
    run = Run(directory, bootstrap, "sink", **both)
    with pytest.raises(TopicMissing, match=f"topic {topic}-late does not exist"):
        run.start("sink")
    with_admin(bootstrap, lambda admin: admin.add_partitions(topic, 2))
    create(bootstrap, f"{topic}-late")
    produce(bootstrap, topic, [b"new partition"], partition=1)
    produce(bootstrap, f"{topic}-late", [b"new topic"])
    query = run.start("sink")
    found: list[bytes] = []
    while len(found) < 2:
        found += values(query.next_batch())
    assert sorted(found) == [b"new partition", b"new topic"]


def test_what_is_lost_before_a_query_starts_is_told(bootstrap: str, topic: str, directory: PipelineDirectory) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"before"])
    run = Run(directory, bootstrap, "sink", subscribe=topic, startingOffsets="latest")
    with_admin(bootstrap, lambda admin: admin.delete_topic(topic))
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"other", b"topic"])
    with pytest.raises(DataLost, match="was deleted and created anew"):
        run.start("sink").next_batch()


def test_marks_have_no_offsets_that_stand_for_places() -> None:
    text = '{"orders": {"0": -1}, "@topicIds": {}}'
    with pytest.raises(OptionError, match="offsets of at least 0"):
        SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "orders", "startingOffsets": text})


@pytest.mark.parametrize("text", ['{"@topicIds": 7}', '{"orders": 3, "@topicIds": {}}', '{"@topicIds"'])
def test_marks_that_are_none_are_refused(text: str) -> None:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders", "startingOffsets": text}
    with pytest.raises(OptionError, match="option startingOffsets is not what a checkpoint holds"):
        SourceOptions.parse(given)


def test_marks_are_for_streams() -> None:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a", "startingOffsets": '{"@topicIds": {}}'}
    with pytest.raises(OptionError, match="makes no sense in a batch"):
        SourceOptions.parse(given).for_batch()
