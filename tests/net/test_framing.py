from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.net.framing import FrameDecoder, FrameError

FRAMES = st.lists(st.binary(max_size=300), max_size=20)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def chopped(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(places)]


@given(frames=FRAMES, cuts=st.lists(st.integers(min_value=0), max_size=30))
def test_any_chopping_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    decoder = FrameDecoder(max_bytes=300)
    seen: list[bytes] = []
    for chunk in chopped(b"".join(map(framed, frames)), cuts):
        seen += decoder.feed(chunk)
    assert seen == frames
    assert decoder.held_bytes == 0


@given(stream=st.binary(max_size=400), cuts=st.lists(st.integers(min_value=0), max_size=10))
def test_any_bytes_give_frames_or_a_frame_error(stream: bytes, cuts: list[int]) -> None:
    decoder = FrameDecoder(max_bytes=64)
    try:
        for chunk in chopped(stream, cuts):
            assert all(len(frame) <= 64 for frame in decoder.feed(chunk))
    except FrameError:
        pass


def test_an_incomplete_frame_is_held() -> None:
    decoder = FrameDecoder(max_bytes=100)
    assert decoder.feed(framed(b"whole") + framed(b"torn")[:-1]) == [b"whole"]
    assert decoder.held_bytes == 7
    assert decoder.feed(b"n") == [b"torn"]


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(FrameError, match=str(length)):
        FrameDecoder(max_bytes=100).feed(struct.pack(">i", length))


def test_an_announced_length_allocates_nothing() -> None:
    decoder = FrameDecoder(max_bytes=100 << 20)
    tracemalloc.start()
    try:
        assert decoder.feed(struct.pack(">i", 100 << 20)) == []
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("max_bytes", [1000, 2**31 - 1])
def test_tls_is_recognised(max_bytes: int) -> None:
    with pytest.raises(FrameError, match="speaks TLS"):
        FrameDecoder(max_bytes).feed(bytes.fromhex("16030100f8010000"))


@pytest.mark.parametrize("max_bytes", [1000, 2**31 - 1])
@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n", b"POST /topics HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n"])
def test_http_is_recognised(opening: bytes, max_bytes: int) -> None:
    with pytest.raises(FrameError, match="speaks HTTP"):
        FrameDecoder(max_bytes).feed(opening)


def test_another_protocol_is_not_waited_for_under_a_huge_limit() -> None:
    with pytest.raises(FrameError, match="does not speak Kafka's protocol"):
        FrameDecoder(2**31 - 1).feed(b"SSH-2.0-OpenSSH")


def test_only_an_opening_is_taken_for_another_protocol() -> None:
    decoder = FrameDecoder(max_bytes=2**31 - 1)
    decoder.feed(framed(b"hello"))
    assert decoder.feed(bytes.fromhex("16030100")) == []
