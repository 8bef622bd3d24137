"""What one turn of a connection does: several receives, their replies together, and nothing lost at its end."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from net_ends import Ends, both_loops, framed

from tidelog.net.framing import LENGTH_BYTES
from tidelog.net.receive_buffer import SCRATCH_BYTES

if TYPE_CHECKING:
    from net_ends import Run


@both_loops
def test_a_peer_that_has_said_everything_still_gets_its_replies(run: Run) -> None:
    """The request fills the receive exactly, so that its turn goes on and meets the end of the stream."""

    async def scenario() -> None:
        async with Ends() as ends:
            payload = bytes(SCRATCH_BYTES - LENGTH_BYTES)
            assert ends.peer.sock.send(framed(payload)) == SCRATCH_BYTES
            ends.peer.sock.shutdown(socket.SHUT_WR)
            assert await ends.peer.receive_frame() == payload

    run(scenario())


@both_loops
def test_replies_to_several_receives_of_a_turn_keep_their_order(run: Run) -> None:
    async def scenario() -> None:
        async with Ends() as ends:
            payloads = [bytes([number]) * (SCRATCH_BYTES - LENGTH_BYTES) for number in range(3)]
            ends.peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            await ends.peer.send_frames(*payloads)
            assert await ends.peer.receive_frames(len(payloads)) == payloads

    run(scenario())
