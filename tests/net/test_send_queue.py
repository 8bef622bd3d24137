from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from net_ends import FileRegion, file_region

from tidelog.net.outgoing import Outgoing
from tidelog.net.send_queue import FLUSH_BYTES_MAX, INLINE_REGION_BYTES_MAX, RegionLostError, SendQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def socket_pair(send_buffer_bytes: int | None = None) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        if send_buffer_bytes is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        yield ours, theirs


def drain(queue: SendQueue, ours: socket.socket, theirs: socket.socket) -> bytes:
    """Sends and receives in turn until the queue is empty; what arrived."""
    received = bytearray()
    while True:
        queue.flush(ours)
        try:
            while data := theirs.recv(1 << 16):
                received += data
        except BlockingIOError:
            pass
        if not queue.unsent_bytes:
            return bytes(received)


def spliced(outgoing: Outgoing) -> bytes:
    """What a reply is on the wire, by the definition of splices."""
    whole = bytearray()
    start = 0
    for position, region in outgoing.splices:
        whole += outgoing.data[start:position] + region.read()
        start = position
    return bytes(whole + outgoing.data[start:])


REGION_SIZES = st.sampled_from([0, 1, 100, INLINE_REGION_BYTES_MAX, INLINE_REGION_BYTES_MAX + 1, 70_000, 300_000])
DATA_SIZES = st.sampled_from([0, 1, 50, 4096, 65_535, 65_536, 200_000])
REPLIES = st.lists(st.tuples(DATA_SIZES, st.lists(st.tuples(DATA_SIZES, REGION_SIZES, st.booleans()), max_size=4)))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes=REPLIES, send_buffer_bytes=st.sampled_from([None, 4096]))
def test_bytes_and_regions_arrive_exactly_and_in_order(
    tmp_path: Path, shapes: list[tuple[int, list[tuple[int, int, bool]]]], send_buffer_bytes: int | None
) -> None:
    replies: list[Outgoing] = []
    files: list[int] = []
    for number, (size, parts) in enumerate(shapes):
        data = bytearray(b"head" + bytes([number % 251]) * size)
        splices: list[tuple[int, FileRegion]] = []
        for data_size, region_size, in_file in parts:
            content = bytes([len(splices) + 7]) * region_size
            region = file_region(tmp_path, content) if in_file else FileRegion(content, None, 0)
            file = region.fileno()
            if file is not None:
                files.append(file)
            splices.append((len(data), region))
            data += b"d" * data_size
        replies.append(Outgoing(bytes(data), splices))
    queue = SendQueue()
    for outgoing in replies:
        queue.put(outgoing)
    wanted = b"".join(map(spliced, replies))
    assert queue.unsent_bytes == len(wanted)
    with socket_pair(send_buffer_bytes) as (ours, theirs):
        assert drain(queue, ours, theirs) == wanted
    for file in files:
        os.close(file)


def test_small_replies_leave_in_one_send() -> None:
    queue = SendQueue()
    for number in range(100):
        queue.put(Outgoing(b"reply %d" % number))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert queue.flush(ours) > 0
        # A packet socket keeps what each send carried apart.
        assert theirs.recv(1 << 16) == b"".join(b"reply %d" % number for number in range(100))


def test_a_small_region_leaves_with_the_bytes_around_it(tmp_path: Path) -> None:
    queue = SendQueue()
    queue.put(Outgoing(b"headtail", [(4, file_region(tmp_path, b"-records-"))]))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        queue.flush(ours)
        assert theirs.recv(100) == b"head-records-tail"


class RegionWithAnAttentiveReader(FileRegion):
    """Its peer takes everything at once, so that the socket never is what ends a flush."""

    reader: socket.socket

    def fileno(self) -> int | None:
        with contextlib.suppress(BlockingIOError):
            while self.reader.recv(1 << 20):
                pass
        return super().fileno()


def test_one_flush_sends_only_a_turns_worth(tmp_path: Path) -> None:
    plain = file_region(tmp_path, bytes(3 * FLUSH_BYTES_MAX))
    region = RegionWithAnAttentiveReader(plain.read(), plain.fileno(), plain.position)
    queue = SendQueue()
    queue.put(Outgoing(b"head", [(4, region)]))
    with socket_pair() as (ours, theirs):
        region.reader = theirs
        sent = queue.flush(ours)
        assert FLUSH_BYTES_MAX <= sent < 2 * FLUSH_BYTES_MAX
        assert queue.unsent_bytes == 4 + 3 * FLUSH_BYTES_MAX - sent


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_file_that_was_cut_short_is_an_error_not_a_loop(tmp_path: Path, size: int) -> None:
    region = file_region(tmp_path, bytes(size))
    file = region.fileno()
    assert file is not None
    os.ftruncate(file, region.position + size // 2)
    short = FileRegion(bytes(size // 2), file, region.position)
    short.size = size
    queue = SendQueue()
    queue.put(Outgoing(b"head", [(4, short)]))
    with socket_pair() as (ours, theirs), pytest.raises(RegionLostError, match="too short"):
        drain(queue, ours, theirs)


class UnreadableRegion(FileRegion):
    def read(self, start: int = 0, count: int | None = None) -> bytes:  # noqa: ARG002 - the disk is broken
        raise OSError(5, "Input/output error")


def test_a_file_that_cannot_be_read_is_told_apart_from_a_lost_connection() -> None:
    queue = SendQueue()
    queue.put(Outgoing(b"head", [(4, UnreadableRegion(b"records", None, 0))]))
    with socket_pair() as (ours, theirs), pytest.raises(RegionLostError, match="Input/output error"):
        drain(queue, ours, theirs)


def test_a_lost_connection_is_an_os_error() -> None:
    queue = SendQueue()
    queue.put(Outgoing(b"reply"))
    with socket_pair() as (ours, theirs):
        theirs.close()
        with pytest.raises(BrokenPipeError):
            queue.flush(ours)


def test_clear_forgets_everything(tmp_path: Path) -> None:
    queue = SendQueue()
    queue.put(Outgoing(b"headtail", [(4, file_region(tmp_path, b"records"))]))
    queue.clear()
    assert queue.unsent_bytes == 0
    with socket_pair() as (ours, _):
        assert queue.flush(ours) == 0
