"""The text files: Kafka's layout, and a clear word about everything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.checkpoints import (
    CheckpointDamaged,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    format_properties,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
)
from tidelog.storage.epochs import EpochStart
from tidelog.types import TopicId, TopicPartition

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
offsets = st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 10**6)), st.integers(0, 2**63 - 1))


def test_offsets_look_like_kafkas() -> None:
    data = format_offsets({TopicPartition("b", 0): 7, TopicPartition("a", 10): 0, TopicPartition("a", 9): 12})
    assert data == b"0\n3\na 9 12\na 10 0\nb 0 7\n"
    assert format_offsets({}) == b"0\n0\n"


@given(offsets)
def test_offsets_are_read_back(values: dict[TopicPartition, int]) -> None:
    assert parse_offsets(format_offsets(values)) == values


def test_epochs_look_like_kafkas() -> None:
    starts = [EpochStart(0, 0), EpochStart(3, 17)]
    assert format_epochs(starts) == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs(format_epochs(starts)) == starts


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0 5\nb 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na b 5\n",
        b"0\n1\na 0 five\n",
        b"0\n1\na 0 99999999999999999999\n",
        b"0\nmany\n",
        b"\xff\xfe",
    ],
)
def test_damaged_offsets_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        parse_offsets(data)


@pytest.mark.parametrize(
    "data", [b"0\n2\n3 0\n1 5\n", b"0\n2\n1 5\n2 4\n", b"0\n1\n-1 0\n", b"0\n1\n1 -5\n", b"0\n1\n1\n", b"0\n1\n1 2 3\n"]
)
def test_epochs_that_go_back_or_are_not_epochs_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        parse_epochs(data)


@given(st.binary(max_size=80))
def test_no_garbage_does_more_harm_than_that(data: bytes) -> None:
    for parse in (parse_offsets, parse_epochs, parse_partition_metadata, parse_properties):
        with contextlib.suppress(CheckpointDamaged):
            parse(data)


def test_partition_metadata_names_the_topic_id() -> None:
    topic_id = TopicId(bytes(range(16)))
    data = format_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert parse_partition_metadata(data) == topic_id
    for bad in (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", b"version: 0\n", b"version: 0\ntopic_id: ?\n"):
        with pytest.raises(CheckpointDamaged):
            parse_partition_metadata(bad)


def test_properties_are_javas_plain_kind() -> None:
    assert format_properties({"b": "2", "a": "1"}) == b"a=1\nb=2\n"
    assert parse_properties(b"# written by hand\n\n! too\n a = 1 \nb=x=y\n") == {"a": "1", "b": "x=y"}
    with pytest.raises(CheckpointDamaged):
        parse_properties(b"just words")
