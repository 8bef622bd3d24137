from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python  # type: ignore[import-untyped]

from tidelog.client.partitioner import StickyPartitioner, partition_for_key
from tidelog.records.key_hash import murmur2

# From the tests of other clients: signed there, unsigned here.
KNOWN_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KNOWN_HASHES.items())
def test_hashes_are_those_that_all_clients_share(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFF_FFFF


@given(st.binary(max_size=200))
def test_hashes_agree_with_another_client(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFF_FFFF


@given(st.binary(max_size=40), st.integers(1, 5000))
def test_a_key_has_one_partition(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) == (murmur2_of_kafka_python(key) & 0x7FFF_FFFF) % count


def test_keyless_records_stay_until_they_are_moved_on() -> None:
    sticky = StickyPartitioner(random.Random(1))
    first = sticky.choose("t", range(4))
    assert {sticky.choose("t", range(4)) for _ in range(20)} == {first}
    sticky.move_on("t", range(4))
    assert sticky.choose("t", range(4)) != first


def test_a_partition_that_is_gone_is_left() -> None:
    sticky = StickyPartitioner(random.Random(1))
    first = sticky.choose("t", range(4))
    others = [partition for partition in range(4) if partition != first]
    assert sticky.choose("t", others) in others


def test_the_only_partition_is_kept() -> None:
    sticky = StickyPartitioner()
    assert sticky.choose("t", range(1)) == 0
    sticky.move_on("t", range(1))
    assert sticky.choose("t", range(1)) == 0


def test_topics_do_not_share_their_choice() -> None:
    sticky = StickyPartitioner(random.Random(1))
    sticky.choose("a", [3])
    assert sticky.choose("b", [1]) == 1
    assert sticky.choose("a", [1, 2, 3]) == 3
