"""A simulated ZooKeeper: one tree that survives everything, and sessions that do not.

The tree and its rules are those of `znodes/tree.py`. A session ends when nothing was heard of its client for its
timeout, or when the simulation says so; its ephemeral nodes go with it. Requests, answers and watches of one
connection travel in order, as ZooKeeper promises, and as late as the network likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tidelog.testing.sim.network import Pipe
from tidelog.znodes.errors import ZnodeError
from tidelog.znodes.store import Delete, WatchEvent
from tidelog.znodes.tree import Draft, Tree
from tidelog.znodes.watches import WatchTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.clock import Clock
    from tidelog.testing.sim.network import Address, SimNetwork
    from tidelog.testing.sim.timeline import SimLoop, Timeline
    from tidelog.znodes.store import Operation, OperationResult, Watch
    from tidelog.znodes.tree import Changes

T = TypeVar("T")

ADDRESS = "zookeeper"


class ServerSession:
    def __init__(self, session_id: int, address: Address, timeout_s: float, now: float) -> None:
        self.session_id = session_id
        self.address = address
        self.timeout_s = timeout_s
        self.heard_at = now
        self.watches = WatchTable()
        self.wire: Wire | None = None


class Wire:
    """A client's connection. `up` is False once either end has given it up: nothing more is told by it."""

    def __init__(self, address: Address, loop: SimLoop) -> None:
        self.address = address
        self.loop = loop
        self.up = True
        self.requests, self.answers = Pipe(), Pipe()

    def break_off(self) -> None:
        self.up = False


class Ensemble:
    def __init__(self, timeline: Timeline, loop: SimLoop, network: SimNetwork, clock: Clock) -> None:
        self.tree = Tree()
        self.zxid = 0
        self.available = True
        """While it is not, nobody is answered, and no session's time runs out."""
        self.on_change: Callable[[Changes], None] | None = None
        """Called with every change of the tree, at the moment it happens."""
        self.sessions: dict[int, ServerSession] = {}
        self._timeline = timeline
        self._loop = loop
        self._network = network
        self._clock = clock

    # -- what clients ask ---------------------------------------------------------------------------------------

    def ask(self, wire: Wire, question: Callable[[], T], answer: Callable[[T | ZnodeError], None]) -> None:
        """Has `question` answered here, in its turn, and `answer` called with the outcome over there."""

        def arrive() -> None:
            if not self.available or not wire.up:
                return
            try:
                outcome: T | ZnodeError = question()
            except ZnodeError as error:
                outcome = error
            self._tell(wire, lambda: answer(outcome))

        self._network.transmit(wire.address, ADDRESS, wire.requests, arrive, wire.break_off)

    def begin_session(self, wire: Wire, timeout_s: float) -> int:
        draft = Draft(self.tree, self.zxid)
        session_id = draft.begin_session()
        self.zxid = draft.zxid
        session = ServerSession(session_id, wire.address, timeout_s, self._timeline.now)
        session.wire = wire
        self.sessions[session_id] = session
        self._loop.call_later(timeout_s, self._expire_if_silent, session_id)
        return session_id

    def resume_session(self, wire: Wire, session_id: int) -> bool:
        """False if it has ended."""
        session = self.sessions.get(session_id)
        if session is None:
            return False
        session.wire = wire
        session.watches.clear()
        session.heard_at = self._timeline.now
        return True

    def heard(self, session_id: int) -> ServerSession | None:
        session = self.sessions.get(session_id)
        if session is not None:
            session.heard_at = self._timeline.now
        return session

    def run(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        draft = Draft(self.tree, self.zxid)
        outcome = draft.run(operations, session_id, self._clock.now_ms())
        self.zxid = draft.zxid
        self.tree.publish(draft.changes)
        if self.on_change and draft.changes:
            self.on_change(draft.changes)
        for session in self.sessions.values():
            self._fire(session, outcome.events)
        return outcome.results

    # -- faults -------------------------------------------------------------------------------------------------

    def expire(self, session_id: int) -> None:
        """Ends a session. Its client hears of it when it next gets through."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return
        self._network.note(ADDRESS, f"session {session_id} of {session.address} ends")
        if session.wire:
            session.wire.up = False
        self.run([Delete(path) for path in self.tree.owned_by(session_id)], session_id)

    def expire_address(self, address: Address) -> None:
        for session in [each for each in self.sessions.values() if each.address == address]:
            self.expire(session.session_id)

    def disconnect(self, address: Address) -> None:
        """Breaks the connections of one client; its session lives on."""
        for session in self.sessions.values():
            if session.address == address and session.wire:
                session.wire.up = False

    def go_down(self) -> None:
        self.available = False
        for session in self.sessions.values():
            if session.wire:
                session.wire.up = False

    def come_up(self) -> None:
        self.available = True
        for session in self.sessions.values():
            session.heard_at = self._timeline.now

    # -- inside -------------------------------------------------------------------------------------------------

    def _fire(self, session: ServerSession, events: Sequence[WatchEvent]) -> None:
        for event in events:
            for watch, told in list(session.watches.take(event)):
                if session.wire and session.wire.up:
                    self._tell_watch(session.wire, watch, told)

    def _tell_watch(self, wire: Wire, watch: Watch, told: WatchEvent) -> None:
        self._tell(wire, lambda: watch(told))

    def _tell(self, wire: Wire, call: Callable[[], None]) -> None:
        def arrive() -> None:
            if wire.up:
                wire.loop.call_soon(call)

        self._network.transmit(ADDRESS, wire.address, wire.answers, arrive, wire.break_off)

    def _expire_if_silent(self, session_id: int) -> None:
        session = self.sessions.get(session_id)
        if session is None:
            return
        left_s = session.heard_at + session.timeout_s - self._timeline.now
        if not self.available:
            left_s = session.timeout_s
        if left_s > 0:
            self._loop.call_later(left_s, self._expire_if_silent, session_id)
        else:
            self.expire(session_id)
