"""Prebuilt frames are what they claim to be: a broker takes them, and their sizes are exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.frames import FETCH_VERSION, PRODUCE_VERSION, exact_batch, fetch_frames, produce_frame, tiny_frame
from tidelog.config.topic import TopicConfig
from tidelog.records.record import iter_records
from tidelog.records.validate import check_produced
from tidelog.wire.codec import decode
from tidelog.wire.headers import read_request_header, skip_header_tags
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.produce import ProduceRequest

NOW_MS = 1_700_000_000_000


@given(st.integers(min_value=2_100, max_value=70_000))
def test_a_batch_of_any_usual_size_is_exact_and_valid(size: int) -> None:
    batch = exact_batch(size, NOW_MS)
    assert len(batch.data) == size
    header = check_produced(memoryview(bytearray(batch.data)), TopicConfig(), NOW_MS)
    assert header.record_count == batch.records
    assert len(list(iter_records(batch.data))) == batch.records


def test_a_size_that_no_batch_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no batch"):
        exact_batch(61, NOW_MS)


def test_a_produce_frame_holds_one_batch_for_one_partition() -> None:
    one = produce_frame("t", 4096, NOW_MS)
    frame = memoryview(one.frame)[4:]
    header = read_request_header(frame)
    request = decode(ProduceRequest, frame, PRODUCE_VERSION, skip_header_tags(frame, header.body))
    assert (header.api, header.version, request.acks) == (0, PRODUCE_VERSION, 1)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert len(records) == 4096


def test_fetch_frames_ask_for_their_offsets_one_after_the_other() -> None:
    offsets = []
    for data in fetch_frames("t", [0, 70], 1 << 20):
        frame = memoryview(data)[4:]
        position = skip_header_tags(frame, read_request_header(frame).body)
        request = decode(FetchRequest, frame, FETCH_VERSION, position)
        offsets.append(request.topics[0].partitions[0].fetch_offset)
    assert offsets == [0, 70]


def test_the_tiny_frame_is_tiny() -> None:
    assert len(tiny_frame()) < 32
