from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.net.framing import FrameError
from tidelog.net.receive_buffer import LARGE_FRAME_BYTES, RETAINED_BYTES_MAX, SCRATCH_BYTES, ReceiveBuffer, Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 100 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Stream:
    """A connection in miniature: receives into the buffer what a socket with these bytes would give."""

    def __init__(self, scratch: Scratch, data: bytes = b"", max_bytes: int = MAX_BYTES) -> None:
        self.buffer = ReceiveBuffer(scratch, max_bytes)
        self.data = data
        self.frames: list[bytes] = []
        self.receives = 0

    def receive(self, at_most: int = 1 << 30) -> int:
        """One `recv_into`."""
        space = self.buffer.space()
        assert not space.readonly
        assert len(space) > 0
        chunk = self.data[: min(len(space), at_most)]
        space[: len(chunk)] = chunk
        self.data = self.data[len(chunk) :]
        self.buffer.received(len(chunk))
        self.receives += 1
        return len(chunk)

    def take_frames(self, at_most: int = 1 << 30, during: Callable[[], None] = lambda: None) -> None:
        for _ in range(at_most):
            frame = self.buffer.next_frame()
            if frame is None:
                break
            assert not frame.readonly
            during()
            self.frames.append(bytes(frame))

    def turn(self, at_most: int = 1 << 30) -> None:
        self.receive(at_most)
        self.take_frames()
        self.buffer.settle()

    def exhaust(self) -> None:
        while self.data:
            self.turn()


SIZES = st.one_of(
    st.integers(0, 40),
    st.sampled_from([4000, 4092, 4096, 5000, LARGE_FRAME_BYTES, LARGE_FRAME_BYTES + 1, SCRATCH_BYTES - 4]),
    st.sampled_from([SCRATCH_BYTES - 3, SCRATCH_BYTES, 70_000, 200_000, RETAINED_BYTES_MAX + 5]),
)


def payload_of(size: int, number: int) -> bytes:
    return struct.pack(">i", number)[:size] + bytes([number % 251]) * max(0, size - 4)


@settings(deadline=None)
@given(
    sizes=st.lists(st.lists(SIZES, max_size=12), min_size=2, max_size=3),
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([1, 3, 4, 1000, 5000, 65_536, 1 << 30]), st.integers(0, 4)),
        max_size=60,
    ),
)
def test_connections_that_share_a_scratch_get_their_own_frames(
    sizes: list[list[int]], steps: list[tuple[int, int, int]]
) -> None:
    scratch = Scratch()
    wanted = [[payload_of(size, number) for number, size in enumerate(row)] for row in sizes]
    streams = [Stream(scratch, b"".join(map(framed, row))) for row in wanted]
    paused: set[int] = set()
    for which, chunk, action in steps:
        stream = streams[which % len(streams)]
        if action == 4:
            stream.buffer.shrink()
            continue
        if id(stream) not in paused:
            stream.receive(chunk)
        # Sometimes only a few frames are handled, as when a connection is held; then nothing more is received.
        stream.take_frames(at_most=action or 1 << 30)
        stream.buffer.settle()
        paused.discard(id(stream))
        if action:
            paused.add(id(stream))
    for stream in streams:
        stream.take_frames()
        stream.exhaust()
        stream.take_frames()
    assert [stream.frames for stream in streams] == wanted
    assert all(stream.buffer.unhandled_bytes == 0 for stream in streams)


def test_a_frame_that_is_held_stays_while_others_receive() -> None:
    scratch = Scratch()
    holder = Stream(scratch, framed(b"first") + framed(b"second") + framed(b"torn")[:-2])
    holder.receive()
    frame = holder.buffer.next_frame()
    assert frame is not None
    holder.buffer.hold()
    holder.buffer.settle()
    other = Stream(scratch, framed(b"x" * 60_000))
    other.exhaust()
    assert other.frames == [b"x" * 60_000]
    assert bytes(frame) == b"first"
    holder.take_frames()
    holder.data = b"rn"
    holder.turn()
    assert holder.frames == [b"second", b"torn"]
    assert holder.buffer.capacity == 0


def test_held_memory_goes_back_to_the_scratch() -> None:
    scratch = Scratch()
    stream = Stream(scratch)
    first = scratch.view
    for _ in range(3):
        stream.data = framed(b"abc")
        stream.receive()
        stream.take_frames(at_most=1, during=stream.buffer.hold)
        stream.buffer.settle()
        stream.take_frames()
    assert stream.frames == [b"abc"] * 3
    scratch.replace()
    second = scratch.view
    scratch.replace()
    assert first is second or first is scratch.view


def test_a_surrendered_frame_belongs_to_its_holder() -> None:
    stream = Stream(Scratch(), framed(b"a" * 100_000) + framed(b"b" * 100_000) + framed(b"c"))
    kept: list[memoryview] = []
    while stream.data or stream.buffer.unhandled_bytes:
        stream.receive()
        while (frame := stream.buffer.next_frame()) is not None:
            stream.buffer.surrender()
            kept.append(frame)
        stream.buffer.settle()
    assert [bytes(frame) for frame in kept] == [b"a" * 100_000, b"b" * 100_000, b"c"]


def test_nothing_is_held_between_whole_frames() -> None:
    stream = Stream(Scratch(), framed(b"hello") * 10)
    stream.exhaust()
    assert len(stream.frames) == 10
    assert stream.receives == 1
    assert stream.buffer.capacity == 0


def test_memory_follows_what_arrived_not_what_was_announced() -> None:
    stream = Stream(Scratch(), struct.pack(">i", MAX_BYTES))
    stream.turn()
    assert stream.buffer.capacity <= 4096
    arrived = 4
    while arrived < 3 << 20:
        stream.data = bytes(1400)
        arrived += 1400
        stream.exhaust()
        assert stream.buffer.capacity <= max(2 * arrived, 4096)


@pytest.mark.parametrize("length", [-1, 1001, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_before_allocating(length: int) -> None:
    stream = Stream(Scratch(), framed(b"fine") + struct.pack(">i", length) + b"rest", max_bytes=1000)
    with pytest.raises(FrameError):
        stream.turn()
    assert stream.frames == [b"fine"]
    assert stream.buffer.capacity == 0


def test_frames_cut_by_the_end_of_the_scratch_cost_no_receive_of_their_own() -> None:
    stream = Stream(Scratch(), framed(b"x" * 97) * 6490)
    whole_scratches = -(-len(stream.data) // SCRATCH_BYTES)
    stream.exhaust()
    assert len(stream.frames) == 6490
    assert stream.receives <= whole_scratches + 1


@pytest.mark.parametrize("size", [70_000, 1 << 20])
def test_a_stream_of_large_frames_is_read_exactly_and_never_reallocated(size: int) -> None:
    stream = Stream(Scratch(), framed(b"a" * size) * 2)
    stream.exhaust()
    capacity = stream.buffer.capacity
    assert size < capacity <= size + (128 << 10)
    receives = stream.receives
    stream.data = framed(b"b" * size) * 10
    stream.exhaust()
    assert stream.frames[2:] == [b"b" * size] * 10
    assert stream.buffer.capacity == capacity
    assert stream.receives - receives == 10


def test_memory_for_large_frames_is_given_up_when_none_come() -> None:
    stream = Stream(Scratch(), framed(b"a" * 500_000))
    stream.exhaust()
    assert stream.buffer.capacity >= 500_000
    stream.buffer.shrink()
    assert stream.buffer.capacity >= 500_000
    stream.buffer.shrink()
    assert stream.buffer.capacity == 0
    stream.data = framed(b"b" * 500_000) + framed(b"c")
    stream.exhaust()
    assert stream.frames[1:] == [b"b" * 500_000, b"c"]


def test_shrinking_leaves_an_incomplete_frame_alone() -> None:
    stream = Stream(Scratch(), framed(b"a" * 100)[:50])
    stream.exhaust()
    stream.buffer.shrink()
    stream.buffer.shrink()
    stream.data = framed(b"a" * 100)[50:]
    stream.exhaust()
    assert stream.frames == [b"a" * 100]


def test_memory_for_a_huge_frame_is_given_up_at_once() -> None:
    stream = Stream(Scratch(), framed(b"a" * (10 << 20)))
    stream.exhaust()
    assert stream.frames == [b"a" * (10 << 20)]
    assert stream.buffer.capacity == 0
