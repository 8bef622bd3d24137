"""What can be set on a sink, what the checkpoint tells, and how processes name their transactions."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from tidelog.pipelines.options import OptionError
from tidelog.pipelines.sink.batch import batch_writer
from tidelog.pipelines.sink.checkpoint import offsets_in, place_of, source_offsets
from tidelog.pipelines.sink.client_settings import as_consumer
from tidelog.pipelines.sink.options import SinkOptions
from tidelog.pipelines.sink.processes import Places, WritingProcess

AT = {"kafka.bootstrap.servers": "localhost:9092"}


def test_exactly_once_is_the_default_and_transactions_last_as_long_as_they_may() -> None:
    options = SinkOptions.of({**AT, "topic": "t", "checkpointLocation": "/c", "queryName": "q"})
    assert options.exactly_once
    assert (options.topic, options.checkpoint) == ("t", "/c")
    assert options.producer.bootstrap_servers == ("localhost:9092",)
    assert options.producer.transaction_timeout_ms == 900_000


def test_settings_of_the_client_are_passed_on() -> None:
    options = SinkOptions.of(
        {**AT, "delivery": "At-Least-Once", "kafka.compression.type": "lz4", "kafka.security.protocol": "SSL"}
    )
    assert not options.exactly_once
    assert options.topic is None
    assert options.producer.compression_type == "lz4"
    reader = as_consumer(options.producer)
    assert (reader.security_protocol, reader.isolation_level) == ("SSL", "read_committed")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"delivery": "at-most-once"}, "exactly-once or at-least-once"),
        ({"topik": "t"}, "did you mean topic"),
        ({"kafka.transactional.id": "mine"}, "names its transactions itself"),
        ({"kafka.enable.idempotence": "false"}, "always on"),
        ({"kafka.acks": "1"}, "acks"),
        ({"kafka.compresion.type": "lz4"}, "kafka.compression.type"),
    ],
)
def test_what_makes_no_sense_is_said(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SinkOptions.of({**AT, **given})


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(OptionError, match="append"):
        batch_writer({**AT, "topic": "t"}, StructType([StructField("value", StringType())]), overwrite=True)


# --- the checkpoint ---


def test_the_offsets_of_a_batch_are_those_of_its_sources(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}\n-\n')
    found = source_offsets(str(tmp_path), 3)
    assert found is not None
    assert found.text == '{"t":{"0":5}}\n-'
    assert source_offsets(f"file:{tmp_path}/", 3) == found
    assert source_offsets(f"file://{tmp_path}", 3) == found


def test_other_times_are_the_same_input() -> None:
    one, other = (offsets_in(f'v1\n{{"batchTimestampMs":{ms}}}\n{{"0":5}}') for ms in (1, 2))
    assert one is not None
    assert one == other


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "something else\n\n{}"])
def test_other_files_tell_nothing(text: str) -> None:
    assert offsets_in(text) is None


@pytest.mark.parametrize("place", ["/nowhere/at/all", "noscheme:/x", "s9://bucket/x"])
def test_a_checkpoint_that_cannot_be_read_is_no_failure(place: str) -> None:
    assert source_offsets(place, 0) is None


def test_one_place_has_one_name() -> None:
    assert {place_of(each) for each in ("/a/b", "/a/b/", "file:/a/b", "file:///a/b/", " /a/b")} == {
        f"file://{socket.gethostname()}/a/b"
    }
    assert place_of("here") == place_of(str(Path.cwd() / "here"))
    assert place_of("hdfs://h:1/a/") == "hdfs://h:1/a"


# --- the processes of tasks ---


@given(st.lists(st.integers(0, 3)))
def test_no_two_open_transactions_of_a_process_share_a_name(batches: list[int]) -> None:
    """Whatever comes: tasks of the newest batch never get a name that another task of it has, nor does a late one."""
    places = Places()
    taken: set[int] = set()
    newest = -1
    for batch in batches:
        if batch > newest:
            newest, taken = batch, set()
        place = places.take(batch)
        assert place not in taken
        taken.add(place)


def test_processes_have_names_of_their_own() -> None:
    assert WritingProcess().name != WritingProcess().name
