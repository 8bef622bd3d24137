"""This broker's registration in the cluster: an ephemeral node, made again whenever a new session begins.

Its epoch, the transaction that made the node, tells one life of a broker from the next: whoever speaks for an earlier
one is refused.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tidelog.znodes import nodes, paths
from tidelog.znodes.errors import NodeExists, ZnodeError
from tidelog.znodes.store import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.clock import Clock
    from tidelog.config.listeners import ListenerSet
    from tidelog.znodes.store import WatchEvent, ZnodeStore

logger = logging.getLogger(__name__)

UNREGISTERED = -1
RETRY_S = 1.0


class BrokerIdTaken(ZnodeError):  # noqa: N818 - named for what was found
    """Another broker is registered under this one's id."""


class Membership:
    def __init__(self, znodes: ZnodeStore, broker_id: int, clock: Clock, patience_s: float) -> None:
        """`patience_s` is how long to wait for the registration of an earlier life of this broker to vanish."""
        self._znodes = znodes
        self._path = paths.broker(broker_id)
        self._clock = clock
        self._patience_s = patience_s
        self._registration: Callable[[], bytes] = bytes
        self._task: asyncio.Task[None] | None = None
        self.epoch = UNREGISTERED
        self.on_registered: Callable[[int], None] = lambda _epoch: None
        """Called with the epoch of every new registration."""

    async def join(self, listeners: ListenerSet, rack: str | None) -> None:
        """Makes the broker known. Raises BrokerIdTaken."""
        self._registration = lambda: nodes.BrokerRegistration(listeners.advertised, self._clock.now_ms(), rack).encode()
        self.epoch = await self._register()
        self._znodes.add_listener(self._on_session)

    async def leave(self) -> None:
        self._znodes.remove_listener(self._on_session)
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.epoch = UNREGISTERED

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            logger.warning("the session with the coordination store is lost: this broker is no longer registered")
            self.epoch = UNREGISTERED
        elif (
            state is SessionState.CONNECTED
            and self.epoch == UNREGISTERED
            and not (self._task and not self._task.done())
        ):
            self._task = asyncio.create_task(self._register_again(), name="registration")

    async def _register_again(self) -> None:
        while self.epoch == UNREGISTERED:
            try:
                self.epoch = await self._register()
                logger.info("registered again, with epoch %d", self.epoch)
            except ZnodeError as error:
                logger.error("cannot register again, tried in %g s: %s", RETRY_S, error)
                await asyncio.sleep(RETRY_S)

    async def _register(self) -> int:
        until = self._clock.monotonic() + self._patience_s
        while True:
            with suppress(NodeExists):
                await self._znodes.create(self._path, self._registration(), ephemeral=True)
            changed = asyncio.Event()
            found = await self._znodes.exists(self._path, watch=partial(_set, changed))
            if found is not None and found.ephemeral_owner == self._znodes.session_id:
                self.on_registered(found.czxid)
                return found.czxid
            if found is not None:
                await self._wait_for(changed, until)

    async def _wait_for(self, changed: asyncio.Event, until: float) -> None:
        """The node of an earlier life vanishes with its session; that of another broker does not."""
        left_s = until - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left_s, 0)):
                await changed.wait()
        except TimeoutError:
            raise BrokerIdTaken(
                f"{self._path} belongs to another session: stop the other broker with this broker.id, or give this "
                "one another id"
            ) from None


def _set(changed: asyncio.Event, _event: WatchEvent) -> None:
    changed.set()
